"""Memory statistics of the simulated GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..memory import Meter
from .unsupported import refusal

if TYPE_CHECKING:
    from ..machine import Machine

_POOLS = ("all", "small_pool", "large_pool")
_NEVER = ("num_alloc_retries", "num_sync_all_streams", "num_device_alloc", "num_device_free")


def _figures(current: int, peak: int, allocated: int) -> dict[str, dict[str, int]]:
    """One statistic. CUDA keeps small blocks in a pool of their own; here all are in the large one."""
    figures = {"current": current, "peak": peak, "allocated": allocated, "freed": allocated - current}
    return {pool: figures if pool != "small_pool" else dict.fromkeys(figures, 0) for pool in _POOLS}


class Figures:
    """Answers for torch.cuda.memory. Bytes alive and their peak are exact, reserved ones an estimate."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._fractions: dict[int, float] = {}
        self._summary = torch.cuda.memory.memory_summary

    def meter(self, device: Any = None) -> Meter:
        """The memory of the device that is meant."""
        chosen = self.machine.devices[self.machine.index(device)]
        chosen.release()
        return chosen.memory

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        """Bytes free and in total."""
        meter = self.meter(device)
        return meter.capacity - meter.reserved, meter.capacity

    def empty_cache(self) -> None:
        """Return what is reserved but unused."""
        for device in self.machine.devices:
            device.memory.empty_cache()

    def reset_peak(self, device: Any = None) -> None:
        """Forget the peak."""
        self.meter(device).reset_peak()

    def reset_accumulated(self, device: Any = None) -> None:
        """Count allocations and what was given back from here on."""
        self.meter(device).reset_accumulated()

    def set_fraction(self, fraction: float, device: Any = None) -> None:
        """Let this process use no more than a share of a device's memory."""
        if not isinstance(fraction, float):
            raise TypeError("Invalid type for fraction argument, must be `float`")
        if not 0 <= fraction <= 1:
            raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
        meter = self.meter(device)
        meter.limit = int(fraction * meter.capacity)
        self._fractions[meter.device_index] = fraction

    def get_fraction(self, device: Any = None) -> float:
        """The share of a device's memory that this process may use."""
        return self._fractions.get(self.meter(device).device_index, 1.0)

    def nested(self, device: Any = None) -> dict[str, Any]:
        """The statistics as nested dictionaries."""
        meter = self.meter(device)
        blocks = meter.allocations - meter.freed
        active = meter.allocated + meter.held
        unused = meter.reserved - active
        nbytes = _figures(meter.allocated, meter.peak, meter.allocated_bytes)
        reserved = _figures(meter.reserved, meter.peak_reserved, meter.peak_reserved)
        segments = _figures(int(meter.reserved > 0), int(meter.peak_reserved > 0), int(meter.reserved > 0))
        return {
            "allocation": _figures(blocks, blocks, meter.allocations),
            "segment": segments,
            "active": _figures(blocks, blocks, meter.allocations),
            "inactive_split": _figures(int(unused > 0), int(unused > 0), int(unused > 0)),
            "allocated_bytes": nbytes,
            "reserved_bytes": reserved,
            "active_bytes": _figures(active, max(meter.peak, active), meter.allocated_bytes + meter.held),
            "inactive_split_bytes": _figures(unused, unused, unused),
            "requested_bytes": nbytes,
            "oversize_allocations": dict.fromkeys(("current", "peak", "allocated", "freed"), 0),
            "oversize_segments": dict.fromkeys(("current", "peak", "allocated", "freed"), 0),
            **dict.fromkeys(_NEVER, 0),
            "num_ooms": meter.out_of_memory,
            "max_split_size": -1,
        }

    def summary(self, device: Any = None, abbreviated: bool = False) -> str:
        """The statistics as torch's table."""
        index = self.meter(device).device_index
        return f"simulated {self.machine.profile.name}\n{self._summary(index, abbreviated)}"


def functions(machine: Machine) -> dict[str, Any]:
    """The names under torch.cuda, and torch.cuda.memory, that this module answers."""
    figures = Figures(machine)
    found: dict[str, Any] = {
        "memory_allocated": lambda device=None: figures.meter(device).allocated,
        "max_memory_allocated": lambda device=None: figures.meter(device).peak,
        "memory_reserved": lambda device=None: figures.meter(device).reserved,
        "max_memory_reserved": lambda device=None: figures.meter(device).peak_reserved,
        "memory_cached": lambda device=None: figures.meter(device).reserved,
        "max_memory_cached": lambda device=None: figures.meter(device).peak_reserved,
        "device_memory_used": lambda device=None: figures.meter(device).reserved,
        "mem_get_info": figures.mem_get_info,
        "memory_stats_as_nested_dict": figures.nested,
        "memory_summary": figures.summary,
        "empty_cache": figures.empty_cache,
        "reset_peak_memory_stats": figures.reset_peak,
        "reset_max_memory_allocated": figures.reset_peak,
        "reset_max_memory_cached": figures.reset_peak,
        "reset_accumulated_memory_stats": figures.reset_accumulated,
        "set_per_process_memory_fraction": figures.set_fraction,
        "get_per_process_memory_fraction": figures.get_fraction,
        "get_allocator_backend": lambda: "native",
    }
    inner = {f"memory.{name}": f for name, f in found.items() if hasattr(torch.cuda.memory, name)}
    # Not public, but what everyone who looks for a leak calls.
    recorders = ("_record_memory_history", "_snapshot", "_dump_snapshot", "_save_memory_usage")
    hidden = {
        f"memory.{name}": refusal(f"torch.cuda.memory.{name}", getattr(torch.cuda.memory, name))
        for name in recorders
        if hasattr(torch.cuda.memory, name)
    }
    return {**found, **inner, **hidden}
