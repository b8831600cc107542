"""What each simulated device, link and host thread did, and when: spans of virtual time."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from .local import local

KINDS = ("compute", "copy", "collective", "host", "wait")
PICOSECONDS = 1_000_000_000_000  # in a second


class Span(NamedTuple):
    """One thing that one track did; `start` and `end` in virtual seconds."""

    # "host", "host worker", "cuda:0", "cuda:0 stream 3", "cuda:0 collectives", "cpu > cuda:0", ...
    track: str
    name: str
    kind: str  # one of KINDS
    start: float
    end: float
    module: str = ""  # qualified name of the nn.Module in whose forward, or backward, it happened
    phase: str = ""
    nbytes: int = 0  # that moved
    flow: int = 0  # spans with the same number, other than 0, show the same copy or collective


class Label(str):
    """The name of an operator with what else is known of the call."""

    module: str
    phase: str


def module_running() -> str:
    """Qualified name of the module in whose forward, or backward, the calling thread is, if anyone tells."""
    if not local.module:
        node: Any = torch._C._current_autograd_node()
        if node is not None:
            return node.metadata.get("module", "")
    return local.module


class Timeline:
    """Records spans between `start()` and `stop()`; outside of that, `record` only tests a flag.

    After `limit` spans no more are recorded, and `full` says so.
    """

    def __init__(self) -> None:
        self.on = False
        self.full = False
        self.limit: int | None = None
        self._spans: list[tuple[str, str, str, int, int, int, int]] = []
        self._flows = 0

    def start(self, limit: int | None = None) -> None:
        """Begin a fresh recording; an earlier one that was not stopped is dropped."""
        self._spans = []
        self._flows = 0
        self.limit, self.full = limit, False
        self.on = True

    def stop(self) -> list[Span]:
        """End the recording and return its spans, ordered by start, then track (empty if none was begun)."""
        self.on = False
        spans, self._spans = self._spans, []
        spans.sort(key=lambda span: (span[3], span[0], span[4]))
        return [_span(*span) for span in spans]

    def label(self, name: str, backward: bool) -> str:
        """The name, with the module and the phase of the calling thread."""
        label = Label(name)
        label.module = module_running()
        label.phase = "backward" if backward else local.phase
        return label

    def new_flow(self) -> int:
        """A number that the spans of one copy or collective share."""
        self._flows += 1
        return self._flows

    def record(
        self, track: str, name: str, kind: str, start: int, end: int, nbytes: int = 0, flow: int = 0
    ) -> None:
        """Add a span, times in picoseconds; spans without length are left out."""
        if self.on and end > start:
            if self.limit is not None and len(self._spans) >= self.limit:
                self.on, self.full = False, True
                return
            self._spans.append((track, name, kind, start, end, nbytes, flow))


def _span(track: str, name: str, kind: str, start: int, end: int, nbytes: int, flow: int) -> Span:
    module, phase = (name.module, name.phase) if isinstance(name, Label) else ("", "")
    times = start / PICOSECONDS, end / PICOSECONDS
    return Span(track, str(name), kind, *times, module, phase, nbytes, flow)


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
