"""The tag that makes a tensor live on a simulated GPU.

It hangs on the Python object of the tensor's storage, which torch keeps as long as the storage lives
and which views, `detach()` and `.data` share. When the storage dies, the tag dies with it and gives
its bytes back to the device's memory meter.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.parameter import UninitializedTensorMixin  # type: ignore[attr-defined]

from .local import inside

ATTRIBUTE = "_simulated"
_functorch = torch._C._functorch
WITHOUT_STORAGE = (NotImplementedError, RuntimeError, ValueError)


class Tag:
    """Says on which device a storage lives, and holds its bytes there.

    `device` is the index of the GPU, or None for host memory.
    """

    __slots__ = ("device", "nbytes", "memory", "label", "streams", "known", "__weakref__")

    def __init__(self, device: int | None, nbytes: int = 0, memory: Any = None, label: str = "") -> None:
        self.device = device
        self.nbytes = nbytes  # as the meter rounded them
        self.memory = memory
        self.label = label  # what the memory was taken for, while someone records it
        self.streams: set[int] | None = None  # those which record_stream() named
        self.known = False  # without arithmetic: whether the values are real

    def __del__(self) -> None:
        if self.nbytes and self.memory is not None:
            self.memory.free(self)


FLOATING = Tag(None)  # made by C++ autograd on its own: adopts the device of the first tensor it meets
PINNED = Tag(None)  # page-locked host memory: copied to a GPU without waiting


def sparse_parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The dense tensors that make up a sparse one; empty for any other layout."""
    with inside():
        if tensor.layout is torch.sparse_coo:
            return [tensor._indices(), tensor._values()]
        if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
            return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
        if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
            return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    return []


def storages(tensor: torch.Tensor) -> Iterator[torch.UntypedStorage]:
    """The storages that hold a tensor: one, or those of the parts of a sparse tensor."""
    try:
        yield tensor.untyped_storage()
    except WITHOUT_STORAGE:
        if _functorch.is_functorch_wrapped_tensor(tensor):  # inside vmap(), grad() and the like
            yield from storages(_functorch.get_unwrapped(tensor))
            return
        if isinstance(tensor, UninitializedTensorMixin):
            with torch._C.DisableTorchFunctionSubclass():
                yield tensor.untyped_storage()
            return
        for part in sparse_parts(tensor):
            yield part.untyped_storage()


def tag_of(tensor: torch.Tensor) -> Tag | None:
    """The tag of a tensor; None for an ordinary CPU tensor."""
    try:
        return tensor.untyped_storage()._simulated  # type: ignore[attr-defined]
    except WITHOUT_STORAGE:
        for storage in storages(tensor):
            return storage._simulated  # type: ignore[attr-defined]
        return None


def device_index(tensor: torch.Tensor) -> int | None:
    """Index of the simulated GPU that holds the tensor, None for the CPU."""
    tag = tag_of(tensor)
    return None if tag is None else tag.device
