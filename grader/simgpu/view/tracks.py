"""The tracks of a timeline: to which part of the machine each belongs, and in which order they are shown."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from ..timeline import Span

HOST, LINKS = -1, -2
_DEVICE = re.compile(r"cuda:(\d+)")


class Place(NamedTuple):
    """Where a track belongs; sorts as it is shown: the host, the devices by number, the links."""

    rank: int
    device: int  # HOST, LINKS or the index of a device
    numbers: tuple[int, ...]
    kind: int  # among the tracks of one owner
    track: str


def place(track: str) -> Place:
    """Find where a track belongs."""
    numbers = tuple(map(int, re.findall(r"\d+", track)))
    if " > " in track:
        return Place(2, LINKS, numbers, 0, track)
    if track.startswith("host"):
        return Place(0, HOST, numbers, 2 if "backward" in track else len(numbers), track)
    device = _DEVICE.match(track)
    index = int(device[1]) if device else 0
    return Place(1, index, (index,), 1 if track.endswith("collectives") else 0, track)


def ordered(spans: Iterable[Span]) -> list[Place]:
    """The tracks that the spans are on, as they are shown."""
    places = (place(track) for track in {span.track for span in spans})
    return sorted(places, key=lambda each: (each.rank, each.device, each.kind, each.numbers, each.track))


def owner(device: int) -> str:
    """What the tracks of one owner are shown under."""
    return {HOST: "host", LINKS: "links"}.get(device, f"cuda:{device}")
