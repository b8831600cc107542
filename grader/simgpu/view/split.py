"""One typical step of a recorded run, and what each moment of it was spent on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ..timeline import PICOSECONDS, Span
from .record import FORWARD, Record

# A moment counts as the first of these that goes on anywhere in the machine.
TERMS = {
    "compute": "a GPU computes",
    "copies": "bytes move between GPUs, or GPUs and the host",
    "collectives": "the processes' GPUs exchange gradients, and none computes",
    "replication": "the host copies modules for the GPUs, which have nothing to do",
    "launch": "the host prepares and launches work, and the GPUs have nothing to do",
    "waiting": "nothing is done",
}
_MOVES = ("broadcast", "reduce")


class Window(NamedTuple):
    """A stretch of a run, in seconds."""

    start: float
    end: float
    step: int  # its number, from 1; 0 for the whole recording

    @property
    def length(self) -> float:
        """Its seconds."""
        return self.end - self.start

    @property
    def name(self) -> str:
        """What it is called on the page."""
        return f"step {self.step}" if self.step else "the whole recording"


def typical(record: Record) -> Window:
    """The step of median length, that before the first moment excepted; the whole recording without steps."""
    until = record.recorded_until
    moments = [moment for moment in record.moments if moment <= until]
    steps = [
        Window(start, end, number)
        for number, (start, end) in enumerate(
            zip(moments, moments[1:], strict=False), 1 if record.bound == FORWARD else 2
        )
        if end > start
    ]
    if not steps:
        return Window(0.0, until, 0)
    lengths = [round(window.length * PICOSECONDS) for window in steps]  # differences of floats are not exact
    middle = sorted(lengths)[(len(lengths) - 1) // 2]
    return steps[lengths.index(middle)]


def cut(spans: Iterable[Span], window: Window) -> list[Span]:
    """What happened within the window, its times counted from the window's start."""
    inside = (span for span in spans if span.end > window.start and span.start < window.end)
    return [
        span._replace(
            start=max(span.start, window.start) - window.start,
            end=min(span.end, window.end) - window.start,
        )
        for span in inside
    ]


def term(span: Span) -> str:
    """Which of TERMS a span is; waiting is what remains."""
    if span.kind == "collective":
        return "collectives"
    if span.kind == "copy" or span.name in _MOVES:
        return "copies"
    if span.kind == "host":
        return "replication" if span.name == "replicate" else "launch"
    return "waiting" if span.kind == "wait" else "compute"


def split(spans: Iterable[Span], length: float) -> dict[str, float]:
    """Seconds of each of TERMS in a step that begins at 0 and lasts `length`; together they are `length`."""
    changes: list[tuple[float, int, str]] = []
    for span in spans:
        kind = term(span)
        if kind != "waiting":
            changes += [(span.start, 1, kind), (span.end, -1, kind)]
    active = dict.fromkeys(TERMS, 0)
    seconds = dict.fromkeys(TERMS, 0.0)
    reached = 0.0
    for moment, change, kind in [*sorted(changes), (length, 0, "waiting")]:
        if moment > reached:
            seconds[_first(active)] += moment - reached
            reached = moment
        active[kind] += change
    return seconds


def _first(active: dict[str, int]) -> str:
    return next((kind for kind, running in active.items() if running), "waiting")


def covered(spans: Iterable[Span]) -> float:
    """Seconds in which at least one of the spans runs."""
    total, reached = 0.0, 0.0
    for start, end in sorted((span.start, span.end) for span in spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total
