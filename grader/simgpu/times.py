"""The rules by which work moves a simulated machine's clocks on.

Times are whole picoseconds. Integer addition is associative, so a total is the same to the last digit in
whatever order threads contributed to it, which sums of floats are not.

The model of a step of nn.DataParallel is T_N = T_1(B/N) + a * modules * N + b * parameter megabytes, fitted
on measured steps (see the profiles' sources): `a` is what Python spends per module and replica on
replicating and dispatching under its lock, and `b` what broadcast and reduce take. Both are what remained
visible in the measurements after every overlap. So a replica keeps the host busy, and a broadcast or a
reduce moves the host and its devices on by the same time: the rest of the step runs as it would without,
later, whether the host or the devices bound it. As `a` contains the dispatch of all replicas, the workers
of parallel_apply are not charged for each other's lock: each one launches from the moment at which it was
forked, and the join is where the slowest of them ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .engine import Engine
from .profiles import Host
from .timeline import PICOSECONDS, Timeline

HOST = -1  # the end of a copy that is host memory
DEFAULT_STREAM = 0
COMMUNICATION = -1  # the stream on which a device's collectives run

End = tuple[int, int]  # a device and a stream of it


def picoseconds(seconds: float) -> int:
    """Return seconds as whole picoseconds, the unit of every clock."""
    return round(seconds * PICOSECONDS)


def track(end: int, stream: int = DEFAULT_STREAM) -> str:
    """Return the name of a device, one of its streams or host memory: "cuda:1", "cuda:1 stream 3", "cpu"."""
    if end == HOST:
        return "cpu"
    if stream == DEFAULT_STREAM:
        return f"cuda:{end}"
    return f"cuda:{end} collectives" if stream == COMMUNICATION else f"cuda:{end} stream {stream}"


@dataclass(frozen=True)
class HostCosts:
    """What the host is charged, in picoseconds."""

    launch: int
    backward_launch: int
    cpu_operator: int
    module: int

    @classmethod
    def of(cls, host: Host, bound: str = "value") -> HostCosts:
        """The figures of a profile, or with `bound` "low" or "high" the ends of their plausible ranges."""

        def figure(name: str) -> int:
            quantity = getattr(host, name)
            value = getattr(quantity, bound)
            return picoseconds((quantity.value if value is None else value) * 1e-6)

        return cls(
            figure("launch_us"), figure("backward_launch_us"), figure("cpu_operator_us"), figure("module_us")
        )


@dataclass
class Spent:
    """Picoseconds of the host by what it did; `wait` is what it spent waiting for devices."""

    launch: int = 0
    replicate: int = 0
    cpu: int = 0
    script: int = 0  # sleeping, reading clocks
    communicate: int = 0  # nn.DataParallel's broadcast and reduce, which keep the host
    wait: int = 0


@dataclass
class Times:
    """When each thing becomes free, in picoseconds."""

    costs: HostCosts
    engines: list[Engine]
    backward: list[int]  # the backward launch clock of each device: one engine thread for each
    streams: dict[End, int] = field(default_factory=dict)
    links: dict[tuple[int, int], int] = field(default_factory=dict)
    busy: list[int] = field(default_factory=list)  # of each device, computing or copying
    copying: list[int] = field(default_factory=list)
    communicating: list[int] = field(default_factory=list)
    spent: Spent = field(default_factory=Spent)
    host: int = 0
    reached: int = 0  # the last of the backward launch clocks
    timeline: Timeline | None = None
    host_track: str = "host"

    @classmethod
    def at_rest(cls, costs: HostCosts, count: int, timeline: Timeline | None = None) -> Times:
        """The clocks of `count` devices at zero."""
        zeros = [0] * count
        engines = [Engine() for _ in zeros]
        return cls(costs, engines, zeros[:], {}, {}, zeros[:], zeros[:], zeros[:], timeline=timeline)

    def fork(self, host_track: str) -> Times:
        """Return an independent copy, without the recording."""
        return Times(
            self.costs,
            [engine.copy() for engine in self.engines],
            self.backward[:],
            dict(self.streams),
            dict(self.links),
            self.busy[:],
            self.copying[:],
            self.communicating[:],
            Spent(),
            self.host,
            self.reached,
            None,
            host_track,
        )

    def ready(self, device: int, stream: int | None = None) -> int:
        """When a stream, or with None every stream of the device, will have done what it was given."""
        if stream is not None:
            return self.streams.get((device, stream), 0)
        return max([0, *(end for (where, _), end in self.streams.items() if where == device)])

    def _record(
        self, where: str, name: str, kind: str, start: int, end: int, nbytes: int = 0, flow: int = 0
    ) -> None:
        if self.timeline is not None and self.timeline.on:
            self.timeline.record(where, name, kind, start, end, nbytes, flow)

    def _flow(self) -> int:
        return self.timeline.new_flow() if self.timeline is not None and self.timeline.on else 0

    def after_backward(self) -> None:
        """The thread that called backward() goes on when the engine's threads have launched everything."""
        if self.reached > self.host:
            self._record(self.host_track, "backward", "host", self.host, self.reached)
            self.spent.launch += self.reached - self.host
            self.host = self.reached

    def work(self, what: str, length: int, name: str, flow: int = 0) -> None:
        """The host does something of its own for `length`; `what` is a field of `Spent`."""
        self.after_backward()
        if self.timeline is not None and self.timeline.on:
            self.timeline.record(self.host_track, name, "host", self.host, self.host + length, 0, flow)
        self.host += length
        setattr(self.spent, what, getattr(self.spent, what) + length)

    def replicate(self, modules: int) -> None:
        """The host copies, and later dispatches, so many modules: modules times replicas."""
        self.work("replicate", self.costs.module * modules, "replicate")

    def cpu_operator(self, name: str) -> None:
        """The host computes one operator on CPU tensors."""
        self.work("cpu", self.costs.cpu_operator, name)

    def _launched(self, device: int, name: str, backward: bool, flow: int = 0) -> int:
        if backward:
            begun = max(self.backward[device], self.host)
            launched = self.backward[device] = begun + self.costs.backward_launch
            if launched > self.reached:
                self.reached = launched
            self._record(f"host backward {track(device)}", name, "host", begun, launched, 0, flow)
            return launched
        self.work("launch", self.costs.launch, name, flow)
        return self.host

    def launch(self, end: End, length: int, name: str, backward: bool) -> None:
        """A kernel of `length` on a stream; the host goes on as soon as it is launched."""
        # Written out, since this runs for every operator.
        device = end[0]
        recording = self.timeline is not None and self.timeline.on
        if backward or recording or self.reached > self.host:
            launched = self._launched(device, name, backward)
        else:
            launched = self.host = self.host + self.costs.launch
            self.spent.launch += self.costs.launch
        engine = self.engines[device]
        ready = self.streams.get(end, 0)
        if ready <= launched and engine.free <= launched:
            start = launched
            engine.free = start + length
        else:
            start = engine.reserve(max(ready, launched), length, launched)
        self.streams[end] = start + length
        self.busy[device] += length
        if recording:
            assert self.timeline is not None
            self.timeline.record(track(*end), name, "compute", start, start + length)

    def copy(
        self,
        source: End,
        destination: End,
        length: int,
        name: str,
        blocking: bool,
        backward: bool,
        nbytes: int,
    ) -> None:
        """Bytes move over a link, in order with the streams at its ends; kernels of other streams go on."""
        flow = self._flow()
        ends = [end for end in (source, destination) if end[0] != HOST]
        launched = self._launched(ends[-1][0], name, backward, flow)
        link = source[0], destination[0]
        start = max(launched, self.links.get(link, 0), *(self.streams.get(end, 0) for end in ends))
        finish = start + length
        self.links[link] = finish
        for end in ends:
            self.streams[end] = finish
            self.busy[end[0]] += length
            self.copying[end[0]] += length
            self._record(track(*end), name, "copy", start, finish, nbytes, flow)
        self._record(
            f"{track(source[0])} > {track(destination[0])}", name, "copy", start, finish, nbytes, flow
        )
        if blocking:
            self.wait_until(finish)

    def together(self, ends: Sequence[End], length: int, name: str, nbytes: int) -> None:
        """Broadcast or reduce: moves the host on by `length`, and the devices from when all are free."""
        self.after_backward()
        flow = self._flow()
        start = max(self.host, *(self.streams.get(end, 0) for end in ends))
        for end in ends:
            self.streams[end] = start + length
            self.busy[end[0]] += length
            self.copying[end[0]] += length
            self._record(track(*end), name, "copy", start, start + length, nbytes, flow)
        self.work("communicate", length, name, flow)

    def collective(self, device: int, not_before: int, length: int, name: str, nbytes: int) -> None:
        """A collective of several processes on the device's communication stream; the host goes on."""
        end = device, COMMUNICATION
        start = max(not_before, self.streams.get(end, 0))
        self.streams[end] = start + length
        self.communicating[device] += length
        self._record(track(*end), name, "collective", start, start + length, nbytes, self._flow())

    def order(self, end: End, moment: int) -> None:
        """What is put on a stream from now on starts no earlier than `moment`."""
        if moment > self.streams.get(end, 0):
            self.streams[end] = moment

    def wait(self, device: int | None, stream: int | None) -> None:
        """The host waits for a stream, for all of a device, or for all devices."""
        self.after_backward()
        devices = range(len(self.engines)) if device is None else (device,)
        self.wait_until(max(self.ready(each, stream) for each in devices))

    def wait_until(self, moment: int) -> None:
        """The host waits."""
        self.after_backward()
        if moment > self.host:
            self._record(self.host_track, "wait", "wait", self.host, moment)
            self.spent.wait += moment - self.host
            self.host = moment
