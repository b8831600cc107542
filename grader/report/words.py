"""The words, marks and number formats that all reports share."""

from __future__ import annotations

import re
import shlex
from typing import NamedTuple

from grader.devices import Devices
from grader.grade import CheckResult, Grade, Outcome


class Mark(NamedTuple):
    """How an outcome is shown; never by colour alone."""

    symbol: str
    plain: str  # the same in ASCII
    word: str


MARKS = {
    Outcome.PASSED: Mark("✔", "+", "passed"),
    Outcome.FAILED: Mark("✘", "x", "failed"),
    Outcome.ERROR: Mark("✘", "x", "error"),
    Outcome.TIMEOUT: Mark("✘", "x", "timeout"),
    Outcome.OUT_OF_MEMORY: Mark("✘", "x", "out of memory"),
    Outcome.SKIPPED: Mark("–", "-", "skipped"),
    Outcome.INCONCLUSIVE: Mark("?", "?", "inconclusive"),
    Outcome.UNGRADABLE: Mark("!", "!", "ungradable"),
}

_VERDICTS = {
    Outcome.ERROR: "The script raised an error.",
    Outcome.TIMEOUT: "The script took longer than it may.",
    Outcome.OUT_OF_MEMORY: "The script needed more memory than there is.",
    Outcome.INCONCLUSIVE: "The measurement was too noisy to decide. Grade again on a quieter machine.",
    Outcome.UNGRADABLE: "The fault is the grader's and costs you nothing.",
}

# Terminal escape sequences, control characters other than newline and tab, and marks that turn the
# direction of text: a script may print them, and a report must still be what it looks like.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufffe\uffff]"
)


def clean(text: str) -> str:
    """Return a text without anything that could move the cursor, change colours or hide characters.

    Of a line that was overwritten with carriage returns, as progress bars do, the last state remains.
    """
    text = _ESCAPES.sub("", text.replace("\r\n", "\n"))
    lines = (line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return _CONTROLS.sub("", "\n".join(lines)).expandtabs(4)


def verdict(grade: Grade) -> str:
    """The result in one sentence."""
    if grade.outcome is Outcome.PASSED:
        return "All checks passed."
    passed = sum(check.outcome is Outcome.PASSED for check in grade.checks)
    return _VERDICTS.get(grade.outcome, f"{passed} of {len(grade.checks)} checks passed.")


def points(score: float, max_score: float) -> str:
    """ "25 / 25", without a decimal point where none is needed."""
    return f"{score:.4g} / {max_score:.4g}"


def headline(grade: Grade) -> str:
    """The points, or that none were given or taken."""
    if grade.outcome is Outcome.UNGRADABLE:
        return "Not graded"
    return f"{points(grade.score, grade.max_score)} points"


def check_points(check: CheckResult) -> str:
    """The points of a check, with a dash where the grader itself is at fault."""
    if check.outcome is Outcome.UNGRADABLE:
        return f"- / {check.max_score:.4g}"
    return points(check.score, check.max_score)


def explains_itself(check: CheckResult) -> bool:
    """Whether a check's outcome calls for saying why it matters."""
    return check.outcome not in (Outcome.PASSED, Outcome.SKIPPED, Outcome.UNGRADABLE)


def percent(share: float | None) -> str:
    """ "87.5%", or a dash where nothing was measured."""
    return "-" if share is None else f"{share:.1%}"


def seconds(value: float | None) -> str:
    """A duration in the unit that leaves it readable, or a dash where nothing was measured."""
    if value is None:
        return "-"
    if value >= 100:
        return f"{value:.0f} s"
    return f"{value:.3g} s" if value >= 1 or value == 0 else f"{1000 * value:.3g} ms"


def epoch(value: float) -> str:
    """The time of an epoch, always in seconds, so that two of them compare at a glance."""
    return f"{value:.3g} s" if value < 100 else f"{value:.0f} s"


def size(count: float) -> str:
    """A number of bytes in binary units, as GPU tools show it."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.3g} {unit}" if count < 1000 else f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.3g} GiB"


def saving(grade: Grade) -> str:
    """ "44.4% less time per epoch", with the interval where it was measured with noise; or nothing.

    Where the two times say nothing about each other, it says why.
    """
    if grade.epoch_seconds.incomparable:
        return f"not comparable: {grade.epoch_seconds.incomparable}"
    share, confidence = grade.epoch_seconds.saving, grade.epoch_seconds.confidence
    if share is None:
        return ""
    text = f"{abs(share):.1%} {'less' if share >= 0 else 'more'} time per epoch"
    if text.startswith("0.0%"):
        text = "no less time per epoch"
    if confidence and confidence[0] != confidence[1]:
        low, high = sorted(confidence)
        text += f" (interval of the saving: {low:.1%} to {high:.1%})"
    return text


def origin(devices: Devices) -> str:
    """Where times and memory come from: "simulated T4", or the name of the real GPU."""
    return f"simulated {devices.profile}" if devices.simulated else devices.profile


def next_step(grade: Grade, exercise: str = "", hints_left: int | None = None) -> str:
    """What the learner can do now, in one sentence; nothing where all is done.

    `exercise` is what was typed for the exercise (its name where left out), `hints_left` the number of
    hints not shown yet (all of them where left out).
    """
    count = grade.hints_available if hints_left is None else hints_left
    if grade.outcome in (Outcome.PASSED, Outcome.UNGRADABLE) or not count:
        return ""
    if count < grade.hints_available:
        what = "the last hint" if count == 1 else f"{count} more hints, one at a time"
    else:
        what = "the hint" if count == 1 else f"{count} hints, one at a time"
    return f"Stuck? `grade {shlex.quote(exercise or grade.exercise)} --hint` shows {what}."


ADVICE = "What to do"  # the label of what an error asks for

HELD_OUT = "Held-out images are neither the script's training nor its validation images."
OUTPUT_RUN = "The accuracy run, on a small data set; the seconds per epoch are those of the full-size run."
