"""Threads of a simulated script: what each is charged with reaches the main clocks at its join.

There may be several variants of the clocks, one for each end of the host's figures. What depends on
the time of a variant, such as a moment to wait for, is handed on as one figure for each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .times import End, Times

Moment = tuple[int, ...]  # picoseconds, one for each variant of the clocks


@dataclass
class Worker:
    """A thread forked from another: what it did is charged when it is joined."""

    times: list[Times]  # what this thread would see were it alone; answers now()
    start: list[int]
    log: list[tuple] = field(default_factory=list)
    joined: bool = False
    nested: bool = False  # whether a worker forked it


def apply(variants: list[Times], what: Callable[..., None], args: tuple) -> None:
    """Charge every variant with the same."""
    for number, times in enumerate(variants):
        apply_one(times, number, what, args)


def apply_one(times: Times, number: int, what: Callable[..., None], args: tuple) -> None:
    """Charge one variant."""
    if what in _OF_A_VARIANT:
        what(times, number, *args)
    else:
        what(times, *args)


def collective(times: Times, number: int, device: int, moments: Moment, *rest: Any) -> None:
    """`Times.collective` from a moment of this variant on."""
    times.collective(device, moments[number], *rest)


def order(times: Times, number: int, end: End, moments: Moment) -> None:
    """`Times.order` at a moment of this variant."""
    times.order(end, moments[number])


def wait_until(times: Times, number: int, moments: Moment) -> None:
    """`Times.wait_until` a moment of this variant."""
    times.wait_until(moments[number])


def replay(times: Times, number: int, worker: Worker) -> None:
    """Charge what a worker did, from the moment at which it was forked; the thread that joins it waits."""
    resumed = _replayed(times, number, worker)
    times.host = max(resumed, times.host)


def catch_up(times: Times, number: int, worker: Worker) -> None:
    """Charge what a worker has done so far, while it goes on; nobody waits."""
    resumed = _replayed(times, number, worker)
    worker.start[number], times.host = times.host, resumed


def _replayed(times: Times, number: int, worker: Worker) -> int:
    """Leave the host where the worker ended, and return where it was.

    Of what the worker spent only that share counts by which its end is later than the thread that joins it:
    workers run side by side.
    """
    times.after_backward()
    resumed, host_track, before = times.host, times.host_track, vars(times.spent).copy()
    times.host, times.host_track = worker.start[number], worker.times[number].host_track
    for what, args in worker.log:
        apply_one(times, number, what, args)
    times.after_backward()
    later, lasted = max(0, times.host - resumed), times.host - worker.start[number]
    for what, spent in before.items():
        share = (getattr(times.spent, what) - spent) * later // lasted if lasted else 0
        setattr(times.spent, what, spent + share)
    times.host_track = host_track
    return resumed


_OF_A_VARIANT = {collective, order, wait_until, replay, catch_up}
