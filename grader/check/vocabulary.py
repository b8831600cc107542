"""The words in which a check is written.

    @check("accuracy", title="The accuracy is kept", depends_on=["runs"], why="A fast wrong model is no use.")
    def accuracy_is_kept(evidence, exercise):
        seen = evidence.submitted.accuracy.accuracy
        if seen is None:
            raise CheckFailed("No weights came back.")
        return f"{seen.validation:.1%} of the held-out images are right."

A check is a pytest function over the fixtures `evidence` (`grader.evidence.Evidence`) and `exercise`
(`grader.exercise.Exercise`). It passes by returning, a returned text being the message that the
learner reads, and says anything else by raising. A plain `assert condition, "message"` works as well.
What it is worth stands in the exercise's specification.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from grader.evidence import Site
from grader.grade import Outcome

Function = TypeVar("Function", bound=Callable[..., object])

MARK = "__grader_check__"


@dataclass(frozen=True)
class Check:
    """What is known about a check before it runs."""

    id: str
    title: str
    depends_on: tuple[str, ...] = ()
    why: str = ""  # why it matters, for the learner
    line: int = 0  # of the function, in its file


class Finding(Exception):
    """A verdict other than "passed": what was seen, what was expected, and where.

    `why` replaces the check's own `why` where a particular mistake has a better reason. `incomparable`
    says why the epoch times of baseline and submission do not compare, where that was found.
    """

    outcome = Outcome.FAILED

    def __init__(
        self,
        message: str,
        *,
        site: Site | None = None,
        why: str = "",
        outcome: Outcome | None = None,
        incomparable: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.site = site
        self.why = why
        self.incomparable = incomparable
        self.outcome = outcome or type(self).outcome


class CheckFailed(Finding):
    """The submission does not do what the check asks."""


class Inconclusive(Finding):
    """The measurement is too noisy to decide."""

    outcome = Outcome.INCONCLUSIVE


class Ungradable(Finding):
    """The grader, not the submission, is at fault: the check costs the learner nothing."""

    outcome = Outcome.UNGRADABLE


def check(
    id: str, *, title: str, depends_on: Iterable[str] = (), why: str = ""
) -> Callable[[Function], Function]:
    """Make a function of a `checks.py` a check, skipped where one that it depends on did not pass."""

    def mark(function: Function) -> Function:
        line = function.__code__.co_firstlineno if hasattr(function, "__code__") else 0
        setattr(function, MARK, Check(id, title, tuple(depends_on), why, line))
        return function

    return mark


def marked(candidate: object) -> Check | None:
    """The check that a function is, or None."""
    found = getattr(candidate, MARK, None)
    return found if isinstance(found, Check) else None
