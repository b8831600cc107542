"""Functions that C++ composes of operators, where it decides by the physical device.

The dispatch mode sees only the operators beneath them. Some make helper tensors on the device of their
input, which for C++ is the CPU; recurrent networks compare devices before they do anything.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from .adoption import adopting
from .local import local
from .mismatch import device_name
from .operators import tensors_in
from .patches import Patches
from .tags import FLOATING, device_index, tag_of

if TYPE_CHECKING:
    from .machine import Machine

_WITH_HELPERS: tuple[tuple[Any, str], ...] = (
    (torch, "quantile"),
    (torch, "nanquantile"),
    (torch.Tensor, "quantile"),
    (torch.Tensor, "nanquantile"),
    (torch.linalg, "matrix_rank"),
    (torch.linalg, "pinv"),
    (torch, "pinverse"),
    (F, "scaled_dot_product_attention"),
)
_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")


def install(machine: Machine, patches: Patches) -> None:
    """Let these functions see the simulated devices."""
    for owner, name in _WITH_HELPERS:
        patches.set(owner, name, _with_helpers(machine, getattr(owner, name)))
    for name in _RECURRENT:
        checked = _checked(getattr(torch, name))
        patches.set(torch, name, checked)
        patches.set(torch._VF, name, checked)


def _with_helpers(machine: Machine, original: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, whose helper tensors adopt the device of the tensor that they meet."""

    @functools.wraps(original)
    def composed(*args: Any, **kwargs: Any) -> Any:
        if not local.observed or local.inside:
            return original(*args, **kwargs)
        device = next((d for d in map(device_index, tensors_in(args, kwargs)) if d is not None), None)
        if device is None:
            return original(*args, **kwargs)
        with adopting():
            out = original(*args, **kwargs)
        if isinstance(out, torch.Tensor) and tag_of(out) is FLOATING:
            machine.place(out, device)
        return out

    return composed


def _checked(original: Callable[..., Any]) -> Callable[..., Any]:
    """The same recurrent network, after the comparison of devices that torch makes first.

    Two forms: (input, hidden, weights, ...) and, for a packed sequence, (data, lengths, hidden, weights,
    ...).
    The words and their order: `check_attributes` in aten/src/ATen/native/RNN.h.
    """

    @functools.wraps(original)
    def recurrent(*args: Any, **kwargs: Any) -> Any:
        if local.observed and not local.inside and not kwargs and len(args) > 3:
            hidden, weights = args[1:3] if isinstance(args[2], list | tuple) and _flat(args[3]) else args[2:4]
            here = device_index(args[0])
            for kind, tensors in (("hidden", hidden), ("parameter", weights)):
                for tensor in [tensors] if isinstance(tensors, torch.Tensor) else tensors:
                    there = device_index(tensor)
                    if there != here and (there is not None or tensor.dim()):
                        raise RuntimeError(
                            f"Input and {kind} tensors are not at the same device, found input tensor at "
                            f"{device_name(here)} and {kind} tensor at {device_name(there)}"
                        )
        return original(*args, **kwargs)

    return recurrent


def _flat(value: Any) -> bool:
    """Whether this is the `has_biases` that follows the weights of an unpacked sequence."""
    return isinstance(value, bool)
