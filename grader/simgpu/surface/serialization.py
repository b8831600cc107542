"""torch.save and torch.load with the simulated device of each storage."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import torch

from ..local import inside
from ..patches import Patches

if TYPE_CHECKING:
    from ..machine import Machine

_PRIORITY = 5  # before torch's own, which begin at 10
_CUDA = re.compile(r"cuda(?::(\d+))?$")


def install(machine: Machine, patches: Patches) -> None:
    """Register the tags with torch's serialization."""

    def location(storage: Any) -> str | None:
        tag = getattr(storage, "_simulated", None)
        return None if tag is None or tag.device is None else f"cuda:{tag.device}"

    def restore(storage: Any, where: str) -> Any:
        match = _CUDA.match(where)
        if match is None:
            return None
        index = machine.current if match[1] is None else int(match[1])
        if index >= machine.count:
            raise RuntimeError(
                f"Attempting to deserialize object on CUDA device {index} but torch.cuda.device_count() is "
                f"{machine.count}. Please use torch.load with map_location to map your storages to an "
                "existing device."
            )
        with inside():
            made = torch.empty(0, dtype=torch.uint8)
            made.set_(storage)
        machine.place(made, index)
        return made.untyped_storage()

    registry = torch.serialization._package_registry
    entry = (_PRIORITY, location, restore)
    registry.append(entry)
    registry.sort(key=lambda registered: registered[0])
    patches.finally_do(lambda: registry.remove(entry))
