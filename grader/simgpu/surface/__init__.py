"""What of torch's Python surface answers for the simulated GPUs, one module per area."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

import torch

from ..patches import Patches
from . import (
    accelerator,
    autocast,
    backends,
    compiling,
    cuda,
    distributed,
    exchange,
    factories,
    functions,
    generators,
    markers,
    memory,
    modules,
    numbers,
    profiling,
    recurrent,
    serialization,
    storages,
    streams,
    synchronizing,
    tensors,
    typed,
    unsupported,
)

if TYPE_CHECKING:
    from ..machine import Machine


def install(machine: Machine, patches: Patches) -> None:
    """Replace the surface; `patches` puts it back."""
    compiling.install(machine, patches)  # before what it must not see
    numbers.install(patches)
    factories.install(machine, patches)
    generators.install(machine, patches)
    implemented: set[str] = set()
    for area in (cuda, streams, memory, generators, markers, synchronizing):
        answers = area.functions(machine)
        for name, function in answers.items():
            patches.set(_module(name), name.rpartition(".")[2], function)
        implemented |= set(answers)
    unsupported.install(patches, implemented)
    distributed.install(machine, patches)
    for area in (accelerator, storages, tensors, typed, modules, autocast, serialization, exchange):
        area.install(machine, patches)
    for area in (functions, recurrent, backends, profiling):
        area.install(machine, patches)


def _module(name: str) -> ModuleType:
    module = torch.cuda
    for part in name.split(".")[:-1]:
        module = getattr(module, part)
    return module
