"""The tensors given to a collective: checked as NCCL does, and seen as plain memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from ..errors import NotSimulated
from ..local import local
from ..tags import device_index
from . import reductions

HOME = "_collective_device"  # on a storage in host memory: the index of the GPU it is taken to be on
_NO_BACKEND = "No backend type associated with device type cpu"


class Adoption:
    """While a device is set, tensors in host memory count as that GPU's: c10d's C++ makes them where the
    physical device of the parameters is."""

    device: int | None = None

    @contextmanager
    def on(self, device: int) -> Iterator[None]:
        """Adopt what is in host memory for the length of a `with` block."""
        before, self.device = self.device, device
        try:
            yield
        finally:
            self.device = before


adoption = Adoption()


def home(tensor: torch.Tensor) -> int | None:
    """The GPU that a tensor is on for a collective; None for host memory."""
    index = device_index(tensor)
    if index is not None or tensor.layout is not torch.strided:
        return index
    return getattr(tensor.untyped_storage(), HOME, adoption.device)


def has_values(tensor: torch.Tensor, math: bool) -> bool:
    """Whether the tensor's bytes mean something: always those of host memory."""
    return math or device_index(tensor) is None


def check(tensors: Sequence[torch.Tensor], bound: torch.device | None = None) -> int:
    """The one GPU that holds all tensors. Raises what ProcessGroupNCCL raises where they do not fit."""
    if not tensors:
        raise ValueError("Tensor list must be nonempty")
    homes = {home(tensor) for tensor in tensors}
    if homes == {None}:
        if local.inside:  # called by an operator, whose own tensors have no place yet
            raise NotSimulated("torch.distributed._functional_collectives")
        raise RuntimeError(_NO_BACKEND)
    if None in homes or any(tensor.layout is not torch.strided for tensor in tensors):
        raise ValueError("Tensors must be CUDA and dense")
    if len(homes) > 1:
        raise ValueError("Tensors must be on the same device")
    for tensor in tensors:
        reductions.check_type(tensor.dtype)
        if tensor.dtype is not tensors[0].dtype:
            raise TypeError("Tensors must have identical type")
    device = homes.pop()
    assert device is not None
    if bound is not None and bound.index is not None and bound.index != device:
        raise ValueError(f"Tensor found on device cuda:{device} but backend constrained to {bound}")
    return device


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """The memory of a dense tensor as a vector that autograd does not see. Raises ValueError for one with
    gaps, which NCCL does not take. To be called inside."""
    if not tensor.is_contiguous() and not torch.ops.aten.is_non_overlapping_and_dense(tensor):
        raise ValueError("Tensors must be contiguous")
    return tensor.data.as_strided((tensor.numel(),), (1,), tensor.storage_offset())


def nbytes(tensors: Sequence[torch.Tensor]) -> int:
    """The bytes of all tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def elements(tensors: Sequence[torch.Tensor]) -> int:
    """The elements of all tensors."""
    return sum(tensor.numel() for tensor in tensors)
