"""A recorded run as Chrome trace JSON, which ui.perfetto.dev and chrome://tracing open.

Format: Google's "Trace Event Format". Times are microseconds in multiples of 1/64: such figures, and their
sums and products with 1,000, are exact in binary, so that a viewer that rounds to nanoseconds never sees two
neighbours overlap. The same record gives the same bytes.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..memory import Mark
from ..timeline import Span
from . import tracks
from .record import Record
from .words import seconds

_GRID = 64  # parts of a microsecond
_HUNDRED = 100  # tracks of one owner that numbers are set aside for

Event = dict[str, Any]


def write(record: Record, path: Path) -> None:
    """Write the trace of a record. Raises OSError."""
    encode = json.JSONEncoder(ensure_ascii=False).encode
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write('{"displayTimeUnit": "ms",\n"otherData": ')
        file.write(encode(_facts(record)))
        file.write(',\n"traceEvents": [\n')
        for number, event in enumerate(events(record)):
            file.write(",\n" if number else "")
            file.write(encode(event))
        file.write("\n]}\n")


def _facts(record: Record) -> dict[str, Any]:
    low, value, high = record.seconds
    facts = {
        "simulated": True,
        "profile": record.profile.name,
        "gpus": record.spec,
        "torch": record.torch,
        "seconds": {"low": low, "value": value, "high": high},
        "note": f"All times are virtual: {record.origin}. No GPU was measured.",
    }
    if record.full:
        facts["recorded"] = (
            f"the first {len(record.spans):,} spans, until {seconds(record.recorded_until)}; "
            "what came later is only in the totals"
        )
    return facts


def events(record: Record) -> Iterator[Event]:
    """The events of a record: names first, then everything in order of time."""
    threads: dict[str, tuple[int, int]] = {}
    owners: list[int] = []
    for where in tracks.ordered(record.spans):
        if where.device not in owners:
            owners.append(where.device)
        process = _process(where.device, len(record.devices))
        number = sum(1 for pid, _ in threads.values() if pid == process)
        threads[where.track] = process, _HUNDRED * process + number
    owners += [each.index for each in record.devices if each.marks and each.index not in owners]
    yield from _names(record, owners, threads)
    timed = [_slice(span, threads) for span in record.spans]
    for track in threads:
        if tracks.place(track).device == tracks.HOST:
            timed += _modules(record, track, threads)
    timed += _flows(record.spans, threads)
    for device in record.devices:
        timed += _memory(device.marks, _process(device.index, len(record.devices)))
    yield from sorted(timed, key=_order)


_AFTER = {"C": 1, "s": 2, "f": 3}


def _order(event: Event) -> tuple[float, int, float, int]:
    """In order of time; what encloses before what it encloses, an arrow after the slices at its ends."""
    depth = event["name"].count(".") if event["cat"] == "module" else _HUNDRED
    return event["ts"], _AFTER.get(event["ph"], 0), -event.get("dur", 0), depth


def _process(device: int, count: int) -> int:
    if device == tracks.HOST:
        return 1
    return 2 + (count if device == tracks.LINKS else device)


def _names(record: Record, owners: list[int], threads: dict[str, tuple[int, int]]) -> Iterator[Event]:
    for device in owners:
        process = _process(device, len(record.devices))
        name = tracks.owner(device)
        if device >= 0:
            name += f" {record.profile.gpu.name}"
        yield _metadata("process_name", process, 0, name=f"{name} (simulated)")
        yield _metadata("process_sort_index", process, 0, sort_index=process)
    for track, (process, thread) in threads.items():
        yield _metadata("thread_name", process, thread, name=track)
        yield _metadata("thread_sort_index", process, thread, sort_index=thread)


def _metadata(kind: str, process: int, thread: int, **args: Any) -> Event:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "ts": 0, "args": args}


def _slice(span: Span, threads: dict[str, tuple[int, int]]) -> Event:
    args: dict[str, Any] = {}
    if span.module:
        args["module"] = span.module
    if span.phase:
        args["phase"] = span.phase
    if span.nbytes:
        args["bytes"] = span.nbytes
        args["GB/s"] = round(span.nbytes / (span.end - span.start) / 1e9, 3)
    return _complete(span.name, span.kind, span.start, span.end, threads[span.track], args)


def _complete(
    name: str, category: str, start: float, end: float, where: tuple[int, int], args: dict[str, Any]
) -> Event:
    begin = _microseconds(start)
    return {
        "ph": "X", "name": name, "cat": category, "pid": where[0], "tid": where[1],
        "ts": begin, "dur": _microseconds(end) - begin, "args": args,
    }  # fmt: skip


def _microseconds(moment: float) -> float:
    return round(moment * 1e6 * _GRID) / _GRID


def _modules(record: Record, track: str, threads: dict[str, tuple[int, int]]) -> Iterator[Event]:
    """Slices around the operators of a host thread: one for each module, nested as the modules are."""
    open_: list[tuple[str, str, float]] = []  # name, phase, start
    reached = 0.0

    def close(keep: int) -> Iterator[Event]:
        while len(open_) > keep:
            name, phase, start = open_.pop()
            yield _complete(name, "module", start, reached, threads[track], {"phase": phase})

    # What has no phase, such as a wait or a replication, belongs to whatever goes on around it.
    for span in (span for span in record.spans if span.track == track and span.phase):
        path = _enclosing(span.module) if span.module else []
        same = 0
        while same < min(len(path), len(open_)) and open_[same][:2] == (path[same], span.phase):
            same += 1
        yield from close(same)
        open_ += [(name, span.phase, span.start) for name in path[same:]]
        reached = max(reached, span.end)
    yield from close(0)


def _enclosing(module: str) -> list[str]:
    """ "layer1.0.conv1" is inside "layer1.0", which is inside "layer1"."""
    parts = module.split(".")
    return [".".join(parts[:length]) for length in range(1, len(parts) + 1)]


def _flows(spans: list[Span], threads: dict[str, tuple[int, int]]) -> Iterator[Event]:
    """Arrows between the spans that show the same copy or collective."""
    together: dict[int, list[Span]] = {}
    for span in spans:
        if span.flow:
            together.setdefault(span.flow, []).append(span)
    kernels: dict[str, list[Span]] = {}
    for span in sorted((span for span in spans if span.kind == "compute"), key=lambda span: span.end):
        kernels.setdefault(_device(span.track), []).append(span)
    number = 0
    for flow in sorted(together):
        for origin, target in _arrows(together[flow]) or _after_kernel(together[flow], kernels):
            number += 1
            yield _arrow("s", number, origin, _microseconds(origin.start), threads)
            at = max(_microseconds(origin.start), _microseconds(target.start))
            yield {**_arrow("f", number, target, at, threads), "bp": "e"}


def _arrows(spans: list[Span]) -> list[tuple[Span, Span]]:
    """From the host to where the bytes leave, over the link, to where they arrive."""
    host = next((span for span in spans if span.track.startswith("host")), None)
    link = next((span for span in spans if " > " in span.track), None)
    devices = [span for span in spans if span is not host and span is not link]
    if link is None:
        return [(host, device) for device in devices if host is not None]
    source = link.track.partition(" > ")[0]
    leaving = [span for span in devices if _device(span.track) == source]
    arriving = [span for span in devices if _device(span.track) != source]
    chain = [*([host] if host else []), *leaving, link]
    return [*zip(chain, chain[1:], strict=False), *((link, device) for device in arriving)]


def _after_kernel(spans: list[Span], kernels: dict[str, list[Span]]) -> list[tuple[Span, Span]]:
    """From the kernel that a collective waited for last: the one that made what it sends."""
    collective = spans[0]
    before = kernels.get(_device(collective.track), [])
    until = bisect_right(before, collective.start, key=lambda span: span.end)
    return [(before[until - 1], collective)] if until else []


def _device(track: str) -> str:
    return track.split(" ", 1)[0]


def _arrow(phase: str, number: int, span: Span, at: float, threads: dict[str, tuple[int, int]]) -> Event:
    process, thread = threads[span.track]
    return {
        "ph": phase, "id": number, "name": span.name, "cat": "flow",
        "pid": process, "tid": thread, "ts": at,
    }  # fmt: skip


def _memory(marks: list[Mark], process: int) -> Iterator[Event]:
    """A counter: the most at each instant, and what remains at the last one."""
    highest: dict[float, int] = {}
    now = 0.0
    for mark in marks:
        now = max(now, _microseconds(mark.seconds))  # threads may be ahead of each other
        highest[now] = max(highest.get(now, 0), mark.allocated)
    if marks:
        highest[now] = marks[-1].allocated
    for at, allocated in highest.items():
        yield {
            "ph": "C", "name": "memory", "cat": "memory",
            "pid": process, "tid": 0, "ts": at, "args": {"bytes": allocated},
        }  # fmt: skip
