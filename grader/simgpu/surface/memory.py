"""Memory statistics of the simulated GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..memory import Meter, size_text

if TYPE_CHECKING:
    from ..machine import Machine


class Figures:
    """Answers for torch.cuda.memory. Bytes alive and their peak are exact, reserved ones an estimate."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def meter(self, device: Any = None) -> Meter:
        """The memory of the device that is meant."""
        return self.machine.devices[self.machine.index(device)].memory

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

    def nested(self, device: Any = None) -> dict[str, Any]:
        """The statistics as nested dictionaries."""
        meter = self.meter(device)
        return {
            "allocated_bytes": {"all": {"current": meter.allocated, "peak": meter.peak}},
            "reserved_bytes": {"all": {"current": meter.reserved, "peak": meter.peak_reserved}},
        }

    def stats(self, device: Any = None) -> dict[str, int]:
        """The statistics by dotted name."""
        return {
            f"{what}.{pool}.{figure}": value
            for what, pools in self.nested(device).items()
            for pool, figures in pools.items()
            for figure, value in figures.items()
        }

    def summary(self, device: Any = None, abbreviated: bool = False) -> str:
        """The statistics as text."""
        meter = self.meter(device)
        figures = {
            "allocated": meter.allocated,
            "at the peak": meter.peak,
            "reserved": meter.reserved,
            "in total": meter.capacity,
        }
        text = ", ".join(f"{size_text(nbytes)} {what}" for what, nbytes in figures.items())
        return f"simulated {self.machine.profile.name}, cuda:{meter.device_index}: {text}"


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
        "mem_get_info": figures.mem_get_info,
        "memory_stats": figures.stats,
        "memory_stats_as_nested_dict": figures.nested,
        "memory_summary": figures.summary,
        "empty_cache": figures.empty_cache,
        "reset_peak_memory_stats": figures.reset_peak,
        "reset_max_memory_allocated": figures.reset_peak,
        "reset_max_memory_cached": figures.reset_peak,
        "reset_accumulated_memory_stats": lambda device=None: None,
    }
    inner = {f"memory.{name}": f for name, f in found.items() if hasattr(torch.cuda.memory, name)}
    return {**found, **inner}
