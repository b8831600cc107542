"""torch.accelerator stands on functions of torch._C; these are theirs for the simulated GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..local import local
from ..patches import Patches
from . import memory, streams
from .unsupported import refusal

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
        "resetAccumulatedStats": figures.reset_accumulated,
        "getMemoryInfo": figures.mem_get_info,
        "getDeviceCapability": lambda index: _capability(machine, index),
    }
    for name, function in functions.items():
        patches.set(torch._C, f"_accelerator_{name}", function)
    patches.set(torch._C, "_get_accelerator", lambda check=None: accelerator)
    if hasattr(torch.accelerator, "Graph"):
        patches.set(torch.accelerator, "Graph", refusal("torch.accelerator.Graph", torch.accelerator.Graph))
    patches.set(torch, "Stream", torch.cuda.Stream)
    patches.set(torch, "Event", torch.cuda.Event)


_ALL_TYPES = (
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool, torch.float16, torch.bfloat16,
    torch.float32, torch.float64, torch.complex64, torch.complex128,
)  # fmt: skip


def _capability(machine: Machine, index: int) -> dict[str, Any]:
    machine.check(index)
    return {"supported_dtypes": set(_ALL_TYPES)}
