"""Seconds per epoch of baseline and submission.

On simulated GPUs each script's clock is exact: one run each. On real GPUs the two scripts are run in
turn, so that drift hits both alike; the first epoch of a run warms up and is not counted, and runs
repeat until there are enough epochs and the interval of the saving has left the threshold.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from grader.evidence import RunEvidence, RunOutcome, Timing
from grader.run.assemble import assemble
from grader.run.exchange import RawRun
from grader.run.protocol import Fence

Runner = Callable[[Callable[[Fence], bool]], RawRun]  # runs one script under a fence callback
Clock = Callable[[Fence], float]

EPOCHS_WANTED = 5  # measured epochs of each script at least
ROUNDS_AT_MOST = 8
_RESAMPLES = 2000
_CONFIDENCE = 0.95


def virtual_clock(fence: Fence) -> float:
    """The simulated machine's time at the fence."""
    return fence.virtual if fence.virtual is not None else float("nan")


def wall_clock(fence: Fence) -> float:
    """The parent's own clock, read when the fence's record arrives."""
    return time.perf_counter()


@dataclass
class Stopwatch:
    """Times the epochs of one run and ends it when it has measured enough."""

    clock: Clock
    warm_up: int  # epochs not counted
    wanted: int  # epochs to measure; 0: let the script run to its end
    seconds: dict[int, float] = field(default_factory=dict)
    _elapsed: float = 0.0
    _since: float | None = None  # None while it stands still

    def __call__(self, fence: Fence) -> bool:
        """Note the fence; return whether the script may go on."""
        now = self.clock(fence)
        if fence.edge == "begin":
            self._elapsed = 0.0
        elif self._since is not None:
            self._elapsed += now - self._since
        self._since = now if fence.edge in ("begin", "resume") else None
        if fence.edge != "end":
            return True
        if fence.steps:  # a pass without a step is no epoch
            self.seconds[fence.epoch] = self._elapsed
        return not self.wanted or len(self.measured) < self.wanted

    @property
    def measured(self) -> list[float]:
        return [self.seconds[epoch] for epoch in sorted(self.seconds)[self.warm_up :]]


def simulated(run: Runner, epochs: int) -> tuple[RunEvidence, list[float]]:
    """Run a script once on the virtual clock, for so many epochs."""
    watch = Stopwatch(virtual_clock, warm_up=0, wanted=epochs)
    raw = run(watch)
    return assemble(raw, watch.seconds), watch.measured


def in_turn(
    baseline: Runner, submission: Runner, threshold: float, clock: Clock = wall_clock
) -> tuple[RunEvidence, RunEvidence, Timing]:
    """Run both scripts alternately until the saving is known; stops early when either does not complete."""
    seconds: tuple[list[float], list[float]] = ([], [])
    latest: list[RunEvidence] = []
    timing = Timing()
    for _ in range(ROUNDS_AT_MOST):
        latest = []
        for run, measured in zip((baseline, submission), seconds, strict=True):
            watch = Stopwatch(clock, warm_up=1, wanted=EPOCHS_WANTED)
            latest.append(assemble(run(watch), watch.seconds))
            measured += watch.measured
        timing = compare(*seconds)
        if any(run.outcome is not RunOutcome.COMPLETED for run in latest):
            break
        if min(map(len, seconds)) >= EPOCHS_WANTED and not straddles(timing.confidence, threshold):
            break
    return latest[0], latest[1], timing


def straddles(interval: tuple[float, float] | None, threshold: float) -> bool:
    """Whether the interval holds the threshold, so that no verdict follows."""
    return interval is None or interval[0] < threshold <= interval[1]


def compare(baseline: list[float], submission: list[float]) -> Timing:
    """Return the relative saving of the medians and its 95 % bootstrap interval (percentile method)."""
    timing = Timing(baseline=baseline, submission=submission)
    if not baseline or not submission or statistics.median(baseline) <= 0:
        return timing
    saving = 1 - statistics.median(submission) / statistics.median(baseline)
    draw = random.Random(0)  # the same measurements give the same interval
    savings = sorted(
        1
        - statistics.median(draw.choices(submission, k=len(submission)))
        / statistics.median(draw.choices(baseline, k=len(baseline)))
        for _ in range(_RESAMPLES)
    )
    tail = round((1 - _CONFIDENCE) / 2 * _RESAMPLES)
    return timing.model_copy(
        update={"saving": saving, "confidence": (savings[tail], savings[-tail - 1])},
    )
