"""The errors that the CUDA runtime, rather than an operator, raises."""

from __future__ import annotations

import torch

_ADVICE = (
    "CUDA kernel errors might be asynchronously reported at some other API call, "
    "so the stacktrace below might be incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
    "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
)
RuntimeFailure: type[RuntimeError] = getattr(torch, "AcceleratorError", RuntimeError)


def invalid_ordinal() -> RuntimeError:
    """What using a GPU that does not exist ends in."""
    return RuntimeFailure(
        "CUDA error: invalid device ordinal\nGPU device may be out of range, do you have enough GPUs?\n"
        + _ADVICE
    )


def invalid_handle() -> RuntimeError:
    """What using an event or a stream of another GPU ends in."""
    return RuntimeFailure("CUDA error: invalid resource handle\n" + _ADVICE)


def device_side_assert() -> str:
    """What everything asked of a device ends in once a kernel's assertion has failed there.

    `c10_cuda_check_implementation` in torch's c10/cuda/CUDAException.cpp.
    """
    return (
        "CUDA error: device-side assert triggered\nSearch for `cudaErrorAssert' in "
        "https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html for more information.\n"
        + _ADVICE
    )


class NotSimulated(NotImplementedError):
    """A part of torch.cuda that the simulated GPUs do not have."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} is not simulated. It works on a real GPU; "
            "on simulated GPUs this script has to do without it."
        )
