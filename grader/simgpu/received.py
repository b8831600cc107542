"""Tensors of a simulated GPU that another process has sent.

Imports no torch by itself: a process that has not imported it is given its machine when it does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Kind(NamedTuple):
    """What a tensor is beside its values."""

    type: type
    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: Any
    requires_grad: bool
    device: int


def values(kind: Kind, offset: int, rebuild: Callable[..., Any], storage: tuple) -> Any:
    """A tensor on the sender's storage, the memory of which is the sender's."""
    import torch

    from .local import inside, unobserved
    from .machine import installed
    from .tags import Tag

    with unobserved(), inside(), torch.no_grad():
        shared = rebuild(*storage)
        tensor = torch.empty(0, dtype=kind.dtype).set_(shared, offset, kind.size, kind.stride)
    if installed() is not None:
        shared._simulated = Tag(kind.device)
    return _as(kind, tensor)


def shape(kind: Kind) -> Any:
    """A tensor without values."""
    import torch

    tensor = torch.empty_strided(kind.size, kind.stride, dtype=kind.dtype, device=f"cuda:{kind.device}")
    return _as(kind, tensor)


def _as(kind: Kind, tensor: Any) -> Any:
    import torch

    if issubclass(kind.type, torch.nn.Parameter):
        return kind.type(tensor, kind.requires_grad)
    return tensor.requires_grad_(kind.requires_grad)
