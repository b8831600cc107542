"""A recording in progress: what is switched on in the machine, and how its results are taken."""

from __future__ import annotations

import linecache
import sys
import sysconfig
from pathlib import Path
from textwrap import shorten
from types import FrameType
from typing import TYPE_CHECKING

import torch

from .naming import Naming
from .record import FORWARD, OPTIMIZER, Counters, DeviceRecord, Record, Total
from .steps import Steps, counters

if TYPE_CHECKING:
    from ..machine import Machine

SPANS = 200_000  # about 100 steps of ResNet-50 under nn.DataParallel on two GPUs; a trace of some 40 MB
MARKS = 400_000  # of memory, for each device
_LINE = 60  # characters shown of a line of the script
_SITES = 1_000  # lines of a script that waits are told apart by
_SIMULATION = str(Path(__file__).resolve().parents[1])
_NO_SCRIPTS = tuple({_SIMULATION, *map(sysconfig.get_path, ("stdlib", "purelib", "platlib")), "<"})


class Recording:
    """Records one machine, from `start()` to `stop()`."""

    def __init__(self, machine: Machine, spans: bool, limit: int, marks: int) -> None:
        self.machine = machine
        self.spans = spans
        self._limits = limit, marks
        self.by_optimizer, self.by_forward = Steps(machine.clocks), Steps(machine.clocks)
        self.naming = Naming(self.by_optimizer.mark, self.by_forward.mark, names=spans)
        self.waits: dict[str, list[float]] = {}
        self._before: Counters | None = None

    def start(self) -> None:
        """Begin."""
        machine, (limit, marks) = self.machine, self._limits
        self._before = counters(machine.clocks)
        machine.clocks.totals = {}
        machine.clocks.waited = self._waited
        if self.spans:
            machine.timeline.start(limit)
            for device in machine.devices:
                device.memory.record(marks)
        self.naming.install()

    def stop(self) -> Record:
        """End, once all devices have done what they were given; return what was recorded."""
        machine, clocks = self.machine, self.machine.clocks
        self.naming.remove()
        clocks.waited = None
        clocks.wait()
        assert self._before is not None
        spans = machine.timeline.stop() if self.spans else []
        whole = counters(clocks).since(self._before)
        clocks.totals = None
        steps = self.by_optimizer if self.by_optimizer.count else self.by_forward
        return Record(
            spec=machine.spec,
            profile=machine.profile,
            torch=torch.__version__,
            seconds=clocks.now_range(),
            whole=whole,
            devices=[self._device(index) for index in range(machine.count)],
            moments=steps.moments,
            steps=steps.count,
            step=steps.mean,
            bound="" if not steps.count else OPTIMIZER if steps is self.by_optimizer else FORWARD,
            parallel=self.naming.parallel,
            waits={site: Total(int(calls), took) for site, (calls, took) in self.waits.items()},
            spans=spans,
            with_spans=self.spans,
            full=machine.timeline.full and self.spans,
        )

    def _device(self, index: int) -> DeviceRecord:
        memory = self.machine.devices[index].memory
        marks = memory.stop() if self.spans else []
        peak = max([memory.peak, *(mark.allocated for mark in marks)])
        return DeviceRecord(index, memory.capacity, peak, marks, self.naming.parameters.get(index, 0))

    def _waited(self, seconds: float) -> None:
        site = _site(sys._getframe(1))
        if site not in self.waits and len(self.waits) >= _SITES:
            site = "elsewhere"
        total = self.waits.setdefault(site, [0, 0.0])
        total[0] += 1
        total[1] += seconds


def _site(frame: FrameType | None) -> str:
    """The innermost line of the stack that is not of an installed library, with its text."""
    while frame is not None:
        path = frame.f_code.co_filename
        if not path.startswith(_NO_SCRIPTS):
            line = shorten(linecache.getline(path, frame.f_lineno).strip(), _LINE, placeholder=" ...")
            return f"{Path(path).name}:{frame.f_lineno}" + (f" ({line})" if line else "")
        frame = frame.f_back
    return "elsewhere"
