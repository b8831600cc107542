"""Geometry of the timeline: what each track of one training step was busy with, and GPU memory.

Times become positions on an axis of `WIDTH` units that all charts of a page share; a template draws
them. Each chart carries a sentence that says the same to those who do not see it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from grader.evidence import DeviceUse, Span
from grader.grade import Usage
from grader.report.words import seconds, size

WIDTH = 1000
HEIGHT = 100
_THINNEST = 2.0  # units of the narrowest box, so that it is seen
_APART = 1.0  # spans of one kind with less between them are drawn as one: nobody could tell them apart
_VERBS = {"compute": "computes", "copy": "copies", "host": "works", "wait": "waits"}


@dataclass(frozen=True)
class Box:
    """A stretch of a track, in units."""

    kind: str
    x: float
    width: float
    title: str


@dataclass(frozen=True)
class Track:
    """One row of a timeline."""

    name: str
    boxes: list[Box]
    summary: str  # what it does and for how long
    busy: str  # time it is not idle or waiting
    share: str  # the same as a share of the step


@dataclass(frozen=True)
class Memory:
    """The memory of one GPU over the step; `path` is an SVG path, empty where nothing was recorded."""

    device: str
    path: str
    peak: str  # of the whole run
    capacity: str
    scale: str  # what the full height of the drawing stands for
    summary: str


@dataclass(frozen=True)
class Timeline:
    """One training step of one run."""

    duration: str
    tracks: list[Track]
    memories: list[Memory]


def timelines(*usages: Usage) -> list[Timeline]:
    """Draw several runs on one axis each for time and for memory, so that lengths and heights compare."""
    longest = max((span.end for usage in usages for span in usage.spans), default=0.0)
    end = longest or max(
        (at for usage in usages for use in usage.devices for at, _ in use.memory), default=0.0
    )
    top = max((count for usage in usages for use in usage.devices for _, count in use.memory), default=0)
    return [_timeline(usage, end, top) for usage in usages]


def ticks(*usages: Usage) -> list[str]:
    """Label start, middle and end of the axis that `timelines` uses for the same runs."""
    end = max((span.end for usage in usages for span in usage.spans), default=0.0)
    return [seconds(end * part) for part in (0, 0.5, 1)]


def _timeline(usage: Usage, end: float, top: int) -> Timeline:
    duration = max((span.end for span in usage.spans), default=0.0)
    names = sorted({span.track for span in usage.spans} | {use.device for use in usage.devices}, key=_order)
    tracks = [_track(name, [s for s in usage.spans if s.track == name], end, duration) for name in names]
    memories = [_memory(use, end, top) for use in sorted(usage.devices, key=lambda use: _order(use.device))]
    return Timeline(seconds(duration), tracks if usage.spans else [], memories)


def _order(track: str) -> tuple[int, str, list[int], str]:
    """The host and its threads first, then GPUs by number, then the links between them."""
    numbers = [int(number) for number in re.findall(r"\d+", track)]
    kind = 0 if track.startswith("host") else 2 if ">" in track else 1
    return kind, track if kind == 0 else "", numbers, track


def _track(name: str, spans: list[Span], end: float, duration: float) -> Track:
    spans = sorted(spans, key=lambda span: (span.start, span.end))
    boxes = [box for kind in _VERBS for box in _boxes(kind, [s for s in spans if s.kind == kind], end)]
    parts = []
    for kind, verb in _VERBS.items():
        time = _covered(span for span in spans if span.kind == kind)
        if time:
            parts.append(f"{verb} for {seconds(time)}")
    name = name.replace(" -> ", " > ").replace(" > ", " to ")
    summary = f"{name} {', '.join(parts) or 'is idle'} of {seconds(duration)}"
    busy = _covered(span for span in spans if span.kind != "wait")
    return Track(name, boxes, summary, seconds(busy), f"{busy / duration:.0%}" if duration else "-")


def _boxes(kind: str, spans: list[Span], end: float) -> list[Box]:
    """Draw spans of one kind, in order of their start, those too close to tell apart as one."""
    groups: list[list[Span]] = []
    reached = 0.0
    for span in spans:
        if groups and (span.start - reached) * WIDTH / end < _APART:
            groups[-1].append(span)
        else:
            groups.append([span])
            reached = span.end
        reached = max(reached, span.end)
    return [_box(kind, group, end) for group in groups]


def _box(kind: str, group: list[Span], end: float) -> Box:
    start, stop = group[0].start, max(span.end for span in group)
    names = list(dict.fromkeys(span.name for span in group))
    title = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    x = round(start * WIDTH / end, 2)
    return Box(
        kind, x, max(round((stop - start) * WIDTH / end, 2), _THINNEST), f"{title}: {seconds(stop - start)}"
    )


def _covered(spans: Iterable[Span]) -> float:
    """Seconds in which at least one of the spans runs; they come in order of their start."""
    total, reached = 0.0, float("-inf")
    for span in spans:
        total += max(0.0, span.end - max(span.start, reached))
        reached = max(reached, span.end)
    return total


def _memory(use: DeviceUse, end: float, top: int) -> Memory:
    peak, capacity = size(use.peak_bytes), size(use.capacity_bytes)
    summary = f"{use.device} holds {peak} at most, of {capacity}"
    return Memory(use.device, _steps(use.memory, end, top), peak, capacity, size(top), summary)


def _steps(memory: list[tuple[float, int]], end: float, top: int) -> str:
    """An area under a step function; values between two pixels are drawn as the highest of them."""
    if not memory or not end or not top:
        return ""
    columns: dict[int, tuple[int, int]] = {}  # position -> (highest, last)
    for at, count in memory:
        column = min(WIDTH, max(0, round(at * WIDTH / end)))
        columns[column] = (max(count, columns.get(column, (0, 0))[0]), count)
    path = [f"M0 {HEIGHT}"]
    for column, (highest, last) in sorted(columns.items()):
        path.append(f"H{column}V{_height(highest, top)}")
        if last != highest:
            path.append(f"H{min(column + 1, WIDTH)}V{_height(last, top)}")
    return "".join([*path, f"H{WIDTH}V{HEIGHT}Z"])


def _height(count: int, top: int) -> str:
    return f"{HEIGHT * (1 - count / top):.4g}"
