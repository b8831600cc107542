"""Values of a GPU that stay real in a run without arithmetic: counters, and what is made of them alone.

A single whole number that came from the host is known, such as BatchNorm's count of batches, and so is what
an operator makes of known numbers. What also depends on a tensor without values is not.
"""

from __future__ import annotations

from typing import Any

import torch

from .operators import Operator, tensors_in
from .tags import device_index, storages, tag_of


def is_known(tensor: torch.Tensor) -> bool:
    """Whether the tensor of a GPU has its real values."""
    tag = tag_of(tensor)
    return tag is not None and tag.known


def countable(source: torch.Tensor) -> bool:
    """Whether a copy of this tensor is to have its values: a whole number of the host, or what is known."""
    tag = tag_of(source)
    if tag is not None and tag.device is not None:
        return tag.known
    return source.numel() == 1 and not (source.is_floating_point() or source.is_complex())


def mark(made: Any, known: bool = True) -> None:
    """Say of these tensors whether their values are real."""
    for tensor in tensors_in([made], {}):
        for storage in storages(tensor):
            tag = storage._simulated  # type: ignore[attr-defined]
            if tag is not None and tag.device is not None:
                tag.known = known


def computable(operator: Operator, args: tuple, kwargs: dict[str, Any]) -> bool:
    """Whether an operator is to be computed: its first tensor is known, and so is all else that it takes.

    A known tensor that it overwrites with something else is known no longer.
    """
    if not args or not isinstance(args[0], torch.Tensor) or not is_known(args[0]):
        return False
    drawn = operator.random or operator.generator
    if not drawn and all(is_known(each) or device_index(each) is None for each in tensors_in(args, kwargs)):
        return True
    if operator.mutates:
        mark(args[0], False)
    return False
