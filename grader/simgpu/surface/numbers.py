"""torch.device(1): a build of torch without any accelerator refuses to make a device of a bare number."""

from __future__ import annotations

from typing import Any

import torch

from ..patches import Patches

_Real: Any = torch.device


class _Device(type):
    """Makes, and recognizes, real devices."""

    def __call__(cls, *args: Any, **kwargs: Any) -> torch.device:
        if args and isinstance(args[0], int) and not isinstance(args[0], bool):
            args = ("cuda", *args)
        return _Real(*args, **kwargs)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _Real)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, _Real)


class device(metaclass=_Device):
    """Stands in for torch.device on such a build."""

    __module__ = "torch"


def known() -> bool:
    """Whether this build of torch knows what device a bare number means."""
    try:
        _Real(0)
    except RuntimeError:
        return False
    return True


def install(patches: Patches) -> None:
    """Let a number mean a simulated GPU, where torch itself does not let it."""
    if not known():
        patches.set(torch, "device", device)
