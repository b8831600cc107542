"""Every part of torch.cuda that is not simulated says so, by name, instead of doing nothing."""

from __future__ import annotations

import functools
import types
from typing import Any

import torch

from ..errors import NotSimulated
from ..patches import Patches
from . import typed

# What works as it is: classes and functions built on what is simulated, error types, and things about builds.
AS_THEY_ARE = {
    "AcceleratorError", "BFloat16Storage", "BoolStorage", "ByteStorage", "CharStorage", "CudaError",
    "ComplexDoubleStorage", "ComplexFloatStorage", "DeferredCudaCallError", "DoubleStorage", "FloatStorage",
    "HalfStorage", "IntStorage", "LongStorage", "OutOfMemoryError", "ShortStorage", "check_error",
    "cudaStatus", "device", "device_of", "get_device_index", "get_gencode_flags", "memory_stats",
    *(f"{kind}Tensor" for kind in typed.KINDS),
}  # fmt: skip
_SUBMODULES = (
    "graphs",
    "jiterator",
    "nvtx",
    "profiler",
    "tunable",
    "gds",
    "green_contexts",
    "nccl",
    "memory",
    "streams",
)
_OF_SUBMODULES = {"nccl": {"is_available", "reduce", "version"}, "memory": {"memory_stats"}}


def install(patches: Patches, implemented: set[str]) -> None:
    """Replace the public callables of torch.cuda, and of its submodules, that `implemented` does not name."""
    for name in unsupported(implemented):
        patches.set(torch.cuda, name, refusal(f"torch.cuda.{name}", getattr(torch.cuda, name)))
    for submodule in _SUBMODULES:
        module = getattr(torch.cuda, submodule, None)
        for name in _own_callables(module) if module is not None else ():
            kept = _OF_SUBMODULES.get(submodule, set())
            if name in kept or f"{submodule}.{name}" in implemented:
                continue
            if name in implemented:
                patches.set(module, name, getattr(torch.cuda, name))
            else:
                patches.set(module, name, refusal(f"torch.cuda.{submodule}.{name}", getattr(module, name)))


def unsupported(implemented: set[str]) -> list[str]:
    """The public callables of torch.cuda that raise."""
    public = [name for name in torch.cuda.__all__ if callable(getattr(torch.cuda, name, None))]
    return sorted(name for name in public if name not in implemented and name not in AS_THEY_ARE)


def _own_callables(module: types.ModuleType) -> list[str]:
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and callable(value)
        and getattr(value, "__module__", None) == module.__name__
    ]


def refusal(name: str, replaced: Any) -> Any:
    """What stands in for a function or class that is not simulated."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise NotSimulated(name)

    refuse.not_simulated = True  # type: ignore[attr-defined]
    if not isinstance(replaced, type):
        return functools.wraps(replaced)(refuse)
    # A class stays one, so that isinstance() can still be asked.
    return type(
        replaced.__name__,
        (),
        {"__new__": refuse, "__doc__": f"{name} is not simulated.", "not_simulated": True},
    )
