"""The clocks of a simulated machine: host threads that launch, devices and links that work behind them.

Times are whole picoseconds. Integer addition is associative, so a total is the same to the last digit in
whatever order threads contributed to it, which sums of floats are not.

The model is T_N = T_1(B/N) + a * modules * N + b * parameter megabytes, fitted on measured
nn.DataParallel steps (see the profiles' sources): `a` is what Python spends per module and replica on
replicating and dispatching under its lock, and `b` what broadcast and reduce take. Both are what remained
visible in the measurements after every overlap. So a replica keeps the host busy, and a broadcast or a
reduce moves the host and its devices on by the same time: the rest of the step runs as it would without,
later, whether the host or the devices bound it. As `a` contains the dispatch of all replicas, the workers
of parallel_apply are not charged for each other's lock: each one launches from the moment at which it was
forked, and the join is where the slowest of them ended.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from .profiles import MachineProfile
from .timeline import PICOSECONDS, Timeline

HOST = -1  # the end of a copy that is host memory


def picoseconds(seconds: float) -> int:
    """Return seconds as whole picoseconds, the unit of every clock."""
    return round(seconds * PICOSECONDS)


def track(end: int) -> str:
    """Return the name of a device, or of host memory, as torch writes it."""
    return "cpu" if end == HOST else f"cuda:{end}"


@dataclass
class Times:
    """When each thing becomes free, in picoseconds, and the rules by which work moves it on."""

    devices: list[int]
    engine: list[int]  # the backward launch clock of each device: one engine thread for each
    links: dict[tuple[int, int], int] = field(default_factory=dict)
    busy: list[int] = field(default_factory=list)
    host: int = 0
    timeline: Timeline | None = None
    host_track: str = "host"

    def fork(self, host_track: str) -> Times:
        """Return an independent copy, without the recording."""
        return Times(
            self.devices[:], self.engine[:], dict(self.links), self.busy[:], self.host, None, host_track
        )

    def _record(self, where: str, name: str, kind: str, start: int, end: int) -> None:
        if self.timeline is not None and self.timeline.on:
            self.timeline.record(where, name, kind, start, end)

    def after_backward(self) -> None:
        """The thread that called backward() goes on when the engine's threads have launched everything."""
        reached = max(self.engine)
        if reached > self.host:
            self._record(self.host_track, "backward", "host", self.host, reached)
            self.host = reached

    def work(self, seconds: int, name: str) -> None:
        self.after_backward()
        self._record(self.host_track, name, "host", self.host, self.host + seconds)
        self.host += seconds

    def launch(self, device: int, cost: int, seconds: int, name: str, backward: bool) -> None:
        if backward:
            launched = self.engine[device] = max(self.engine[device], self.host) + cost
        else:
            self.work(cost, name)
            launched = self.host
        start = max(self.devices[device], launched)
        self.devices[device] = start + seconds
        self.busy[device] += seconds
        self._record(track(device), name, "compute", start, start + seconds)

    def copy(
        self,
        source: int,
        destination: int,
        cost: int,
        seconds: int,
        name: str,
        blocking: bool,
        backward: bool,
    ) -> None:
        ends = [end for end in (source, destination) if end != HOST]
        if backward and ends:
            launched = max(self.engine[ends[-1]], self.host) + cost
            self.engine[ends[-1]] = launched
        else:
            self.work(cost, name)
            launched = self.host
        start = max(launched, self.links.get((source, destination), 0), *(self.devices[end] for end in ends))
        end = start + seconds
        self.links[source, destination] = end
        for device in ends:
            self.devices[device] = end
            self.busy[device] += seconds
            self._record(track(device), name, "copy", start, end)
        self._record(f"{track(source)} > {track(destination)}", name, "copy", start, end)
        if blocking:
            self._wait_until(end)

    def together(self, devices: Sequence[int], seconds: int, name: str) -> None:
        """Broadcast or reduce: moves the host on by `seconds`, and the devices from when all are free."""
        self.after_backward()
        start = max(self.host, *(self.devices[device] for device in devices))
        for device in devices:
            self.devices[device] = start + seconds
            self.busy[device] += seconds
            self._record(track(device), name, "copy", start, start + seconds)
        self.work(seconds, name)

    def wait(self, devices: Sequence[int]) -> None:
        self.after_backward()
        self._wait_until(max(self.devices[device] for device in devices))

    def _wait_until(self, end: int) -> None:
        if end > self.host:
            self._record(self.host_track, "wait", "wait", self.host, end)
            self.host = end


@dataclass
class Worker:
    """A thread forked from another: what it did is charged when it is joined."""

    times: Times  # what this thread would see were it alone; answers now()
    start: int
    log: list[tuple] = field(default_factory=list)
    joined: bool = False


class Clocks:
    """The clocks of a machine of `count` GPUs. All public times are seconds.

    Threads: fork() in the parent before a thread starts, `with worker(it):` around what the thread does,
    join(it) in the parent once it ended. A worker's own charges reach the devices at its join, so what counts
    is the order of the joins and never who ran first. A thread without a worker is the main one.
    """

    def __init__(self, profile: MachineProfile, count: int, timeline: Timeline | None = None) -> None:
        self.profile = profile
        self.count = count
        self.timeline = timeline or Timeline()
        self._main = Times([0] * count, [0] * count, busy=[0] * count, timeline=self.timeline)
        self._local = threading.local()
        self._lock = threading.RLock()
        host = profile.host
        self._launch = picoseconds(host.launch_us.value * 1e-6)
        self._backward_launch = picoseconds(host.backward_launch_us.value * 1e-6)
        self._cpu_operator = picoseconds(host.cpu_operator_us.value * 1e-6)
        self._module = picoseconds(host.module_us.value * 1e-6)
        self._latency = picoseconds(profile.link.latency_us.value * 1e-6)

    def launch(self, device: int, seconds: float, name: str, phase: str = "forward") -> None:
        """An operator of `seconds` on `device`. In phase "forward" (the optimizer, too) the calling thread
        launches it, in phase "backward" the engine's thread of that device."""
        backward = phase == "backward"
        cost = self._backward_launch if backward else self._launch
        self._charge("launch", device, cost, picoseconds(seconds), name, backward)

    def copy(
        self,
        source: int,
        destination: int,
        nbytes: int,
        blocking: bool,
        name: str = "copy",
        phase: str = "forward",
    ) -> None:
        """Move bytes between two devices, or a device and the host (HOST). A blocking one keeps the caller
        until it has arrived, as torch does with ordinary (pageable) host memory and to the host."""
        backward = phase == "backward"
        cost = self._backward_launch if backward else self._launch
        seconds = self._transfer(source, destination, nbytes)
        self._charge("copy", source, destination, cost, seconds, name, blocking, backward)

    def broadcast(self, devices: Sequence[int], nbytes: int, name: str = "broadcast") -> None:
        """Copy `nbytes` of parameters from devices[0] to the others, as replicate() does."""
        self._collective(devices, nbytes, self.profile.link.broadcast_us_per_mb.value, name)

    def reduce(self, devices: Sequence[int], nbytes: int, name: str = "reduce") -> None:
        """Sum `nbytes` of gradients of all `devices` on devices[0], as the backward of replicate() does."""
        self._collective(devices, nbytes, self.profile.link.reduce_us_per_mb.value, name)

    def replica(self, modules: int) -> None:
        """Charge the host for replicating, and later dispatching, so many modules: modules x replicas."""
        self._charge("work", self._module * modules, "replicate")

    def host(self, seconds: float, name: str = "host") -> None:
        """Charge the calling thread with work, or sleep, of its own."""
        self._charge("work", picoseconds(seconds), name)

    def cpu_operator(self, name: str = "cpu") -> None:
        """Charge the calling thread with one operator on CPU tensors (the profile's constant)."""
        self._charge("work", self._cpu_operator, name)

    def wait(self, device: int | None = None) -> float:
        """Make the calling thread wait for a device, or for all; return its time after that."""
        self._charge("wait", range(self.count) if device is None else (device,))
        return self.now()

    def now(self) -> float:
        """Return the calling thread's time, in seconds."""
        times = self._times()
        return max(times.host, *times.engine) / PICOSECONDS

    def ready(self, device: int) -> float:
        """Return the time at which `device` will have done what was launched on it so far."""
        return self._times().devices[device] / PICOSECONDS

    def busy(self, device: int) -> float:
        """Return the seconds that `device` has computed or copied."""
        return self._times().busy[device] / PICOSECONDS

    def fork(self) -> Worker:
        """Return the clock of a thread about to be started by the calling one."""
        times = self._times()
        times.after_backward()
        return Worker(times.fork("host worker"), times.host)

    @contextmanager
    def worker(self, worker: Worker) -> Iterator[Worker]:
        """Charge everything that the calling thread does inside to `worker`."""
        outer = getattr(self._local, "worker", None)
        self._local.worker = worker
        try:
            yield worker
        finally:
            self._local.worker = outer

    def join(self, worker: Worker) -> None:
        """Charge what `worker` did and make the calling thread wait for its end; only once."""
        if worker.joined:
            return
        worker.joined = True
        self._charge("replay", worker)

    def _times(self) -> Times:
        worker = getattr(self._local, "worker", None)
        return self._main if worker is None else worker.times

    def _charge(self, what: str, *args: object) -> None:
        worker = getattr(self._local, "worker", None)
        if worker is not None:
            worker.log.append((what, args))
            _apply(worker.times, what, args)
            return
        with self._lock:
            _apply(self._main, what, args)

    def _collective(self, devices: Sequence[int], nbytes: int, us_per_mb: float, name: str) -> None:
        if len(devices) > 1:  # on one device there is nothing to move
            self._charge("together", tuple(devices), round(nbytes * us_per_mb), name)  # 1 us/MB is 1 ps/byte

    def _transfer(self, source: int, destination: int, nbytes: int) -> int:
        link = self.profile.link
        rate = link.host_gb_s.value if HOST in (source, destination) else link.peer_gb_s.value
        return self._latency + round(nbytes * 1000 / rate)  # 1 GB/s moves a byte in 1000 ps


def _apply(times: Times, what: str, args: tuple) -> None:
    if what != "replay":
        getattr(times, what)(*args)
        return
    worker: Worker = args[0]
    times.after_backward()
    resumed, host_track = times.host, times.host_track
    times.host, times.host_track = worker.start, worker.times.host_track
    for step, step_args in worker.log:
        _apply(times, step, step_args)
    times.after_backward()
    times.host, times.host_track = max(resumed, times.host), host_track
