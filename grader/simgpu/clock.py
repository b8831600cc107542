"""The clocks of a simulated machine: host threads that launch, devices and links that work behind them.

The rules are those of `times`; here are the threads that share them, the profile's figures, and the variants
that give a prediction its range.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from . import links
from .local import local
from .profiles import MachineProfile
from .timeline import PICOSECONDS, Timeline
from .times import COMMUNICATION, DEFAULT_STREAM, HOST, HostCosts, Spent, Times, picoseconds, track
from .workers import Moment, Worker, apply, catch_up, collective, order, replay, wait_until

__all__ = ["COMMUNICATION", "HOST", "Clocks", "Moment", "Spent", "Worker", "picoseconds", "track"]

LOGGED = 100_000  # charges of a thread that wait for its join: a thread that lives long is charged in parts
_BOUNDS = ("value", "low", "high")


class _Here(threading.local):
    worker: Worker | None = None  # what the calling thread is charged to; None for the main one


class Clocks:
    """The clocks of a machine of `count` GPUs. All public times are seconds.

    Threads: fork() in the parent before a thread starts, `with worker(it):` around what the thread does,
    join(it) in the parent once it ended. A worker's own charges reach the devices at its join, so what counts
    is the order of the joins and never who ran first. A thread without a worker is the main one.

    With `ranges` every charge is also made with the low and with the high ends of the host's figures.
    """

    def __init__(
        self, profile: MachineProfile, count: int, timeline: Timeline | None = None, ranges: bool = False
    ) -> None:
        self.profile = profile
        self.count = count
        self.timeline = timeline or Timeline()
        bounds = _BOUNDS if ranges else _BOUNDS[:1]
        self._main = [
            Times.at_rest(HostCosts.of(profile.host, bound), count, None if i else self.timeline)
            for i, bound in enumerate(bounds)
        ]
        self._here = _Here()
        self._lock = threading.RLock()
        # While someone wants to know: {(device, operator or link, phase): [calls, seconds, bytes]}.
        self.totals: dict[tuple[int, str, str], list[float]] | None = None
        self.waited: Callable[[float], None] | None = None  # told how long the calling thread just waited
        self._open_workers = 0

    def launch(
        self, device: int, seconds: float, name: str, phase: str = "forward", stream: int | None = None
    ) -> None:
        """An operator of `seconds` on `device`. In phase "forward" (the optimizer, too) the calling thread
        launches it, in phase "backward" the engine's thread of that device. Without a stream it goes on the
        calling thread's current one."""
        self.kernel(device, picoseconds(seconds), name, phase == "backward", stream)

    def kernel(self, device: int, length: int, name: str, backward: bool, stream: int | None = None) -> None:
        """What `launch` does, for a length in picoseconds."""
        if stream is None:
            stream = DEFAULT_STREAM if local.streams is None else _current_stream(device)
        if self.totals is not None:
            self._count(device, name, backward, length)
        if self.timeline.on:
            name = self.timeline.label(name, backward)
        if self._here.worker is not None:
            self._charge(Times.launch, (device, stream), length, name, backward)
            return
        with self._lock:
            for times in self._main:
                times.launch((device, stream), length, name, backward)

    def _count(self, device: int, name: str, backward: bool, length: int, nbytes: int = 0) -> None:
        if self.totals is not None:
            phase = "backward" if backward else local.phase
            total = self.totals.setdefault((device, name, phase), [0, 0.0, 0])
            total[0] += 1
            total[1] += length / PICOSECONDS
            total[2] += nbytes

    def copy(
        self,
        source: int,
        destination: int,
        nbytes: int,
        blocking: bool,
        name: str = "copy",
        phase: str = "forward",
    ) -> None:
        """Move bytes between two devices, or a device and the host (HOST), on their current streams. A
        blocking one keeps the caller until it has arrived, as torch does with ordinary (pageable) host
        memory and to the host."""
        backward = phase == "backward"
        link, at_host = self.profile.link, HOST in (source, destination)
        length = picoseconds(links.transfer_seconds(link, at_host, nbytes, pinned=not blocking))
        device = source if destination == HOST else destination
        self._count(device, f"{track(source)} > {track(destination)}", backward, length, nbytes)
        if self.timeline.on:
            name = self.timeline.label(name, backward)
        ends = (
            (end, DEFAULT_STREAM if end == HOST else _current_stream(end)) for end in (source, destination)
        )
        with self._telling_waits():
            self._charge(Times.copy, *ends, length, name, blocking, backward, nbytes)

    def broadcast(self, devices: Sequence[int], nbytes: int, name: str = "broadcast") -> None:
        """Copy `nbytes` of parameters from devices[0] to the others, as replicate() does."""
        self._together(devices, links.broadcast_seconds, nbytes, name)

    def reduce(self, devices: Sequence[int], nbytes: int, name: str = "reduce") -> None:
        """Sum `nbytes` of gradients of all `devices` on devices[0], as the backward of replicate() does."""
        self._together(devices, links.reduce_seconds, nbytes, name)

    def _together(
        self, devices: Sequence[int], formula: Callable[..., float], nbytes: int, name: str
    ) -> None:
        if len(devices) > 1:  # on one device there is nothing to move
            length = picoseconds(formula(self.profile.link, nbytes, len(devices)))
            ends = tuple((device, _current_stream(device)) for device in devices)
            self._count(devices[0], name, name == "reduce", length, nbytes)
            self._charge(Times.together, ends, length, name, nbytes)

    def collective(
        self,
        device: int,
        not_before: float | Moment,
        seconds: float,
        name: str,
        nbytes: int = 0,
        phase: str = "forward",
    ) -> float:
        """Let a collective of several processes occupy the device's communication stream for `seconds`, from
        `not_before` (the moment at which the last process is ready) on. Returns when it ends."""
        moments = self._moments(not_before)
        backward = phase == "backward"
        self._count(device, name, backward, picoseconds(seconds), nbytes)
        if self.timeline.on:
            name = self.timeline.label(name, backward)
        self._charge(collective, device, moments, picoseconds(seconds), name, nbytes)
        return self.ready(device, COMMUNICATION)

    def replica(self, modules: int) -> None:
        """Charge the host for replicating, and later dispatching, so many modules: modules x replicas."""
        self._charge(Times.replicate, modules)

    def host(self, seconds: float, name: str = "host") -> None:
        """Charge the calling thread with work, or sleep, of its own."""
        self._charge(Times.work, "script", picoseconds(seconds), name)

    def cpu_operator(self, name: str = "cpu") -> None:
        """Charge the calling thread with one operator on CPU tensors (the profile's constant)."""
        if self.timeline.on:
            name = self.timeline.label(name, backward=False)
        self._charge(Times.cpu_operator, name)

    def wait(self, device: int | None = None, stream: int | None = None) -> float:
        """Make the calling thread wait for a stream, all of a device, or all devices; its time after that."""
        with self._telling_waits():
            self._charge(Times.wait, device, stream)
        return self.now()

    def moment(self, device: int, stream: int) -> Moment:
        """When what was put on a stream so far will be done, and no earlier than now: what an event marks."""
        return tuple(
            max(times.host, times.backward[device], times.ready(device, stream)) for times in self._times()
        )

    def order(self, device: int, stream: int, moment: float | Moment) -> None:
        """Let what is put on a stream from now on start no earlier than `moment`."""
        self._charge(order, (device, stream), self._moments(moment))

    def wait_until(self, moment: float | Moment) -> None:
        """Make the calling thread wait for a moment."""
        with self._telling_waits():
            self._charge(wait_until, self._moments(moment))

    @contextmanager
    def _telling_waits(self) -> Iterator[None]:
        spent = self._times()[0].spent
        before = spent.wait
        yield
        if self.waited is not None and spent.wait > before:
            self.waited((spent.wait - before) / PICOSECONDS)

    def now(self) -> float:
        """Return the calling thread's time, in seconds."""
        return _reached(self._times()[0])

    def now_range(self) -> tuple[float, float, float]:
        """The calling thread's time with the low figures of the host, its own, and the high ones."""
        return _range([_reached(times) for times in self._times()])

    def done_range(self) -> tuple[float, float, float]:
        """When the calling thread and everything given to devices will be done, as low, likely and high
        figures; nobody waits."""
        return _range(
            [
                max(_reached(times), *(times.ready(device) / PICOSECONDS for device in range(self.count)))
                for times in self._times()
            ]
        )

    def ready(self, device: int, stream: int | None = None) -> float:
        """Return the time at which a stream, or all of the device, will have done what it was given."""
        return self._times()[0].ready(device, stream) / PICOSECONDS

    def busy(self, device: int) -> float:
        """Return the seconds that `device` has computed or copied."""
        return self._times()[0].busy[device] / PICOSECONDS

    def copying(self, device: int) -> float:
        """Return the seconds that `device` has copied."""
        return self._times()[0].copying[device] / PICOSECONDS

    def communicating(self, device: int) -> float:
        """Return the seconds that collectives of several processes took on `device`."""
        return self._times()[0].communicating[device] / PICOSECONDS

    @property
    def spent(self) -> dict[str, float]:
        """Seconds of the main host thread, and of the workers joined to it, by what they did."""
        return {what: ps / PICOSECONDS for what, ps in vars(self._main[0].spent).items()}

    def fork(self) -> Worker:
        """Return the clock of a thread about to be started by the calling one."""
        every = self._times()
        for times in every:
            times.after_backward()
        parent = self._here.worker
        name = f"{every[0].host_track} worker {self._open_workers}"
        if parent is None:
            self._open_workers += 1
        starts = [times.host for times in every]
        return Worker([times.fork(name) for times in every], starts, nested=parent is not None)

    @contextmanager
    def worker(self, worker: Worker) -> Iterator[Worker]:
        """Charge everything that the calling thread does inside to `worker`."""
        outer = self._here.worker
        self._here.worker = worker
        try:
            yield worker
        finally:
            self._here.worker = outer

    def join(self, worker: Worker) -> None:
        """Charge what `worker` did and make the calling thread wait for its end; only once."""
        if worker.joined:
            return
        worker.joined = True
        if self._here.worker is None:
            self._open_workers -= 1
        self._charge(replay, worker)

    def _times(self) -> list[Times]:
        worker = self._here.worker
        return self._main if worker is None else worker.times

    def _moments(self, moment: float | Moment) -> Moment:
        if isinstance(moment, tuple):
            return moment
        times = self._times()
        ahead = picoseconds(moment) - times[0].host
        return tuple(variant.host + ahead for variant in times)

    def _charge(self, what: Callable[..., None], *args: object) -> None:
        worker = self._here.worker
        if worker is not None:
            worker.log.append((what, args))
            apply(worker.times, what, args)
            if len(worker.log) >= LOGGED and not worker.nested:
                with self._lock:
                    apply(self._main, catch_up, (worker,))
                worker.log.clear()
            return
        with self._lock:
            apply(self._main, what, args)


def _current_stream(device: int) -> int:
    streams = local.streams
    if streams is None:
        return DEFAULT_STREAM
    stream = streams.get(device)
    return DEFAULT_STREAM if stream is None else stream.stream_id


def _range(variants: list[float]) -> tuple[float, float, float]:
    return min(variants), variants[0], max(variants)


def _reached(times: Times) -> float:
    return max(times.host, times.reached) / PICOSECONDS
