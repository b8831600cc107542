"""Simulated GPUs: an unmodified PyTorch script sees them as `cuda:0`, `cuda:1`, on any computer.

    with simgpu.simulate("2xT4") as machine:
        train()
        print(machine.synchronize(), "simulated seconds")

Seconds are virtual and follow the named profile; values are those of the CPU. Nothing here imports the rest
of the grader.

The profiles alone can be read without torch: everything that needs it is imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .profiles import BadProfile

if TYPE_CHECKING:
    from .local import unobserved
    from .machine import Device, Machine, RealGPUs, physical, simulate

__all__ = ["BadProfile", "Device", "Machine", "RealGPUs", "physical", "simulate", "unobserved"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # All at once: what is used later must come from the same modules.
    for home in (import_module(".local", __name__), import_module(".machine", __name__)):
        globals().update({known: vars(home)[known] for known in __all__ if known in vars(home)})
    return globals()[name]
