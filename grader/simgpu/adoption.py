"""Tensors that C++ makes on its own, which say nothing of the simulated GPU they belong to.

Operators that C++ composes of others make helper tensors "where my input is", and autograd fills in zeros for
gradients that are missing: C++ knows only the physical device, the CPU. Such a tensor adopts the device of
the first tensor that it meets, and so does what is made of such tensors alone:

- a helper, while the call from Python that made it lasts; what survives the call is an ordinary CPU tensor;
- a tensor made during a backward pass (`tags.FLOATING`), for good. A gradient about to be handed to a leaf
  adopts the leaf's device.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch

from .clock import HOST
from .operators import Operator, tensors_in
from .tags import FLOATING, Tag, device_index, storages, tag_of

if TYPE_CHECKING:
    from .machine import Machine

_MODE = __name__.rpartition(".")[0] + ".mode"  # where it takes an operator apart
_BETWEEN = ("torch._dynamo", "torch._compile", "torch.utils._python_dispatch", "torch._ops", _MODE)


class Helper(Tag):
    """The tag of a tensor that C++ made, with the call from Python in which it did."""

    __slots__ = ("call",)

    def __init__(self, call: tuple[int, int]) -> None:
        super().__init__(None)
        self.call = call


def adopts(tag: Tag | None) -> bool:
    """Whether a tensor with this tag goes to whatever device it meets."""
    return tag is FLOATING or (type(tag) is Helper and tag.call == _call())


def from_cpp(operator: Operator, kwargs: dict[str, Any]) -> bool:
    """Whether C++, not the script, asked for a new tensor: Python always says whether to pin it."""
    return operator.takes_pinned and "pin_memory" not in kwargs and operator.makes


def mark(machine: Machine, out: Any, made_of: list[torch.Tensor] | None = None) -> Any:
    """Let what was made on the host adopt a device, if it is made of nothing but such tensors, or at all."""
    made = tensors_in([out], {})
    if not made or (made_of is not None and not any(adopts(tag_of(tensor)) for tensor in made_of)):
        return out
    backward = torch._C._current_autograd_node() is not None
    tag = FLOATING if backward else Helper(_call())
    device = _leaf_device() if backward else None
    if device == HOST:
        return out
    for tensor in made:
        for storage in storages(tensor):
            if storage._simulated is None or type(storage._simulated) is Helper:  # type: ignore[attr-defined]
                storage._simulated = tag  # type: ignore[attr-defined]
        if device is not None:
            machine.place(tensor, device)
    return out


def _call() -> tuple[int, int]:
    """The instruction of Python from which the running operator was reached."""
    frame = sys._getframe(1)
    while frame.f_code.co_name != "__torch_dispatch__":
        assert frame.f_back is not None
        frame = frame.f_back
    frame = frame.f_back  # type: ignore[assignment]
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_BETWEEN):
        frame = frame.f_back
    return id(frame), frame.f_lasti


def _leaf_device() -> int | None:
    """The device, or HOST, of a leaf that the running node of autograd hands its gradient to; None: none."""
    node = torch._C._current_autograd_node()
    if node is None or isinstance(node, torch.autograd.function.BackwardCFunction):
        return None  # a function written in Python may have outputs on several devices, and misses theirs
    for following in (node, *(function for function, _ in node.next_functions)):
        variable = getattr(following, "variable", None)  # only what accumulates a leaf's gradient has one
        if variable is not None:
            device = device_index(variable)
            return HOST if device is None else device
    return None
