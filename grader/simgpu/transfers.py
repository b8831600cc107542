"""Copies between host memory and the simulated GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from . import known
from .clock import HOST
from .local import inside, local
from .tags import PINNED, device_index, tag_of

if TYPE_CHECKING:
    from .machine import Machine


def transfer(
    machine: Machine,
    source: torch.Tensor,
    target: int | None,
    dtype: torch.dtype | None = None,
    non_blocking: bool = False,
    memory_format: torch.memory_format = torch.preserve_format,
) -> torch.Tensor:
    """A copy of `source` on the GPU with index `target`, None for the host; autograd does not see it.

    Without arithmetic a copy to the host holds zeros, but for what is known.
    """
    origin = device_index(source)
    refuse_meta(source)
    with inside(), torch.no_grad():
        real = machine.math or known.countable(source)
        if real or (target is not None and source.layout is not torch.strided):
            made = _original_to(source, dtype=dtype or source.dtype, copy=True, memory_format=memory_format)
        elif target is None:
            made = torch.zeros_like(source, dtype=dtype, memory_format=memory_format)
        else:
            made = torch.empty_like(source, dtype=dtype, memory_format=memory_format)
    if target is not None:
        machine.place(made, target)
        if real and not machine.math:
            known.mark(made)
    machine.charge_transfer(source, origin, target, non_blocking)
    return made


def refuse_meta(source: torch.Tensor) -> None:
    """A tensor on the meta device has no values that could be copied."""
    if source.is_meta:
        raise NotImplementedError("Cannot copy out of meta tensor; no data!")


_original_to = torch._C.TensorBase.to


class ToCopy(torch.autograd.Function):
    """A copy between devices whose gradient is copied back."""

    @staticmethod
    def forward(
        ctx: Any, source: torch.Tensor, machine: Machine, target: int | None, *how: Any
    ) -> torch.Tensor:
        ctx.machine = machine
        ctx.origin = device_index(source)
        ctx.dtype = source.dtype
        return transfer(machine, source, target, *how)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return move(ctx.machine, gradients[0], ctx.origin, ctx.dtype), None, None, None, None, None


def move(
    machine: Machine,
    source: torch.Tensor,
    target: int | None,
    dtype: torch.dtype | None = None,
    non_blocking: bool = False,
    copy: bool = False,
    memory_format: torch.memory_format = torch.preserve_format,
) -> torch.Tensor:
    """What `source.to(device, ...)` gives, differentiable; `source` itself where nothing changes."""
    if device_index(source) == target:
        refuse_meta(source)
        return _original_to(source, dtype=dtype or source.dtype, copy=copy, memory_format=memory_format)
    if source.requires_grad and torch.is_grad_enabled():
        return ToCopy.apply(source, machine, target, dtype, non_blocking, memory_format)
    return transfer(machine, source, target, dtype, non_blocking, memory_format)


def charge(
    machine: Machine, source: torch.Tensor, origin: int | None, target: int | None, non_blocking: bool
) -> None:
    """Charge the clocks with moving `source`. Only page-locked host memory is copied without waiting."""
    if not local.observed:
        return
    for end in (origin, target):
        if end is not None:
            machine.raise_poison(end)
    if origin is not None and target is not None:
        blocking = False
    elif origin is None:
        blocking = not (non_blocking and tag_of(source) is PINNED)
    else:
        blocking = not non_blocking
    phase = "forward" if torch._C._current_autograd_node() is None else "backward"
    nbytes = source.numel() * source.element_size()
    ends = [HOST if end is None else end for end in (origin, target)]
    machine.clocks.copy(ends[0], ends[1], nbytes, blocking, "copy", phase)
