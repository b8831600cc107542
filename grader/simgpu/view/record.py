"""What a recording holds once it has ended: plain figures, which the renderers read and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..memory import Mark
from ..profiles import MachineProfile
from ..timeline import Span


class Total(NamedTuple):
    """All calls of one operator, copy or collective."""

    calls: float
    seconds: float
    nbytes: float = 0

    def plus(self, other: Total) -> Total:
        """The two together."""
        return Total(self.calls + other.calls, self.seconds + other.seconds, self.nbytes + other.nbytes)


NONE = Total(0, 0.0)
OPTIMIZER, FORWARD = "optimizer.step()", "forward"  # the one ends a step, the other begins one
Kind = tuple[int, str, str]  # device; operator, link ("cpu > cuda:0") or collective; phase


class Counters(NamedTuple):
    """How far the clocks were at one moment, in seconds; or, subtracted and divided, what one step took."""

    now: float  # when the host and all that the devices were given until then is done
    host: dict[str, float]  # by what it did: the fields of clock.Spent
    busy: list[float]  # of each device, computing or copying
    copying: list[float]
    communicating: list[float]
    totals: dict[Kind, Total] = {}

    @property
    def moved(self) -> dict[str, Total]:
        """Copies by link, and the broadcasts and reductions of nn.DataParallel."""
        moved: dict[str, Total] = {}
        for (_, name, _), total in self.totals.items():
            if " > " in name or name in ("broadcast", "reduce"):
                moved[name] = moved.get(name, NONE).plus(total)
        return moved

    def since(self, before: Counters, steps: int = 1) -> Counters:
        """What a step took, of so many between two moments."""
        return Counters(
            (self.now - before.now) / steps,
            {what: (value - before.host[what]) / steps for what, value in self.host.items()},
            _per_step(before.busy, self.busy, steps),
            _per_step(before.copying, self.copying, steps),
            _per_step(before.communicating, self.communicating, steps),
            {
                kind: Total(*_per_step(before.totals.get(kind, NONE), total, steps))
                for kind, total in self.totals.items()
            },
        )


def _per_step(earlier: Sequence[float], later: Sequence[float], steps: int) -> list[float]:
    return [(b - a) / steps for a, b in zip(earlier, later, strict=True)]


@dataclass(frozen=True)
class Parallel:
    """A wrapper over several devices: nn.DataParallel or DistributedDataParallel."""

    kind: str
    modules: int  # that it replicates
    nbytes: int  # of parameters
    devices: int


@dataclass(frozen=True)
class DeviceRecord:
    """One simulated GPU."""

    index: int
    capacity: int
    peak: int
    marks: list[Mark] = field(default_factory=list)
    parameters: int = 0  # bytes of parameters and buffers of the modules that were called

    @property
    def name(self) -> str:
        """As torch writes it."""
        return f"cuda:{self.index}"


@dataclass(frozen=True)
class Record:
    """One run on a simulated machine."""

    spec: str
    profile: MachineProfile
    torch: str
    seconds: tuple[float, float, float]  # low, value, high
    whole: Counters
    devices: list[DeviceRecord]
    moments: list[float] = field(default_factory=list)  # when the first steps ended
    steps: int = 0
    step: Counters | None = None  # mean of all steps but the first
    bound: str = ""  # OPTIMIZER or FORWARD
    parallel: Parallel | None = None
    waits: dict[str, Total] = field(default_factory=dict)  # by the line of the script that waited
    spans: list[Span] = field(default_factory=list)
    with_spans: bool = False
    full: bool = False  # no more spans were recorded after these

    @property
    def origin(self) -> str:
        """What every figure is to be labelled with."""
        return f"simulated, profile {self.profile.name}"

    @property
    def used(self) -> list[DeviceRecord]:
        """The devices that this process put to work; all where it used none. A rank of several uses one."""
        busy = self.whole.busy
        return [each for each in self.devices if busy[each.index] or each.peak] or self.devices

    @property
    def recorded_until(self) -> float:
        """When the last recorded span ended."""
        return max((span.end for span in self.spans), default=0.0)

    @property
    def typical(self) -> Counters:
        """What one step took; the whole run where no steps were recognised."""
        return self.step or self.whole

    @property
    def unit(self) -> str:
        """What `typical` is: "step" or "run"."""
        return "step" if self.step else "run"
