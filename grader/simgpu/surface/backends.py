"""torch.backends and torch.version: switches that scripts set, and versions that they print."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.backends.cuda
import torch.backends.cudnn
import torch.backends.mha

from ..errors import NotSimulated
from ..patches import Patches

if TYPE_CHECKING:
    from ..machine import Machine

# What a build for CUDA 13.0 of the torch of this time answers. A real cuDNN is not asked: it looks whether it
# would run on the simulated card, and its version need not be one that does.
_CUDA = "13.0"
_CUDNN = 91900
_NCCL = (2, 28, 9)


def install(machine: Machine, patches: Patches) -> None:
    """Answer as a build with CUDA does."""
    patches.set(torch.backends.cuda, "is_built", lambda: True)
    patches.set(torch.backends.cudnn, "is_available", lambda: True)
    patches.set(torch.backends.cuda, "cufft_plan_cache", _Plans())
    # Without its kernels; it gives padded positions zeros, which the layers themselves do not promise.
    patches.set(torch.backends.mha, "_is_fastpath_enabled", False)
    if torch.version.cuda is None:
        patches.set(torch.version, "cuda", _CUDA)
    patches.set(torch.backends.cudnn, "version", lambda: _CUDNN)
    patches.set(torch.cuda.nccl, "version", lambda: _NCCL)


class _Plans:
    """The cache of cuFFT's plans, which there are none of."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NotSimulated(f"torch.backends.cuda.cufft_plan_cache.{name}")

    def __getitem__(self, device: Any) -> Any:
        raise NotSimulated("torch.backends.cuda.cufft_plan_cache")
