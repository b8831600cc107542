"""torch.accelerator stands on functions of torch._C; these are theirs for the simulated GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..local import local
from ..patches import Patches
from . import memory, streams

if TYPE_CHECKING:
    from ..machine import Machine


def install(machine: Machine, patches: Patches) -> None:
    """Answer for torch.accelerator."""
    accelerator = torch.device("cuda")

    def exchange(index: int) -> int:
        before = local.device
        local.device = machine.check(index)
        return before

    def maybe_exchange(index: int) -> int:
        return exchange(index) if index >= 0 else local.device

    def set_device(index: int) -> None:
        maybe_exchange(index)

    figures = memory.Figures(machine)
    functions: dict[str, Any] = {
        "getAccelerator": lambda: accelerator,
        "getDeviceIndex": lambda: local.device,
        "setDeviceIndex": set_device,
        "exchangeDevice": exchange,
        "maybeExchangeDevice": maybe_exchange,
        "getStream": lambda index: streams.current(machine, index),
        "setStream": lambda stream: streams.select(machine, stream),
        "synchronizeDevice": lambda index: machine.clocks.wait(machine.check(index)) and None,
        "isAllocatorInitialized": lambda: True,
        "emptyCache": figures.empty_cache,
        "emptyHostCache": lambda: None,
        "getDeviceStats": figures.nested,
        "resetPeakStats": figures.reset_peak,
        "resetAccumulatedStats": lambda index: None,
        "getMemoryInfo": figures.mem_get_info,
    }
    for name, function in functions.items():
        patches.set(torch._C, f"_accelerator_{name}", function)
    patches.set(torch, "Stream", torch.cuda.Stream)
    patches.set(torch, "Event", torch.cuda.Event)
