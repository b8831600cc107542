"""Operators that the dispatch mode does not simply run: they move data, or tell the host a value."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from . import known, unreal
from .adoption import adopts, mark
from .clock import HOST
from .operators import Operator, tensors_in
from .tags import device_index, tag_of
from .transfers import refuse_meta, transfer

if TYPE_CHECKING:
    from .mode import Simulation

aten = torch.ops.aten


def _to_copy(mode: Simulation, operator: Operator, args: tuple, kwargs: dict[str, Any]) -> torch.Tensor:
    source, wanted = args[0], kwargs.get("device")
    here = device_index(source)
    if wanted is None or (wanted.type == source.device.type and wanted.type != "cuda"):
        # C++ that asks for the physical device means the device of the tensor.
        if here is None:
            out = mode.on_host(operator, args, kwargs)
            # With a device: C++ brings it to where something else is, or may be.
            return mark(mode.machine, out, [source] if wanted is None else None)
        return mode.on_device(operator, args, kwargs, here)
    target = mode.machine.index(wanted) if wanted.type == "cuda" else None
    if target is None and wanted.type != "cpu":
        return operator.func(*args, **kwargs)
    if target == here and target is not None:
        return mode.on_device(operator, args, kwargs, target)
    return transfer(
        mode.machine,
        source,
        target,
        kwargs.get("dtype"),
        bool(kwargs.get("non_blocking")),
        kwargs.get("memory_format") or torch.preserve_format,
    )


def _copy_(mode: Simulation, operator: Operator, args: tuple, kwargs: dict[str, Any]) -> torch.Tensor:
    destination, source = args[0], args[1]
    machine = mode.machine
    if not destination.is_meta:
        refuse_meta(source)
    to_tag, from_tag = tag_of(destination), tag_of(source)
    to, origin = (tag.device if tag else None for tag in (to_tag, from_tag))
    if to is None and origin is not None and adopts(to_tag):
        machine.place(destination, origin)
        to = origin
    if origin is None and to is not None and adopts(from_tag):
        machine.place(source, to)
        origin = to
    if to == origin:
        return (
            mode.on_device(operator, args, kwargs, to)
            if to is not None
            else mode.on_host(operator, args, kwargs)
        )
    non_blocking = bool(args[2]) if len(args) > 2 else bool(kwargs.get("non_blocking"))
    machine.charge_transfer(source, origin, to, non_blocking)
    real = machine.math or (known.countable(source) and destination.numel() == 1)
    if real:
        destination.copy_(source)
    elif to is None:
        destination.zero_()
    if not machine.math:
        known.mark(destination, real)
    return destination


def _scalar(mode: Simulation, operator: Operator, args: tuple, kwargs: dict[str, Any]) -> Any:
    tensor = args[0]
    device = device_index(tensor)
    if device is not None:
        mode.machine.raise_poison(device)
        mode.machine.clocks.copy(device, HOST, tensor.element_size(), True, "item")
        if not mode.machine.math and not known.is_known(tensor):
            return unreal.scalar(tensor.dtype)
    return operator.func(*args, **kwargs)


def _answer(mode: Simulation, operator: Operator, args: tuple, kwargs: dict[str, Any]) -> Any:
    """An operator that gives Python a truth value: the host waits for it."""
    tensors = tensors_in(args, kwargs)
    device = mode.common_device(operator, args, kwargs, tensors, [tag_of(tensor) for tensor in tensors])
    if device is None:
        return mode.on_host(operator, args, kwargs)
    mode.machine.raise_poison(device)
    mode.machine.clocks.launch(device, 0.0, operator.name)
    mode.machine.clocks.copy(device, HOST, 1, True, operator.name)
    if not mode.machine.math:
        # Of values that are all 0; but C++ asks whether something is true by comparing it with a true one.
        return tensors[0].shape == tensors[1].shape and tensors[0].dtype is not torch.bool
    return operator.func(*args, **kwargs)


SPECIAL: dict[Any, Callable[..., Any]] = {
    aten._to_copy: _to_copy,
    aten.copy_: _copy_,
    aten._local_scalar_dense: _scalar,
    aten.equal: _answer,
    aten.allclose: _answer,
    aten.is_nonzero: _scalar,
}
