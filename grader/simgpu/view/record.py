"""What a recording holds once it has ended: plain figures, which the renderers read and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ..memory import Mark
from ..profiles import MachineProfile
from ..timeline import Span


class Counters(NamedTuple):
    """How far the clocks were at one moment, in seconds; or, subtracted and divided, what one step took."""

    now: float
    host: dict[str, float]  # by what it did: the fields of clock.Spent
    busy: list[float]  # of each device, computing or copying
    copying: list[float]
    communicating: list[float]

    def since(self, before: Counters, steps: int = 1) -> Counters:
        """What a step took, of so many between two moments."""
        host = {what: (value - before.host[what]) / steps for what, value in self.host.items()}
        lists = (
            [(b - a) / steps for a, b in zip(earlier, later, strict=True)]
            for earlier, later in zip(before[2:], self[2:], strict=True)
        )
        return Counters((self.now - before.now) / steps, host, *lists)


class Total(NamedTuple):
    """All calls of one operator, copy or collective."""

    calls: int
    seconds: float
    nbytes: int = 0


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
    totals: dict[tuple[int, str, str], Total] = field(default_factory=dict)  # by device, name and phase
    moments: list[float] = field(default_factory=list)  # when the first steps ended
    steps: int = 0
    step: Counters | None = None  # mean of all steps but the first
    bound: str = ""  # what ends a step: "optimizer.step()" or "forward"
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
