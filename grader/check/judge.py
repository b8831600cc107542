"""From evidence to a grade."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from grader.check.isolation import run_isolated
from grader.check.loading import load_checks
from grader.check.plugin import JudgingPlugin, Verdict
from grader.check.vocabulary import Check
from grader.evidence import Evidence, RunEvidence, RunOutcome, ScriptError, Timing
from grader.exercise import Exercise
from grader.grade import AccuracySummary, CheckResult, EpochSeconds, Grade, Outcome, Usage

MESSAGE_LIMIT = 2000  # characters

# A grade is named after the first of these that one of its checks has.
_MOST_TELLING = (
    Outcome.UNGRADABLE,
    Outcome.TIMEOUT,
    Outcome.OUT_OF_MEMORY,
    Outcome.ERROR,
    Outcome.FAILED,
    Outcome.INCONCLUSIVE,
    Outcome.SKIPPED,
)


def judge(exercise: Exercise, evidence: Evidence) -> Grade:
    """Run the exercise's checks over the evidence; the learner's code is not touched.

    Raises `grader.exercise.BrokenExercise` where the checks do not fit the exercise.
    """
    module, checks = load_checks(exercise)
    plugin = JudgingPlugin(module, checks, exercise, evidence)
    try:
        run_isolated(plugin.path, plugin)
        lost = "This check left no verdict."
    except RuntimeError as problem:
        lost = f"The checks could not be run: {problem}."
    unjudged = Verdict(Outcome.UNGRADABLE, f"{lost} This is the grader's fault, not yours.", "")
    if not evidence.devices.graded:
        plugin.verdicts.clear()
        unjudged = Verdict(Outcome.UNGRADABLE, f"Not judged on {evidence.devices.label}.", "")
    results = [_result(item, plugin.verdicts.get(item.id, unjudged), exercise) for item in checks]
    incomparable = next((v.incomparable for v in plugin.verdicts.values() if v.incomparable), "")
    return _grade(exercise, evidence, results, incomparable)


def _result(item: Check, verdict: Verdict, exercise: Exercise) -> CheckResult:
    """Points are given for a pass; what the grader could not judge is taken out of the total."""
    points = exercise.points[item.id]
    return CheckResult(
        id=item.id,
        title=item.title,
        outcome=verdict.outcome,
        score=points if verdict.outcome is Outcome.PASSED else 0,
        max_score=0 if verdict.outcome is Outcome.UNGRADABLE else points,
        message=_shortened(verdict.message),
        why=verdict.why,
        location=verdict.location,
        depends_on=list(item.depends_on),
    )


def _shortened(message: str) -> str:
    """A message for people: names and values in it are the script's, and may be of any length."""
    return message if len(message) <= MESSAGE_LIMIT else message[: MESSAGE_LIMIT - 2] + " …"


def _grade(
    exercise: Exercise, evidence: Evidence, results: Sequence[CheckResult], incomparable: str
) -> Grade:
    runs, baseline = evidence.submitted, evidence.baseline
    return Grade(
        exercise=exercise.name,
        title=exercise.title,
        submission=evidence.submission,
        devices=evidence.devices,
        outcome=_overall(results),
        checks=list(results),
        epoch_seconds=_epoch_seconds(evidence.timing, incomparable),
        accuracy=_accuracy(baseline.accuracy, runs.accuracy),
        baseline_usage=Usage(devices=baseline.speed.devices, spans=baseline.speed.spans),
        submission_usage=Usage(devices=runs.speed.devices, spans=runs.speed.spans),
        error=_error(evidence),
        output=runs.accuracy.output,
        notes=[*evidence.notes, *evidence.timing.notes],
        hints_available=len(exercise.hints),
    )


def _overall(results: Sequence[CheckResult]) -> Outcome:
    seen = {result.outcome for result in results}
    return next((outcome for outcome in _MOST_TELLING if outcome in seen), Outcome.PASSED)


def _epoch_seconds(timing: Timing, incomparable: str) -> EpochSeconds:
    return EpochSeconds(
        baseline=median(timing.baseline) if timing.baseline else None,
        submission=median(timing.submission) if timing.submission else None,
        saving=None if incomparable else timing.saving,
        confidence=None if incomparable else timing.confidence,
        incomparable=incomparable,
    )


def _accuracy(baseline: RunEvidence, submitted: RunEvidence) -> AccuracySummary:
    before, after = baseline.accuracy, submitted.accuracy
    return AccuracySummary(
        train=after.train if after else None,
        validation=after.validation if after else None,
        baseline_train=before.train if before else None,
        baseline_validation=before.validation if before else None,
    )


def _error(evidence: Evidence) -> ScriptError | None:
    """The exception to show: one of a run without arithmetic may be about its zeros, and is not shown."""
    runs = evidence.submitted
    own_words = not evidence.devices.simulated or runs.speed.outcome is RunOutcome.OUT_OF_MEMORY
    return runs.accuracy.error or (runs.speed.error if own_words else None)
