"""The C++ functions that torch.nn.parallel.comm stands on, for simulated GPUs.

A build of torch without CUDA does not have them at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from . import known
from .local import inside
from .patches import Patches
from .tags import device_index
from .transfers import transfer

if TYPE_CHECKING:
    from .machine import Machine


class Communication:
    """Scatter, gather, broadcast and reduce over the GPUs of one machine."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def install(self, patches: Patches) -> None:
        """Stand in for the functions of torch._C and torch.cuda.nccl that DataParallel calls."""
        for name in ("scatter", "scatter_out", "gather", "gather_out", "broadcast", "broadcast_out"):
            patches.set(torch._C, f"_{name}", getattr(self, name))
        patches.set(torch._C, "_broadcast_coalesced", self.broadcast_coalesced)
        patches.set(torch.cuda.nccl, "is_available", self.has_nccl)
        patches.set(torch.cuda.nccl, "reduce", self.reduce)

    def scatter(
        self,
        tensor: torch.Tensor,
        devices: Sequence[int],
        chunk_sizes: Sequence[int] | None = None,
        dim: int = 0,
        streams: Any = None,
    ) -> list[torch.Tensor]:
        """Chunks of `tensor` along `dim`, one on each device; a chunk that is there already is a view."""
        if not devices:
            raise RuntimeError("Expected at least one device to scatter to")
        if chunk_sizes is not None and len(chunk_sizes) != len(devices):
            raise RuntimeError(
                "Expected devices and chunk_sizes to be of same length, but got "
                f"len(devices) = {len(devices)} and len(chunk_sizes) = {len(chunk_sizes)}"
            )
        for device in devices:
            self.machine.check(device)
        chunks = (
            tensor.chunk(len(devices), dim) if chunk_sizes is None else tensor.split(list(chunk_sizes), dim)
        )
        here = device_index(tensor)
        return [
            chunk if device == here else transfer(self.machine, chunk, device, non_blocking=True)
            for chunk, device in zip(chunks, devices, strict=False)
        ]

    def scatter_out(
        self, tensor: torch.Tensor, out: Sequence[torch.Tensor], dim: int = 0, streams: Any = None
    ) -> Any:
        """Fill the tensors of `out` with chunks of `tensor` of their sizes."""
        for chunk, made in zip(tensor.split([made.size(dim) for made in out], dim), out, strict=True):
            made.copy_(chunk, non_blocking=True)
        return out

    def gather(
        self, tensors: Sequence[torch.Tensor], dim: int, destination: int | None = None
    ) -> torch.Tensor:
        """The tensors joined along `dim` on a device, None for the current one, -1 for the host."""
        if not tensors:
            raise RuntimeError("Expected at least one tensor to gather from")
        first = tensors[0]
        for position, tensor in enumerate(tensors):
            if device_index(tensor) is None:
                raise RuntimeError(
                    "Expected all input tensors to be CUDA tensors, "
                    f"but tensor at index {position} has device 'cpu'"
                )
            self._check_shape(position, tensor, first, dim)
        target = self.machine.current if destination is None else destination
        on_host = target < 0
        moved = [
            tensor
            if device_index(tensor) == target
            else transfer(self.machine, tensor, None if on_host else target, non_blocking=not on_host)
            for tensor in tensors
        ]
        return torch.cat(moved, dim)

    def _check_shape(self, position: int, tensor: torch.Tensor, first: torch.Tensor, dim: int) -> None:
        if tensor.dim() != first.dim():
            raise RuntimeError(
                "Expected all input tensors to have the same number of dimensions, but "
                f"tensor at index {position} has {tensor.dim()} dimensions, (expected {first.dim()})"
            )
        expected = [*first.shape]
        expected[dim] = tensor.size(dim)
        if [*tensor.shape] != expected:
            raise RuntimeError(
                f"Input tensor at index {position} has invalid shape {[*tensor.shape]}, "
                f"but expected {expected}"
            )

    def gather_out(self, tensors: Sequence[torch.Tensor], out: torch.Tensor, dim: int) -> torch.Tensor:
        """Fill `out` with the tensors joined along `dim`."""
        for chunk, tensor in zip(out.split([t.size(dim) for t in tensors], dim), tensors, strict=True):
            chunk.copy_(tensor, non_blocking=True)
        return out

    def broadcast(self, tensor: torch.Tensor, devices: Sequence[int]) -> list[torch.Tensor]:
        """Copies of a tensor on every device; on its own device the tensor itself."""
        here = device_index(tensor)
        return [
            tensor if d == here else transfer(self.machine, tensor, d, non_blocking=True) for d in devices
        ]

    def broadcast_out(self, tensor: torch.Tensor, out: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """Fill the tensors of `out` with copies."""
        for made in out:
            made.copy_(tensor, non_blocking=True)
        return out

    def broadcast_coalesced(
        self, tensors: Sequence[torch.Tensor], devices: Sequence[int], buffer_size: int = 0
    ) -> list[list[torch.Tensor]]:
        """What replicate() is given: for devices[0] the tensors themselves, for each other device copies."""
        for device in devices:
            self.machine.check(device)
        if any(device_index(tensor) != devices[0] for tensor in tensors):
            raise RuntimeError(f"All tensors must be on devices[0]: {devices[0]}")
        copies = [list(tensors)]
        with torch._C.DisableTorchFunctionSubclass():  # as in C++, subclasses are not asked
            copies += [[self._duplicate(tensor, device) for tensor in tensors] for device in devices[1:]]
            nbytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        self.machine.clocks.broadcast(list(devices), nbytes)
        return copies

    def _duplicate(self, tensor: torch.Tensor, device: int) -> torch.Tensor:
        with inside(), torch.no_grad():
            real = self.machine.math or known.countable(tensor)
            made = tensor.detach().clone() if real else torch.empty_like(tensor)
        self.machine.place(made, device, "broadcast")
        known.mark(made, real)
        return made

    def has_nccl(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Whether NCCL would serve: dense, contiguous tensors, each on a GPU of its own."""
        devices = [device_index(tensor) for tensor in tensors]
        usable = all(
            not t.is_sparse and t.is_contiguous() and d is not None
            for t, d in zip(tensors, devices, strict=True)
        )
        return usable and len(set(devices)) == len(devices)

    def reduce(
        self, inputs: Sequence[torch.Tensor], output: Any = None, root: int = 0, op: int = 0, **_: Any
    ) -> None:
        """Sum the inputs into `output`, or into inputs[root]: the backward of replicate()."""
        target = inputs[root] if output is None else output
        if self.machine.math:
            with inside(), torch.no_grad():
                total = inputs[0].clone()
                for tensor in inputs[1:]:
                    total += tensor
                target.copy_(total)
        known.mark(target, False)
        devices = [device for tensor in inputs if (device := device_index(tensor)) is not None]
        devices.insert(0, devices.pop(root))
        self.machine.clocks.reduce(devices, inputs[root].numel() * inputs[root].element_size())
