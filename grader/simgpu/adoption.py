"""Tensors that C++ makes on its own, which say nothing of the simulated GPU they belong to.

Autograd fills in zeros for gradients that are missing, and operators that C++ composes of others make
helper tensors "where my input is": C++ knows only the physical device, the CPU. Such a tensor is
`FLOATING`: it adopts the device of the first tensor it meets, and so does what is made of floating
tensors alone. A gradient about to be handed to a leaf adopts the leaf's device.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from .local import local
from .operators import Operator, tensors_in
from .tags import FLOATING, device_index, storages, tag_of

if TYPE_CHECKING:
    from .machine import Machine


@contextmanager
def adopting() -> Iterator[None]:
    """Inside, what is made without an input is a helper of a composed operator and floats."""
    local.adopting += 1
    try:
        yield
    finally:
        local.adopting -= 1


def mark(machine: Machine, operator: Operator, args: tuple, kwargs: dict[str, Any], out: Any) -> None:
    """Let what an operator made on the host float, if it comes from C++ and not from the script."""
    made = tensors_in([out], {})
    if not made:
        return
    made_of = tensors_in(args, kwargs)
    if not operator.takes_device and not any(tag_of(tensor) is FLOATING for tensor in made_of):
        return
    device = _leaf_device()
    for tensor in made:
        for storage in storages(tensor):
            if storage._simulated is None:  # type: ignore[attr-defined]
                storage._simulated = FLOATING  # type: ignore[attr-defined]
        if device is not None:
            machine.place(tensor, device)


def _leaf_device() -> int | None:
    """The device of a leaf that the running node of autograd hands its gradient to."""
    node = torch._C._current_autograd_node()
    if node is None or isinstance(node, torch.autograd.function.BackwardCFunction):
        return None  # a function written in Python may have outputs on several devices, and misses theirs
    for following, _ in node.next_functions:
        variable = getattr(following, "variable", None)  # only what accumulates a leaf's gradient has one
        if variable is not None:
            return device_index(variable)
    return None
