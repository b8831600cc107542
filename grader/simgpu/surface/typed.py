"""torch.cuda.FloatTensor and its kin, and torch.FloatTensor beside them: types that name a device, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..patches import Patches
from ..tags import device_index
from ..transfers import move

if TYPE_CHECKING:
    from ..machine import Machine

KINDS = ("BFloat16", "Bool", "Byte", "Char", "Double", "Float", "Half", "Int", "Long", "Short")


class TensorType(type):
    """Makes, and recognizes, tensors of one data type on the CPU or on a simulated GPU."""

    machine: Machine
    plain: Any  # torch's own type for the CPU
    is_cuda: bool

    def __call__(cls, *args: Any, **kwargs: Any) -> torch.Tensor:
        kwargs.pop("device", None)
        made = cls.plain(*args, **kwargs)
        return move(cls.machine, made, cls.machine.index(None)) if cls.is_cuda else made

    def __instancecheck__(cls, instance: object) -> bool:
        return (
            isinstance(instance, torch.Tensor)
            and instance.dtype is cls.dtype
            and (device_index(instance) is not None) == cls.is_cuda
        )

    @property
    def dtype(cls) -> torch.dtype:
        """The data type."""
        return cls.plain.dtype

    @property
    def layout(cls) -> torch.layout:
        """Dense."""
        return torch.strided


def install(machine: Machine, patches: Patches) -> None:
    """Replace the types, and the default that may be one of them."""
    for kind in KINDS:
        name = f"{kind}Tensor"
        plain = getattr(torch, name)
        for home, is_cuda in ((torch.cuda, True), (torch, False)):
            meta = type("tensortype", (TensorType,), {"machine": machine, "plain": plain, "is_cuda": is_cuda})
            patches.set(home, name, meta(name, (), {"__module__": home.__name__}))
    patches.set(torch, "set_default_tensor_type", _set_default(torch.set_default_tensor_type))


def _set_default(original: Any) -> Any:
    def set_default_tensor_type(t: Any, /) -> None:
        if isinstance(t, str):
            home, _, name = t.rpartition(".")
            t = getattr(torch.cuda if home == "torch.cuda" else torch, name, t)
        if not isinstance(t, TensorType):
            original(t)
            return
        original(t.plain)
        torch.set_default_device("cuda" if t.is_cuda else None)

    return set_default_tensor_type
