"""Judging: an exercise's `checks.py`, run by pytest over evidence, gives a grade.

What a `checks.py` imports is here; `grader.check.judge` is what the rest of the grader calls. This
package knows no particular exercise.
"""

from grader.check.judge import judge
from grader.check.loading import load_checks
from grader.check.runs import require_completed
from grader.check.vocabulary import Check, CheckFailed, Inconclusive, Ungradable, check

__all__ = [
    "Check",
    "CheckFailed",
    "Inconclusive",
    "Ungradable",
    "check",
    "judge",
    "load_checks",
    "require_completed",
]
