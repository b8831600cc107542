"""Forked processes: as with CUDA, what the parent has used cannot be used again, and the rest can."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from .patches import Patches

if TYPE_CHECKING:
    from .machine import Machine

_machines: list[Machine] = []  # the one that is installed
_BAD_FORK = (
    "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the "
    "'spawn' start method"
)
_INITIALIZING = (
    "_lazy_init", "current_device", "set_device", "get_device_properties", "get_device_name",
    "get_device_capability", "synchronize", "current_stream", "default_stream", "get_rng_state",
)  # fmt: skip


def install(machine: Machine, patches: Patches) -> None:
    """Let children that are forked while the machine is installed know what they may do."""
    patches.set(torch.cuda, "_is_in_bad_fork", lambda: False)
    _machines.append(machine)
    patches.finally_do(lambda: _machines.remove(machine))
    _register()


@functools.cache
def _register() -> None:
    os.register_at_fork(after_in_child=_after_fork)


def _after_fork() -> None:
    for machine in _machines:
        if torch.cuda.is_initialized():
            _refuse(machine)


def _refuse(machine: Machine) -> None:
    """Let the GPUs, which the parent has initialized, be of no use here. A child never gets them back."""

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(_BAD_FORK)

    torch.cuda._is_in_bad_fork = lambda: True
    torch.cuda.is_initialized = lambda: False
    for name in _INITIALIZING:
        setattr(torch.cuda, name, refuse)
    machine.poisoned = True
    machine.raise_poison = refuse  # type: ignore[method-assign]
