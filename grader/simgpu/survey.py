"""Where the inputs of an operator are, and what its cost depends on. Nearly every call asks: made fast."""

from __future__ import annotations

from typing import Any

import torch

from .tags import WITHOUT_STORAGE
from .times import HOST

NOWHERE = -2  # there are no tensors
_PLAIN = {int, bool, type(None), torch.dtype}


def survey(values: tuple | list, key: list[Any]) -> int | None:
    """Where the tensors among the values are: a device's index, or HOST; None unless all are in one place.

    Appends to `key` what the cost of the operator depends on.
    """
    place = NOWHERE
    for value in values:
        kind = type(value)
        if kind is torch.Tensor or kind is torch.nn.Parameter:
            try:
                tag = value.untyped_storage()._simulated
            except WITHOUT_STORAGE:
                return None
            key.append(value.shape)
            key.append(value.dtype)
            here = HOST if tag is None else tag.device
        elif kind in _PLAIN:
            key.append(value)
            continue
        elif kind is float:  # of which no cost depends; a learning rate may be another in each step
            continue
        elif kind is list or kind is tuple:
            key.append(len(value))
            here = survey(value, key)
            if here == NOWHERE:
                continue
        else:
            return None
        if here is None or here != place != NOWHERE:
            return None
        place = here
    return place
