"""What is asked of a submission, judged from what it was seen to do.

Every fact of the learner's runs is held against the baseline's in the same kind of run. Both runs must
satisfy what is asked of the wrapping, the placement and the recipe: a script may behave differently in each.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import median

from grader.check import CheckFailed, Inconclusive, Ungradable, check, require_completed
from grader.check.difference import Difference, counted, merged, some
from grader.check.placement import require_placement
from grader.check.recipe import recipe_differences, training_forwards
from grader.check.runs import baseline_incomplete
from grader.check.work import work_differences
from grader.check.wrapping import known_cause, require_wrapped, short_name, wrapper_of
from grader.evidence import Evidence, RunEvidence, Runs
from grader.exercise import Exercise

# N GPUs cannot take less than 1/N of one GPU's time. Noise may seem to allow a little less than that.
IDEAL_MARGIN = 0.05


@check(
    "runs",
    title="The script runs to its end",
    why="Only a program that trains to its last epoch can be judged.",
)
def runs(evidence: Evidence, exercise: Exercise) -> str:
    for name, run in _named_runs(evidence.baseline):
        if run.outcome != "completed":
            raise baseline_incomplete(run, name)
    for name, run in _named_runs(evidence.submitted):
        arithmetic = name == "accuracy run" or not evidence.devices.simulated
        try:
            require_completed(run, name, values_are_real=arithmetic)
        except CheckFailed as failure:
            failure.message += known_cause(run)
            raise
    replaced = sorted({n for _, run in _named_runs(evidence.submitted) for n in run.tampering})
    if replaced:
        raise CheckFailed(
            f"Functions that the measurement relies on were replaced: {some(replaced)}. "
            "Expected: torch, Python's clocks and the grader as they are.",
            why="What a run shows is worth something only while the instruments are left alone.",
        )
    if not any(step.forwards or step.optimized for step in evidence.submitted.accuracy.steps):
        raise CheckFailed("The script ended without a single training step. Expected: it trains the model.")
    return "Both runs, one for the accuracy and one for the speed, completed."


# -- wrapped -----------------------------------------------------------------------------------------


@check(
    "wrapped",
    title="The whole model is trained through nn.DataParallel, on all GPUs",
    depends_on=["runs"],
    why="Only a call of the wrapper splits the batch; the bare model uses the one GPU that it lies on.",
)
def wrapped(evidence: Evidence, exercise: Exercise) -> str:
    for name, run in _named_runs(evidence.submitted):
        require_wrapped(run, name, evidence)
    run = evidence.submitted.accuracy
    used = wrapper_of(training_forwards(run)[0], run)
    return f"Every training forward went through {short_name(used)} over the GPUs {used.device_ids}."


# -- placement ---------------------------------------------------------------------------------------


@check(
    "placement",
    title="Everything is on the right GPU, and every GPU gets its share",
    depends_on=["runs", "wrapped"],
    why="DataParallel copies the model from device_ids[0], and cuts each batch into one part per GPU.",
)
def placement(evidence: Evidence, exercise: Exercise) -> str:
    for name, run in _named_runs(evidence.submitted):
        require_placement(run, name)
    first = training_forwards(evidence.submitted.accuracy)[0]
    shares = ", ".join(f"{device} {rows}" for device, rows in sorted(first.rows_per_device.items()))
    return f"Parameters on {some(first.parameter_devices)}; of the first {first.rows} rows: {shares}."


# -- recipe ------------------------------------------------------------------------------------------


@check(
    "recipe",
    title="The training recipe is kept",
    depends_on=["runs"],
    why="Times and accuracies compare only between programs that train the same model on the same work.",
)
def recipe(evidence: Evidence, exercise: Exercise) -> str:
    differences = _differences(evidence, exercise)
    if differences:
        head = f"{counted(len(differences), 'difference')} from the baseline:"
        site = next((item.site for item in differences if item.site), None)
        raise CheckFailed("\n".join([head, *(f"- {item}" for item in differences)]), site=site)
    steps = len(evidence.submitted.accuracy.optimized_steps)
    return (
        "Model, optimizer, precision and loss are the baseline's. "
        f"In each of the {steps} steps it trained on the same images as the baseline."
    )


def _differences(evidence: Evidence, exercise: Exercise) -> list[Difference]:
    """Everything that differs from the baseline, in either run, the most important first."""
    limits = exercise.thresholds
    proven = frozenset(step.loss_function for step in evidence.submitted.accuracy.optimized_steps)
    found = []
    for name, run in _named_runs(evidence.submitted):
        whole = run is evidence.submitted.accuracy
        before = evidence.baseline.accuracy if whole else evidence.baseline.speed
        accepted = frozenset() if whole else proven
        settings = recipe_differences(before, run, limits.loss_tolerance, limits.weights_tolerance, accepted)
        work = work_differences(before, run, evidence.known_samples, whole=whole)
        found.append((name, [*settings, *work]))
    return merged(found)


# -- speed -------------------------------------------------------------------------------------------


@check(
    "speed",
    title="An epoch takes less time",
    depends_on=["runs"],
    why="More GPUs are worth their price only if the time comes down.",
)
def speed(evidence: Evidence, exercise: Exercise) -> str:
    timing, devices, threshold = evidence.timing, evidence.devices, exercise.thresholds.saving
    if not timing.baseline:
        raise Ungradable("No epoch of the baseline was timed.")
    if not timing.submission:
        raise CheckFailed("No epoch of the script was timed: it completed none in the speed run.")
    before, after = median(timing.baseline), median(timing.submission)
    ideal = before / devices.count
    figures = f"{after:.3g} s per epoch, the baseline {before:.3g} s ({devices.label})"
    if not (math.isfinite(after) and after >= ideal * (1 - IDEAL_MARGIN)):
        raise CheckFailed(
            f"Not plausible: {figures}. {devices.count} GPUs cannot take less than "
            f"{ideal:.3g} s for the same work.",
            incomparable="so short a time is not plausible",
        )
    shirked = [item for item in _differences(evidence, exercise) if item.changes_work]
    if shirked:
        reason = shirked[0].text.partition(";")[0]
        raise CheckFailed(
            f"The times do not compare, since the work is not the same ({figures}): {reason}.",
            incomparable="the work is not the same",
        )
    _require_as_much_computed(evidence)
    saving = 1 - after / before if timing.saving is None else timing.saving
    low, high = timing.confidence or (saving, saving)
    message = f"{figures}: {_change(saving)}. Expected: at least {threshold:.0%} less."
    if low >= threshold:
        return message
    if high >= threshold:
        raise Inconclusive(
            f"{message} The saving lies between {low:.1%} and {high:.1%}, too wide to decide: "
            "grade again when the GPUs are idle."
        )
    raise CheckFailed(message)


def _require_as_much_computed(evidence: Evidence) -> None:
    """On simulated GPUs the time that each was busy is known: several do not do the same work in less."""
    before, after = (
        sum(device.busy_seconds for device in runs.speed.devices)
        for runs in (evidence.baseline, evidence.submitted)
    )
    if evidence.devices.simulated and after < before * (1 - IDEAL_MARGIN):
        raise CheckFailed(
            f"The times do not compare: all GPUs together computed and copied for {after:.3g} s, where the "
            f"baseline's work keeps one busy for {before:.3g} s ({evidence.devices.label}). Expected: the "
            "same work, with its rows on all GPUs.",
            incomparable="the work is not the same",
        )


def _change(saving: float) -> str:
    return f"{saving:.1%} less" if saving >= 0 else f"{-saving:.1%} more"


# -- accuracy ----------------------------------------------------------------------------------------


@check(
    "accuracy",
    title="The accuracy is kept",
    depends_on=["runs"],
    why="Splitting the batch changes where the work is done, and must not change what is learned.",
)
def accuracy(evidence: Evidence, exercise: Exercise) -> str:
    before, after = evidence.baseline.accuracy.accuracy, evidence.submitted.accuracy.accuracy
    limits = exercise.thresholds
    if before is None:
        raise Ungradable("The baseline's accuracy is not known.")
    if after is None:
        raise CheckFailed(
            "No trained weights came back that fit the untouched model, so there is no accuracy."
        )
    seen = f"{after.validation:.1%} of the held-out images are classified rightly"
    if after.validation <= limits.validation_accuracy:
        raise CheckFailed(f"{seen}. Expected: above {limits.validation_accuracy:.1%}.")
    least = before.validation - limits.accuracy_tolerance
    if after.validation < least:
        raise CheckFailed(
            f"{seen}, and {before.validation:.1%} by the baseline. Expected: at least {least:.1%}, "
            f"{limits.accuracy_tolerance * 100:g} points below the baseline's."
        )
    return f"{seen} (the baseline: {before.validation:.1%})."


# -- words -------------------------------------------------------------------------------------------


def _named_runs(runs: Runs) -> Iterator[tuple[str, RunEvidence]]:
    yield "accuracy run", runs.accuracy
    yield "speed run", runs.speed
