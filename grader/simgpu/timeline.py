"""What each simulated device, link and host thread did, and when: spans of virtual time."""

from __future__ import annotations

from typing import NamedTuple

KINDS = ("compute", "copy", "host", "wait")
PICOSECONDS = 1_000_000_000_000  # in a second


class Span(NamedTuple):
    """One thing that one track did; `start` and `end` in virtual seconds."""

    track: str  # "host", "cuda:0", "cuda:1", "cpu>cuda:0", ...
    name: str
    kind: str  # one of KINDS
    start: float
    end: float


class Timeline:
    """Records spans between `start()` and `stop()`; outside of that, `record` only tests a flag."""

    def __init__(self) -> None:
        self.on = False
        self._spans: list[tuple[str, str, str, int, int]] = []

    def start(self) -> None:
        """Begin a fresh recording; an earlier one that was not stopped is dropped."""
        self._spans = []
        self.on = True

    def stop(self) -> list[Span]:
        """End the recording and return its spans, ordered by start, then track (empty if none was begun)."""
        self.on = False
        spans, self._spans = self._spans, []
        spans.sort(key=lambda span: (span[3], span[0], span[4]))
        return [Span(t, n, k, a / PICOSECONDS, b / PICOSECONDS) for t, n, k, a, b in spans]

    def record(self, track: str, name: str, kind: str, start: int, end: int) -> None:
        """Add a span, times in picoseconds; spans without length are left out."""
        if self.on and end > start:
            self._spans.append((track, name, kind, start, end))


def gaps(spans: list[Span], track: str, start: float, end: float) -> list[tuple[float, float]]:
    """Return the intervals of [start, end] (seconds) in which `track` did nothing, waiting included."""
    idle, reached = [], start
    busy_spans = (span for span in spans if span.track == track and span.kind != "wait")
    for span in sorted(busy_spans, key=lambda span: span.start):
        if span.start > reached:
            idle.append((reached, min(span.start, end)))
        reached = max(reached, span.end)
        if reached >= end:
            return idle
    return [*idle, (reached, end)] if reached < end else idle


def busy(spans: list[Span], track: str) -> float:
    """Return the seconds in which `track` computed or copied; overlapping spans count once."""
    mine = [span for span in spans if span.track == track and span.kind != "wait"]
    if not mine:
        return 0.0
    start, end = min(span.start for span in mine), max(span.end for span in mine)
    return end - start - sum(b - a for a, b in gaps(mine, track, start, end))
