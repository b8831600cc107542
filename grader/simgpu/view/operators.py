"""What the devices spent their time on: operators, copies and collectives, the costliest first."""

from __future__ import annotations

from typing import NamedTuple

from .record import NONE, Record, Total

COSTLIEST = 5


class Cost(NamedTuple):
    """All calls of one operator, or over one link, on all devices."""

    name: str
    calls: int
    seconds: float
    share: float  # of the seconds of all devices
    phases: str  # in which it ran, the costliest first
    module: str = ""  # in which it took longest, where that was recorded


def costliest(record: Record, number: int = COSTLIEST) -> list[Cost]:
    """The operators that took the devices longest in a typical step."""
    by_name: dict[str, dict[str, Total]] = {}
    for (_, name, phase), total in record.typical.totals.items():
        phases = by_name.setdefault(name, {})
        phases[phase] = phases.get(phase, NONE).plus(total)
    everything = sum(total.seconds for phases in by_name.values() for total in phases.values())
    modules = _modules(record)
    found = []
    for name, phases in by_name.items():
        took = sum(total.seconds for total in phases.values())
        if took:
            moves = " > " in name
            order = [] if moves else sorted(phases, key=lambda phase: (-phases[phase].seconds, phase))
            calls = round(sum(total.calls for total in phases.values()))
            share = took / everything
            found.append(
                Cost(
                    f"copy {name}" if moves else name,
                    calls,
                    took,
                    share,
                    ", ".join(order),
                    modules.get(name, ""),
                )
            )
    return sorted(found, key=lambda cost: (-cost.seconds, cost.name))[:number]


def _modules(record: Record) -> dict[str, str]:
    """For each operator the module in which it took the devices longest."""
    seconds: dict[str, dict[str, float]] = {}
    for span in record.spans:
        if span.kind == "compute" and span.module:
            within = seconds.setdefault(span.name, {})
            within[span.module] = within.get(span.module, 0.0) + span.end - span.start
    return {name: max(within, key=lambda module: within[module]) for name, within in seconds.items()}
