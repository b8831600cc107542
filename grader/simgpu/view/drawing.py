"""Geometry of the page's graphics, in units that a template turns into SVG; each with a sentence that says
the same to those who do not see it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..memory import Mark
from ..timeline import Span
from . import split, tracks
from .words import percent, seconds, size

WIDTH = 1000
HEIGHT = 100
_THINNEST = 1.5  # units of the narrowest box, so that it is seen
_PALEST = 0.2
_APART = 1.0  # spans of one kind with less between them are drawn as one: nobody could tell them apart
_VERBS = {
    "compute": "computes",
    "copy": "copies",
    "collective": "communicates",
    "replicate": "replicates",
    "host": "launches or works",
    "wait": "waits",
}


@dataclass(frozen=True)
class Box:
    """A stretch of a track, in units."""

    kind: str
    x: float
    width: float
    title: str
    density: float  # share of the stretch in which it does something; drawn paler where that is little


@dataclass(frozen=True)
class Lane:
    """One track of the timeline."""

    name: str
    owner: str
    boxes: list[Box]
    summary: str
    busy: str  # time in which it is not idle or waiting
    share: str


@dataclass(frozen=True)
class Part:
    """One term of the stacked bar."""

    name: str
    x: float
    width: float
    time: str
    share: str
    meaning: str


@dataclass(frozen=True)
class MemoryChart:
    """Bytes allocated on one device over a stretch of time; `path` is an SVG path."""

    path: str
    steps: list[float]  # where steps end
    scale: str  # what the full height stands for
    summary: str


def bar(terms: dict[str, float]) -> list[Part]:
    """The terms of a step, side by side; those that take no time are left out."""
    whole = sum(terms.values())
    parts, x = [], 0.0
    for name, meaning in split.TERMS.items():
        width = WIDTH * terms[name] / whole if whole else 0.0
        if width:
            shares = terms[name] / whole
            parts.append(
                Part(name, round(x, 2), round(width, 2), seconds(terms[name]), percent(shares), meaning)
            )
        x += width
    return parts


def lanes(spans: Sequence[Span], length: float) -> list[Lane]:
    """The tracks of a step that begins at 0 and lasts `length` seconds."""
    return [
        _lane(where, [s for s in spans if s.track == where.track], length) for where in tracks.ordered(spans)
    ]


def _kind(span: Span) -> str:
    """How a span is drawn: a broadcast keeps the host, but is a copy."""
    if span.kind != "host":
        return span.kind
    return {"replication": "replicate", "copies": "copy"}.get(split.term(span), "host")


def _lane(where: tracks.Place, spans: list[Span], length: float) -> Lane:
    boxes, done = [], []
    for kind, verb in _VERBS.items():
        mine = [span for span in spans if _kind(span) == kind]
        boxes += _boxes(kind, mine, length)
        if mine:
            done.append(f"{verb} for {seconds(split.covered(mine))}")
    busy = split.covered(span for span in spans if span.kind != "wait")
    name = where.track.replace(" > ", " to ")
    summary = f"{name} {', '.join(done)} of {seconds(length)}"
    return Lane(name, tracks.owner(where.device), boxes, summary, seconds(busy), percent(busy / length))


def _boxes(kind: str, spans: list[Span], length: float) -> list[Box]:
    groups: list[list[Span]] = []
    reached = 0.0
    for span in sorted(spans, key=lambda span: (span.start, span.end)):
        if groups and (span.start - reached) * WIDTH / length < _APART:
            groups[-1].append(span)
        else:
            groups.append([span])
        reached = max(reached, span.end)
    return [_box(kind, group, length) for group in groups]


def _box(kind: str, group: list[Span], length: float) -> Box:
    start, end = group[0].start, max(span.end for span in group)
    names = list(dict.fromkeys(_said(span) for span in group))
    title = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    x = min(round(start * WIDTH / length, 2), WIDTH - _THINNEST)
    width = max(round((end - start) * WIDTH / length, 2), _THINNEST)
    density = split.covered(group) / (width * length / WIDTH)
    return Box(kind, x, width, f"{title}: {seconds(end - start)}", min(1.0, max(_PALEST, round(density, 2))))


def _said(span: Span) -> str:
    return f"{span.name} in {span.module}" if span.module else span.name


def ticks(length: float, parts: int = 4) -> list[str]:
    """The labels of an axis."""
    return [seconds(length * part / parts) for part in range(parts + 1)]


def memory(name: str, marks: Sequence[Mark], window: split.Window, moments: Iterable[float]) -> MemoryChart:
    """An area under a step function; values too close to tell apart are drawn as the highest of them."""
    columns: dict[int, tuple[int, int]] = {}  # position -> (highest, last)
    top, reached, held = 0, window.start, 0
    for mark in marks:
        reached = max(reached, mark.seconds)
        if reached > window.end:
            break
        held = mark.allocated
        column = round((reached - window.start) * WIDTH / window.length)
        columns[column] = max(held, columns.get(column, (0, 0))[0]), held
        top = max(top, held)
    path = [f"M0 {HEIGHT}"]
    for column, (highest, last) in columns.items():
        path.append(f"H{column}V{_height(highest, top)}")
        if last != highest:
            path.append(f"H{min(column + 1, WIDTH)}V{_height(last, top)}")
    ends = [
        round((moment - window.start) * WIDTH / window.length, 2)
        for moment in moments
        if window.start < moment <= window.end
    ]
    summary = f"{name}: memory rises to {size(top)} and ends at {size(held)}"
    return MemoryChart("".join([*path, f"H{WIDTH}V{HEIGHT}Z"]), ends, size(top), summary)


def _height(held: int, top: int) -> str:
    return f"{HEIGHT * (1 - 0.94 * held / top) if top else HEIGHT:.4g}"
