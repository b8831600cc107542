"""The verdict on one submission: the only thing a report may read."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, computed_field

from grader.devices import Devices
from grader.evidence import DeviceUse, ScriptError, Span


class Outcome(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"  # the learner's code raised
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    SKIPPED = "skipped"  # a check it depends on failed
    INCONCLUSIVE = "inconclusive"  # the measurement is too noisy to decide
    UNGRADABLE = "ungradable"  # the grader's fault: never costs the learner


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class CheckResult(Frozen):
    """One check's verdict, in the words a learner reads."""

    id: str  # e.g. "wrapped"
    title: str
    outcome: Outcome
    score: float
    max_score: float
    message: str = ""  # what was seen and what was expected, or why it passed
    why: str = ""  # why it matters
    location: str | None = None  # "train.py:42"
    depends_on: list[str] = []  # ids


class EpochSeconds(Frozen):
    baseline: float | None = None
    submission: float | None = None
    saving: float | None = None  # 1 - submission / baseline
    confidence: tuple[float, float] | None = None  # of the saving
    incomparable: str = ""  # why the two times say nothing about each other; then there is no saving


class AccuracySummary(Frozen):
    """Shares between 0 and 1, all evaluated by the grader; `validation` is on held-out images."""

    train: float | None = None
    validation: float | None = None
    baseline_train: float | None = None
    baseline_validation: float | None = None


class Usage(Frozen):
    """What each GPU did in one training step of a speed run, for the timeline of a report."""

    devices: list[DeviceUse] = []
    spans: list[Span] = []


class Grade(Frozen):
    exercise: str  # its folder's name
    title: str
    submission: str
    devices: Devices
    outcome: Outcome
    checks: list[CheckResult]
    epoch_seconds: EpochSeconds = EpochSeconds()
    accuracy: AccuracySummary = AccuracySummary()
    baseline_usage: Usage = Usage()
    submission_usage: Usage = Usage()
    error: ScriptError | None = None
    output: str = ""  # what the script printed in the accuracy run
    notes: list[str] = []  # what the reader should know: foreign processes, throttling, no sandbox
    hints_available: int = 0

    @computed_field
    @property
    def score(self) -> float:
        return sum(c.score for c in self.checks)

    @computed_field
    @property
    def max_score(self) -> float:
        return sum(c.max_score for c in self.checks)
