"""Functions that make tensors on a device: what C++ would look up of that device is looked up here."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
import torch.nested
import torch.utils._device

from ..errors import NotSimulated
from ..patches import Patches
from . import numbers

if TYPE_CHECKING:
    from ..machine import Machine

_LIKE = ("empty_like", "full_like", "ones_like", "rand_like", "randint_like", "randn_like", "zeros_like")
_SPARSE = ("coo", "csr", "csc", "bsr", "bsc", "compressed")
_METHODS = ("new_empty", "new_empty_strided", "new_full", "new_ones", "new_zeros")


def install(machine: Machine, patches: Patches) -> None:
    """Let a number be a device, and a sparse tensor be made on one, where torch itself does not let them."""
    # Known before anything is replaced: a default device goes by the functions that torch itself has.
    constructors = {function.__name__ for function in torch.utils._device._device_constructors()}
    _accept_numbers(machine, patches, constructors)
    context = torch.utils._device.DeviceContext
    patches.set(context, "__torch_function__", _in_context(machine, context.__torch_function__))
    for kind in _SPARSE:
        name = f"sparse_{kind}_tensor"
        patches.set(torch, name, _by_way_of_the_host(getattr(torch, name)))
    for name in ("nested_tensor", "as_nested_tensor"):
        patches.set(torch.nested, name, _only_on_the_host(name, getattr(torch.nested, name)))
    patches.finally_do(_forget_default_device)


def _accept_numbers(machine: Machine, patches: Patches, constructors: set[str]) -> None:
    if not numbers.known():
        for name in sorted({*constructors, *_LIKE}):
            if getattr(torch, name, None) is not None:
                patches.set(torch, name, numbered(getattr(torch, name)))
        for name in _METHODS:
            patches.set(torch.Tensor, name, numbered(getattr(torch.Tensor, name)))


def _in_context(machine: Machine, original: Any) -> Any:
    """`with torch.device("cuda"):` means the device that is current by then."""
    constructors = torch.utils._device._device_constructors()

    def __torch_function__(
        self: Any, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if self.device.type != "cuda" or func not in constructors:
            return original(self, func, types, args, kwargs)
        kwargs = dict(kwargs or {})
        if kwargs.get("device") is None:
            kwargs["device"] = torch.device("cuda", machine.index(self.device))
        return func(*args, **kwargs)

    return __torch_function__


def numbered(original: Any) -> Any:
    """The same function, which takes a number for a device."""

    @functools.wraps(original)
    def make(*args: Any, **kwargs: Any) -> Any:
        if type(kwargs.get("device")) is int:
            kwargs["device"] = torch.device("cuda", kwargs["device"])
        return original(*args, **kwargs)

    return make


def _by_way_of_the_host(original: Any) -> Any:
    """The same function for sparse tensors: made where the parts are, then moved."""

    @functools.wraps(original)
    def make(*args: Any, **kwargs: Any) -> torch.Tensor:
        wanted = kwargs.pop("device", None)
        if type(wanted) is int:
            wanted = torch.device("cuda", wanted)
        if wanted is None or torch.device(wanted).type not in ("cuda", "cpu"):
            return original(*args, device=wanted, **kwargs)
        requires_grad = kwargs.pop("requires_grad", False)
        args = tuple(part.to(wanted) if isinstance(part, torch.Tensor) else part for part in args)
        return original(*args, **kwargs).to(wanted).requires_grad_(requires_grad)

    return make


def _only_on_the_host(name: str, original: Any) -> Any:
    """The same function, which refuses to make a nested tensor on a simulated GPU."""

    @functools.wraps(original)
    def make(parts: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        wanted = kwargs.get("device")
        on_gpu = type(wanted) is int or (wanted is not None and torch.device(wanted).type == "cuda")
        tensors = [parts] if isinstance(parts, torch.Tensor) else parts
        if on_gpu or (wanted is None and any(isinstance(t, torch.Tensor) and t.is_cuda for t in tensors)):
            raise NotSimulated(f"torch.nested.{name}")
        return original(parts, *args, **kwargs)

    return make


def _forget_default_device() -> None:
    context = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    if context is not None and context.device.type == "cuda":
        torch.set_default_device(None)
