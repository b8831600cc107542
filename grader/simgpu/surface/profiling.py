"""torch.profiler beside simulated GPUs: it sees what the CPU does; device time is in our own timeline."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

import torch
import torch.autograd.profiler
import torch.profiler
import torch.profiler.profiler

from ..errors import NotSimulated
from ..patches import Patches
from .notices import Notices

if TYPE_CHECKING:
    from ..machine import Machine

_CPU = torch.profiler.ProfilerActivity.CPU
_CUDA = torch.profiler.ProfilerActivity.CUDA


def install(machine: Machine, patches: Patches) -> None:
    """Leave CUDA's part out of torch's profilers, and say so."""
    notices = Notices()

    def tell() -> None:
        notices.warn(
            f"torch.profiler records no CUDA activity of simulated GPUs ({machine.profile.name}): the times "
            "it shows are those of this computer's CPU. `simgpu run --trace` writes the simulated timeline.",
            stacklevel=4,
        )

    kineto = torch.profiler.profiler._KinetoProfile
    legacy = torch.autograd.profiler.profile
    patches.set(kineto, "__init__", _without_cuda(kineto.__init__, tell))
    patches.set(legacy, "__init__", _on_the_cpu(legacy.__init__, tell))
    for home in (torch.profiler, torch.profiler.profiler):
        patches.set(home, "supported_activities", lambda: {_CPU})
    patches.set(torch.autograd.profiler.emit_nvtx, "__init__", _refuse_nvtx)


def _without_cuda(construct: Any, tell: Any) -> Any:
    @functools.wraps(construct)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        wanted = kwargs.get("activities")
        if wanted is not None:
            wanted = list(wanted)
            kept = [activity for activity in wanted if activity != _CUDA]
            if len(kept) < len(wanted):
                tell()
            kwargs["activities"] = kept or [_CPU]
        construct(self, *args, **kwargs)

    return init


def _on_the_cpu(construct: Any, tell: Any) -> Any:
    old = "use_cuda" in inspect.signature(construct).parameters

    @functools.wraps(construct)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        if (old and kwargs.pop("use_cuda", False)) or kwargs.get("use_device") == "cuda":
            kwargs["use_device"] = None
            tell()
        construct(self, *args, **kwargs)

    return init


def _refuse_nvtx(self: Any, *args: Any, **kwargs: Any) -> None:
    raise NotSimulated("torch.autograd.profiler.emit_nvtx")
