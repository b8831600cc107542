"""Streams and events, ordered on the virtual clock.

What is put on one stream is done in order; two streams of a device share what computes there, one kernel at a
time, while their copies go on beside it. As with torch's streams on CUDA, none waits for the default one
unless it is told to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..clock import Moment
from ..errors import NotSimulated, invalid_handle
from ..local import local
from ..timeline import PICOSECONDS

if TYPE_CHECKING:
    from ..machine import Machine


_POOL = 32  # kStreamsPerPool of c10/cuda/CUDAStream.cpp: so many of each priority on a device, given in turn


class Stream:
    """A stream of one simulated GPU; stands in for torch.Stream and torch.cuda.Stream."""

    machine: Machine  # set on the subclass of an installed machine
    given: dict[tuple[int, bool], int]  # how many streams were asked for, by device and high priority

    def __init__(self, device: Any = None, priority: int = 0, **kwargs: Any) -> None:
        if kwargs.get("stream_ptr") is not None:
            raise NotSimulated("a stream of another library")
        self.device_index = self.machine.index(device)
        self.device = torch.device("cuda", self.device_index)
        self.priority = priority
        number = kwargs.get("stream_id")
        self.stream_id = self._from_pool() if number is None else number

    def _from_pool(self) -> int:
        urgent = self.priority < 0
        number = self.given.get((self.device_index, urgent), 0)
        self.given[self.device_index, urgent] = number + 1
        return 1 + number % _POOL + (_POOL if urgent else 0)

    @property
    def cuda_stream(self) -> int:
        """A number that tells streams apart; 0 is the default stream."""
        return self.stream_id

    def wait_stream(self, stream: Stream) -> None:
        """Let what is put on this stream from now on start after what is on another one, of any device."""
        clocks = self.machine.clocks
        done = clocks.moment(stream.device_index, stream.stream_id)
        clocks.order(self.device_index, self.stream_id, done)

    def wait_event(self, event: Event) -> None:
        """Let what is put on this stream from now on start after an event; one never recorded has passed."""
        if event.moment is not None:
            self.machine.clocks.order(self.device_index, self.stream_id, event.moment)

    def record_event(self, event: Event | None = None) -> Event:
        """Record an event, a new one unless given, and return it."""
        event = self._new_event() if event is None else event
        event.record(self)
        return event

    def _new_event(self) -> Event:
        return torch.cuda.Event()  # type: ignore[return-value]

    def synchronize(self) -> None:
        """Make the host wait for what was put on the stream so far."""
        self.machine.clocks.wait(self.device_index, self.stream_id)
        self.machine.raise_poison(self.device_index)

    def query(self) -> bool:
        """Whether everything put on the stream so far is done."""
        return self.machine.clocks.ready(self.device_index, self.stream_id) <= self.machine.now()

    def __enter__(self) -> Stream:
        before = getattr(self, "_before", [])
        before.append((local.device, current(self.machine, self.device_index)))
        self._before = before
        select(self.machine, self)
        return self

    def __exit__(self, *exception: object) -> None:
        device, stream = self._before.pop()
        select(self.machine, stream)
        local.device = device

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and (self.device_index, self.stream_id) == (
            other.device_index,
            other.stream_id,
        )

    def __hash__(self) -> int:
        return hash((self.device_index, self.stream_id))

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device=cuda:{self.device_index} cuda_stream={self.stream_id:#x}>"

    def is_capturing(self) -> bool:
        """CUDA graphs are not simulated."""
        return False


class Event:
    """A point in a device's work; stands in for torch.Event and torch.cuda.Event."""

    machine: Machine

    def __init__(
        self, device: Any = None, enable_timing: bool = False, blocking: bool = False, **_: Any
    ) -> None:
        self.enable_timing = enable_timing or device is True  # torch.cuda.Event takes enable_timing first
        self.device_index: int | None = None
        self.moment: Moment | None = None

    def __repr__(self) -> str:
        return "<torch.cuda.Event " + ("uninitialized>" if self.moment is None else f"{id(self):#x}>")

    @property
    def device(self) -> torch.device | None:
        """Where it was recorded."""
        return None if self.device_index is None else torch.device("cuda", self.device_index)

    def record(self, stream: Stream | None = None) -> None:
        """Mark the moment at which what was put on the stream so far will be done."""
        on = current(self.machine, local.device) if stream is None else stream
        if self.device_index not in (None, on.device_index):
            raise RuntimeError(
                f"Event device index {self.device_index} does not match recording stream's device index "
                f"{on.device_index}."
            )
        self.device_index = on.device_index
        self.moment = self.machine.clocks.moment(on.device_index, on.stream_id)

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to another. Raises ValueError where one has no time, as CUDA does, and
        RuntimeError where the end has not come yet."""
        if not (self.enable_timing and end_event.enable_timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self.moment is None or end_event.moment is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        if not (self.query() and end_event.query()):
            raise RuntimeError("Both events must be completed before calculating elapsed time.")
        if end_event.device_index != self.device_index:
            raise invalid_handle()
        return (end_event.moment[0] - self.moment[0]) / PICOSECONDS * 1e3

    def query(self) -> bool:
        """Whether the moment has passed."""
        return self.moment is None or self.moment[0] / PICOSECONDS <= self.machine.now()

    def synchronize(self) -> None:
        """Make the host wait for the moment."""
        if self.moment is not None:
            self.machine.clocks.wait_until(self.moment)
            assert self.device_index is not None
            self.machine.raise_poison(self.device_index)

    def wait(self, stream: Stream | None = None) -> None:
        """Make a stream wait for the moment."""
        (stream or current(self.machine, local.device)).wait_event(self)


class StreamContext:
    """`with torch.cuda.stream(s):`; None does nothing."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self.stream.__enter__()

    def __exit__(self, *exception: object) -> None:
        if self.stream is not None:
            self.stream.__exit__(*exception)


def current(machine: Machine, device: Any = None) -> Stream:
    """The calling thread's current stream on a device."""
    index = machine.index(device)
    chosen = (local.streams or {}).get(index)
    return chosen if chosen is not None else default(machine, index)


def default(machine: Machine, device: Any = None) -> Stream:
    """The default stream of a device."""
    return torch.cuda.Stream(device=machine.index(device), stream_id=0)  # type: ignore[return-value]


def select(machine: Machine, stream: Stream | None) -> None:
    """Make a stream, and its device, current in the calling thread."""
    if stream is None:
        return
    local.streams = {**(local.streams or {}), stream.device_index: stream}
    local.device = stream.device_index


def functions(machine: Machine) -> dict[str, Any]:
    """The names under torch.cuda that this module answers."""
    stream_class = type("Stream", (Stream,), {"machine": machine, "given": {}})
    event_class = type("Event", (Event,), {"machine": machine})
    return {
        "Stream": stream_class,
        "Event": event_class,
        "StreamContext": StreamContext,
        "stream": StreamContext,
        "current_stream": lambda device=None: current(machine, device),
        "default_stream": lambda device=None: default(machine, device),
        "set_stream": lambda stream: select(machine, stream),
        "is_current_stream_capturing": lambda: False,
        "streams.Stream": stream_class,
        "streams.Event": event_class,
    }
