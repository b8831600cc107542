"""Storages that say on which simulated GPU they are, and are copied from one to another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..local import inside, local
from ..patches import Patches
from ..transfers import transfer

if TYPE_CHECKING:
    from ..machine import Machine

_Untyped = torch.UntypedStorage
_physical_device = torch._C.StorageBase.device.__get__  # type: ignore[attr-defined]


def index_of(storage: torch.UntypedStorage) -> int | None:
    """Index of the simulated GPU that holds a storage, None for the CPU."""
    tag = storage._simulated  # type: ignore[attr-defined]
    return None if tag is None else tag.device


def _bytes_of(storage: torch.UntypedStorage) -> torch.Tensor:
    with inside():
        return torch.empty(0, dtype=torch.uint8).set_(storage)


def install(machine: Machine, patches: Patches) -> None:
    """Make storages tell, and change, their simulated device."""
    for name, getter in {"device": _device, "is_cuda": _is_cuda}.items():
        patches.set(_Untyped, name, property(getter))
    for name, method in {**_places(), **_moves(machine), **_copies(machine)}.items():
        patches.set(_Untyped, name, method)


def _device(self: Any) -> torch.device:
    index = None if local.inside else index_of(self)
    return _physical_device(self) if index is None else torch.device("cuda", index)


def _is_cuda(self: Any) -> bool:
    return not local.inside and index_of(self) is not None


def _places() -> dict[str, Any]:
    shared = _Untyped.is_shared

    def get_device(self: Any) -> int:
        index = None if local.inside else index_of(self)
        return -1 if index is None else index

    def is_shared(self: Any) -> bool:
        return index_of(self) is not None or shared(self)

    return {"get_device": get_device, "is_shared": is_shared}


def _moves(machine: Machine) -> dict[str, Any]:
    def moved(self: Any, target: int | None, non_blocking: bool = False) -> Any:
        if index_of(self) == target:
            return self
        return transfer(machine, _bytes_of(self), target, None, non_blocking).untyped_storage()

    def cpu(self: Any) -> Any:
        return moved(self, None)

    def cuda(self: Any, device: Any = None, non_blocking: bool = False) -> Any:
        return moved(self, machine.index(device), non_blocking)

    def to(self: Any, *, device: Any, non_blocking: bool = False) -> Any:
        wanted = torch.device(device)
        return moved(self, machine.index(wanted) if wanted.type == "cuda" else None, non_blocking)

    return {"cpu": cpu, "cuda": cuda, "to": to}


def _copies(machine: Machine) -> dict[str, Any]:
    clone, copy = _Untyped.clone, _Untyped.copy_

    def copied(self: Any) -> Any:
        index = index_of(self)
        if index is None or local.inside:
            return clone(self)
        return transfer(machine, _bytes_of(self), index).untyped_storage()

    def copy_(self: Any, source: Any, non_blocking: Any = None) -> Any:
        ends = index_of(self), index_of(source)
        if ends == (None, None) or local.inside:
            return copy(self, source, non_blocking)
        _bytes_of(self).copy_(_bytes_of(source), non_blocking=bool(non_blocking))
        return self

    return {"clone": copied, "copy_": copy_}
