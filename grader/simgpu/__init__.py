"""Simulated GPUs: an unmodified PyTorch script sees them as `cuda:0`, `cuda:1`, on any computer.

    with simgpu.simulate("2xT4") as machine:
        train()
        print(machine.synchronize(), "simulated seconds")

Seconds are virtual and follow the named profile; values are those of the CPU. Nothing here imports the rest
of the grader.

Everything is imported on first use, so that importing this costs nothing; the profiles can be read without
torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .local import unobserved
    from .machine import Device, Machine, RealGPUs, physical, simulate
    from .profiles import BadProfile

__all__ = ["BadProfile", "Device", "Machine", "RealGPUs", "physical", "simulate", "unobserved"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    homes = ["profiles"]
    if name != "BadProfile":
        import_module("torch")  # which, in a child of a simulated process, installs the machine
        homes += ["local", "machine"]
    for home in homes:  # all at once: what is used later must come from the same modules
        found = vars(import_module(f".{home}", __name__))
        globals().update({known: found[known] for known in __all__ if known in found})
    return globals()[name]
