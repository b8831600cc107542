"""What every operator of one step asked of the devices: FLOPs, bytes, seconds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import cost
from ..local import local
from ..mode import Simulation
from ..parts import GPU
from ..patches import Patches
from ..timeline import PICOSECONDS, module_running
from .naming import Naming
from .record import Counters
from .steps import counters

if TYPE_CHECKING:
    from ..machine import Machine

_FORWARDS = 20  # without any step of an optimizer: this is no training


COMPUTE, BANDWIDTH, KERNEL = "compute", "bandwidth", "kernel"  # the last: the shortest that one takes


class Key(NamedTuple):
    """What is added up."""

    operator: str
    module: str
    backward: bool
    term: str = ""  # of cost.duration, that rules: COMPUTE, BANDWIDTH or KERNEL


class Sum(NamedTuple):
    """All calls of an operator on all devices."""

    calls: int = 0
    flops: int = 0
    nbytes: int = 0
    seconds: float = 0.0

    def plus(self, other: Sum, sign: int = 1) -> Sum:
        """The two together; with `sign` -1 what is left without the other."""
        return Sum(
            self.calls + sign * other.calls,
            self.flops + sign * other.flops,
            self.nbytes + sign * other.nbytes,
            self.seconds + sign * other.seconds,
        )


@dataclass(frozen=True)
class Moment:
    """Everything that was added up until one moment."""

    counters: Counters
    bounds: tuple[float, float, float]  # low, value and high, when all that was launched is done
    sums: dict[Key, Sum] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """What happened between two moments."""

    name: str
    counters: Counters
    bounds: tuple[float, float, float]
    sums: dict[Key, Sum]


class Enough(SystemExit):
    """One step is known; the script need not run on. Ends a process with the exit code 0."""


class _Length(int):
    """The picoseconds of a kernel, with what it does in them."""

    work: cost.Work
    term: str


class Ledger:
    """Adds up what the kernels of an installed machine do, and notes where the first full step lies."""

    def __init__(self, machine: Machine, stop_early: bool = True) -> None:
        self._machine = machine
        self._stop_early = stop_early
        self._sums: dict[Key, Sum] = {}
        self._steps: list[Moment] = []
        self._forwards: list[Moment] = []
        self._forward_count = 0
        self._begin = self._moment()
        self._patches = Patches()
        self._naming = Naming(self._on_step, self._on_forward)

    def start(self) -> None:
        """Begin; once a step is known, Enough is raised in the script."""
        machine = self._machine
        machine.clocks.totals = {}
        machine.known_lengths.clear()
        self._patches.set(Simulation, "_length", _with_work(Simulation._length))
        kernel = machine.clocks.kernel

        def counted(device: int, length: int, name: str, backward: bool, *rest: Any) -> None:
            self._add(length, name, backward)
            kernel(device, length, name, backward, *rest)

        self._patches.set(machine.clocks, "kernel", counted)
        self._naming.install()

    def stop(self) -> None:
        """End, and undo everything."""
        self._naming.remove()
        self._patches.undo()
        self._machine.known_lengths.clear()
        self._machine.clocks.totals = None

    @contextmanager
    def kept(self) -> Iterator[Ledger]:
        """Keep it for the length of a `with` block, which ends early once a step is known."""
        self.start()
        try:
            yield self
        except Enough:
            pass
        finally:
            self.stop()

    def step(self) -> Step:
        """The second step, or the first where there was no other; the whole run where there is none.

        An optimizer ends a step, a forward begins one.
        """
        if len(self._steps) == 2:
            return _between("step 2, from one optimizer.step() to the next", *self._steps)
        if len(self._forwards) >= 2:
            number = len(self._forwards) - 1
            return _between(f"step {number}, from one forward to the next", *self._forwards[-2:])
        self._machine.clocks.wait()
        return _between("the whole run", self._begin, self._moment())

    def _add(self, length: int, name: str, backward: bool) -> None:
        flops, nbytes, term = 0, 0, ""
        if isinstance(length, _Length):
            flops, nbytes, term = length.work.flops, length.work.nbytes + length.work.apart, length.term
        key = Key(name, module_running(), backward, term)
        self._sums[key] = self._sums.get(key, Sum()).plus(Sum(1, flops, nbytes, length / PICOSECONDS))

    def _moment(self) -> Moment:
        clocks = self._machine.clocks
        return Moment(counters(clocks), clocks.done_range(), dict(self._sums))

    def _on_step(self, optimizer: object) -> None:
        if len(self._steps) < 2:
            self._steps.append(self._moment())
            if len(self._steps) == 2 and self._stop_early:
                raise Enough

    def _on_forward(self, module: object) -> None:
        if not local.observed or self._steps:
            return
        self._forward_count += 1
        if len(self._forwards) < 3:
            self._forwards.append(self._moment())
        elif self._forward_count > _FORWARDS and self._stop_early:
            raise Enough


def _with_work(length: Any) -> Any:
    def measured(mode: Simulation, operator: Any, args: tuple, kwargs: dict[str, Any], out: Any) -> int:
        made = _Length(length(mode, operator, args, kwargs, out))
        made.work = cost.work(operator.func, args, kwargs, out)
        made.term = ruling(made.work, mode.machine.profile.gpu)
        return made

    return measured


def ruling(asked: cost.Work, gpu: GPU) -> str:
    """The term without which the work would take a GPU less time."""
    having = cost.rates(gpu)
    whole = cost.duration(asked, having)
    if cost.duration(asked._replace(flops=0), having) < whole:
        return COMPUTE
    return BANDWIDTH if cost.duration(asked._replace(nbytes=0), having) < whole else KERNEL


def _between(name: str, before: Moment, after: Moment) -> Step:
    sums = {
        key: total.plus(before.sums.get(key, Sum()), -1)
        for key, total in after.sums.items()
        if total != before.sums.get(key)
    }
    bounds = tuple(late - early for early, late in zip(before.bounds, after.bounds, strict=True))
    return Step(name, after.counters.since(before.counters), bounds, sums)  # type: ignore[arg-type]
