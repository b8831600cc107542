"""Whether float32 is multiplied as TF32: torch's own flags, which a GPU follows and a CPU does not.

torch.backends.cudnn.allow_tf32 (on by default) and torch.backends.cuda.matmul.allow_tf32 (off), as well as
torch.set_float32_matmul_precision and the newer `fp32_precision`, all end in the same setting of the
library's core, which is read here.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from .machine import Machine
    from .patches import Patches

_SETTERS = (
    "_set_cudnn_allow_tf32", "_set_cublas_allow_tf32", "_set_float32_matmul_precision",
    "_set_fp32_precision_setter",
)  # fmt: skip
_SETTINGS = {"convolution": "conv", "grouped": "conv", "depthwise": "conv", "matmul": "matmul"}


def tf32(family: str) -> bool:
    """Whether float32 work of this family may use TF32. Fused attention never does."""
    setting = _SETTINGS.get(family)
    return setting is not None and torch._C._get_fp32_precision_getter("cuda", setting) == "tf32"


def install(machine: Machine, patches: Patches) -> None:
    """Let the machine forget how long operators take when one of the flags is set."""

    def forgetting(setter: Any) -> Any:
        @functools.wraps(setter)
        def set_flag(*args: Any) -> Any:
            machine.known_lengths.clear()
            return setter(*args)

        return set_flag

    for name in _SETTERS:
        if hasattr(torch._C, name):
            patches.set(torch._C, name, forgetting(getattr(torch._C, name)))
