"""What of torch's Python surface answers for the simulated GPUs, one module per area."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

import torch

from ..patches import Patches
from . import (
    accelerator,
    autocast,
    cuda,
    distributed,
    generators,
    memory,
    modules,
    numbers,
    serialization,
    streams,
    tensors,
    unsupported,
)

if TYPE_CHECKING:
    from ..machine import Machine


def install(machine: Machine, patches: Patches) -> None:
    """Replace the surface; `patches` puts it back."""
    numbers.install(patches)
    generators.install(machine, patches)
    implemented: set[str] = set()
    for area in (cuda, streams, memory, generators):
        functions = area.functions(machine)
        for name, function in functions.items():
            patches.set(_module(name), name.rpartition(".")[2], function)
        implemented |= set(functions)
    unsupported.install(patches, implemented)
    distributed.install(machine, patches)
    for area in (accelerator, tensors, modules, autocast, serialization):
        area.install(machine, patches)


def _module(name: str) -> ModuleType:
    module = torch.cuda
    for part in name.split(".")[:-1]:
        module = getattr(module, part)
    return module
