"""The methods and properties of torch.Tensor that know about devices."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.parameter import UninitializedBuffer, UninitializedTensorMixin  # type: ignore[attr-defined]

from .. import transfers
from ..known import is_known
from ..local import inside, local
from ..mismatch import type_name
from ..patches import Patches
from ..tags import FLOATING, PINNED, device_index, tag_of
from .typed import TensorType

if TYPE_CHECKING:
    from ..machine import Machine

_Base = torch._C.TensorBase


def move(machine: Machine, source: torch.Tensor, *how: Any, **named: Any) -> torch.Tensor:
    """What `transfers.move` gives, also for the parameters of lazy modules, which forbid most methods."""
    if not isinstance(source, UninitializedTensorMixin):
        return transfers.move(machine, source, *how, **named)
    with torch._C.DisableTorchFunctionSubclass():
        moved = transfers.move(machine, source, *how, **named)
        return moved.as_subclass(type(source)) if isinstance(source, UninitializedBuffer) else moved


_physical_device = _Base.device.__get__


def install(machine: Machine, patches: Patches) -> None:
    """Make tensors tell, and change, their simulated device."""
    Tensor = torch.Tensor
    for name, getter in _properties(machine).items():
        patches.set(Tensor, name, property(getter))
    patches.set(Tensor, "grad", property(_Grad.__get__, _set_gradient, _Grad.__delete__))
    for name, method in {**_moves(machine), **_places(), **_exits(machine)}.items():
        patches.set(Tensor, name, functools.wraps(getattr(_Base, name, getattr(Tensor, name)))(method))
    patches.set(torch, "as_tensor", _as_tensor(machine, _with_index(machine, torch.as_tensor)))
    patches.set(torch, "tensor", _with_index(machine, torch.tensor))
    patches.set(Tensor, "new_tensor", _where_it_is(_with_index(machine, Tensor.new_tensor)))
    patches.set(torch, "get_device", lambda tensor: tensor.get_device())


def _properties(machine: Machine) -> dict[str, Any]:
    devices = [torch.device("cuda", index) for index in range(machine.count)]

    def device(self: torch.Tensor) -> torch.device:
        index = None if local.inside else device_index(self)
        return _physical_device(self) if index is None else devices[index]

    def is_cuda(self: torch.Tensor) -> bool:
        return not local.inside and device_index(self) is not None

    def is_cpu(self: torch.Tensor) -> bool:
        return _physical_device(self).type == "cpu" and (bool(local.inside) or device_index(self) is None)

    return {"device": device, "is_cuda": is_cuda, "is_cpu": is_cpu}


_Grad: Any = _Base.grad


def _set_gradient(self: torch.Tensor, gradient: torch.Tensor | None) -> None:
    if (
        isinstance(gradient, torch.Tensor)
        and not local.inside
        and tag_of(gradient) is not FLOATING
        and device_index(gradient) != device_index(self)
    ):
        raise RuntimeError("assigned grad has data located on a different device")
    _Grad.__set__(self, gradient)


def _moves(machine: Machine) -> dict[str, Any]:
    original_to = _Base.to

    def to(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if local.inside:
            return original_to(self, *args, **kwargs)
        device, dtype, non_blocking, copy, memory_format = _parse_to(*args, **kwargs)
        if device is None:
            return original_to(self, dtype=dtype or self.dtype, copy=copy, memory_format=memory_format)
        if device.type not in ("cuda", "cpu"):
            return original_to(self, *args, **kwargs)
        target = machine.index(device) if device.type == "cuda" else None
        return move(machine, self, target, dtype, non_blocking, copy, memory_format)

    def cuda(
        self: torch.Tensor,
        device: Any = None,
        non_blocking: bool = False,
        memory_format: Any = torch.preserve_format,
    ) -> torch.Tensor:
        if isinstance(device, str | torch.device) and torch.device(device).type != "cuda":
            raise RuntimeError(f"Invalid device, must be cuda device but got {device}")
        return move(machine, self, machine.index(device), None, non_blocking, False, memory_format)

    def cpu(self: torch.Tensor, memory_format: Any = torch.preserve_format) -> torch.Tensor:
        return move(machine, self, None, memory_format=memory_format)

    def type_as(self: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return to(self, device=other.device, dtype=other.dtype)

    def type(self: torch.Tensor, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
        if dtype is None:
            return type_name(self, device_index)
        if isinstance(dtype, str) and dtype.endswith("Tensor"):
            home, _, name = dtype.rpartition(".")
            dtype = getattr(torch.cuda if home == "torch.cuda" else torch, name, dtype)
        if not isinstance(dtype, TensorType):
            return _Base.type(self, dtype, non_blocking, **kwargs)
        here = device_index(self)
        target = (machine.index(None) if here is None else here) if dtype.is_cuda else None
        return move(machine, self, target, dtype.dtype, non_blocking)

    def new(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        wanted = kwargs.pop("device", None)
        made = _Base.new(self, *args, **kwargs)
        return made.to(self.device if wanted is None else wanted)

    return {"to": to, "cuda": cuda, "cpu": cpu, "type": type, "type_as": type_as, "new": new}


def _places() -> dict[str, Any]:
    def get_device(self: torch.Tensor) -> int:
        index = device_index(self)
        return _Base.get_device(self) if index is None or local.inside else index

    def pin_memory(self: torch.Tensor, device: Any = None) -> torch.Tensor:
        if device_index(self) is not None:
            raise RuntimeError(
                f"cannot pin '{type_name(self, device_index)}' only dense CPU tensors can be pinned"
            )
        return self if is_pinned(self) else torch.ops.aten._pin_memory(self)

    def is_pinned(self: torch.Tensor, device: Any = None) -> bool:
        return tag_of(self) is PINNED

    def record_stream(self: torch.Tensor, stream: Any) -> None:
        """Let the memory outlive the tensor until what is on the stream by then is done."""
        tag = tag_of(self)
        if tag is not None and tag.device == stream.device_index:
            tag.streams = {*(tag.streams or ()), stream.stream_id}

    return {
        "get_device": get_device,
        "pin_memory": pin_memory,
        "is_pinned": is_pinned,
        "record_stream": record_stream,
    }


def _parse_to(
    *args: Any, **kwargs: Any
) -> tuple[torch.device | None, torch.dtype | None, bool, bool, torch.memory_format]:
    device, dtype = kwargs.get("device"), kwargs.get("dtype")
    rest = list(args)
    first = rest.pop(0) if rest else kwargs.get("other")
    if isinstance(first, torch.Tensor):
        device, dtype = first.device, first.dtype
    elif isinstance(first, torch.dtype):
        dtype = first
    elif first is not None:
        device = first
    if not isinstance(first, torch.Tensor | torch.dtype) and rest and not isinstance(rest[0], bool):
        dtype = rest.pop(0)
    if dtype is not None and not isinstance(dtype, torch.dtype):
        _Base.to(torch.empty(0), *args, **kwargs)  # refuses them in torch's words
    if isinstance(device, int):
        device = torch.device("cuda", device)
    elif device is not None:
        device = torch.device(device)
    non_blocking = bool(rest.pop(0)) if rest else bool(kwargs.get("non_blocking", False))
    copy = bool(rest.pop(0)) if rest else bool(kwargs.get("copy", False))
    return device, dtype, non_blocking, copy, kwargs.get("memory_format") or torch.preserve_format


def _exits(machine: Machine) -> dict[str, Any]:
    """Where values leave torch: for Python lists, NumPy and the screen."""
    original_repr: Any = torch.Tensor.__repr__

    def numpy(self: torch.Tensor, *, force: bool = False) -> Any:
        index = device_index(self)
        if index is None or local.inside:
            return _Base.numpy(self, force=force)
        if not force:
            raise TypeError(
                f"can't convert cuda:{index} device type tensor to numpy. "
                "Use Tensor.cpu() to copy the tensor to host memory first."
            )
        return _Base.numpy(move(machine, self.detach(), None), force=force)

    def tolist(self: torch.Tensor) -> Any:
        if device_index(self) is None or local.inside:
            return _Base.tolist(self)
        return _Base.tolist(move(machine, self.detach(), None))

    def array(self: torch.Tensor, dtype: Any = None) -> Any:
        made = self.numpy()
        return made if dtype is None else made.astype(dtype, copy=False)

    def represent(self: torch.Tensor, *, tensor_contents: Any = None) -> str:
        if machine.math or local.inside or device_index(self) is None or is_known(self):
            return original_repr(self, tensor_contents=tensor_contents)
        with inside():
            text = original_repr(torch.zeros_like(self, device="cpu"))
        return f"{text[:-1]}, device='cuda:{device_index(self)}')"

    return {"numpy": numpy, "tolist": tolist, "__array__": array, "__repr__": represent}


def _as_tensor(machine: Machine, original: Any) -> Any:
    def as_tensor(data: Any, dtype: torch.dtype | None = None, device: Any = None) -> torch.Tensor:
        if not isinstance(data, torch.Tensor):
            return original(data, dtype=dtype, device=device)
        return data.to(device=device, dtype=dtype) if device is not None or dtype is not None else data

    return as_tensor


def _with_index(machine: Machine, original: Any) -> Any:
    """The same function; a build without CUDA cannot complete a device without an index by itself."""

    @functools.wraps(original)
    def make(*args: Any, **kwargs: Any) -> torch.Tensor:
        wanted = kwargs.get("device")
        if wanted is not None and not isinstance(wanted, int):
            wanted = torch.device(wanted)
            if wanted.type == "cuda" and wanted.index is None:
                kwargs["device"] = torch.device("cuda", machine.index(wanted))
        return original(*args, **kwargs)

    return make


def _where_it_is(original: Any) -> Any:
    """The same method, which makes a tensor where its own is unless told otherwise."""

    @functools.wraps(original)
    def make(self: torch.Tensor, *args: Any, device: Any = None, **kwargs: Any) -> torch.Tensor:
        return original(self, *args, device=self.device if device is None else device, **kwargs)

    return make
