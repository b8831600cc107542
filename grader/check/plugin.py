"""The pytest plugin that collects an exercise's checks, runs them and keeps their verdicts."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from grader.check.vocabulary import Check, Finding, marked
from grader.evidence import Evidence
from grader.exercise import Exercise
from grader.grade import Outcome


@dataclass(frozen=True)
class Verdict:
    """What one check said; `location` is "file:line" in the submission."""

    outcome: Outcome
    message: str
    why: str
    location: str | None = None
    incomparable: str = ""  # why the epoch times do not compare


class _ChecksFile(pytest.Module):
    """The checks module, imported already: pytest neither searches nor imports anything for it."""

    checks: ModuleType

    def _getobj(self) -> ModuleType:
        return self.checks


class JudgingPlugin:
    """Gives checks their fixtures and collects what they say, by check id.

    Collection admits the checks file alone: what else lies in its folder is not read.
    """

    def __init__(
        self, module: ModuleType, checks: Sequence[Check], exercise: Exercise, evidence: Evidence
    ) -> None:
        self.path, self.module = exercise.folder / exercise.checks, module
        self._titles = {item.id: item.title for item in checks}
        self._exercise, self._evidence = exercise, evidence
        self._notes: dict[str, str] = {}
        self.verdicts: dict[str, Verdict] = {}

    @pytest.fixture
    def evidence(self) -> Evidence:
        """What baseline and submission were seen to do."""
        return self._evidence

    @pytest.fixture
    def exercise(self) -> Exercise:
        """The exercise, for its thresholds."""
        return self._exercise

    def pytest_collect_directory(self, path: Path, parent: pytest.Collector) -> pytest.Collector:
        # A folder with an __init__.py would otherwise be a package, which pytest imports.
        return pytest.Dir.from_parent(parent, path=path)

    def pytest_ignore_collect(self, collection_path: Path) -> bool:
        return collection_path.is_file() and collection_path != self.path

    def pytest_pycollect_makemodule(self, module_path: Path, parent: pytest.Collector) -> pytest.Module:
        node = _ChecksFile.from_parent(parent, path=module_path)
        node.checks = self.module
        return node

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makeitem(
        self, collector: pytest.Collector, name: str, obj: object
    ) -> list[pytest.Item]:
        return [pytest.Function.from_parent(collector, name=name)] if marked(obj) else []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        blocking = self._blocking(_check_of(item))
        if blocking is not None:
            pytest.skip(blocking)

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> bool:
        """Call the check and keep the text that it returns, which pytest itself would object to."""
        wanted = inspect.signature(pyfuncitem.obj).parameters
        note = pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in wanted})
        self._notes[_check_of(pyfuncitem).id] = note if isinstance(note, str) else ""
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        if call.when == "teardown" and call.excinfo is None:
            return
        subject = _check_of(item)
        if call.excinfo is not None:
            self.verdicts[subject.id] = self._verdict(subject, call.excinfo.value)
        elif call.when == "call":
            note = self._notes.get(subject.id, "")
            self.verdicts[subject.id] = Verdict(Outcome.PASSED, note, subject.why)

    def _blocking(self, subject: Check) -> str | None:
        """Why the check cannot be judged, or None where all that it depends on passed."""
        for needed in subject.depends_on:
            verdict = self.verdicts.get(needed)
            if verdict is None or verdict.outcome is not Outcome.PASSED:
                state = "was not judged" if verdict is None else _STATES[verdict.outcome]
                return f'Not judged, since "{self._titles[needed]}" {state}.'
        return None

    def _verdict(self, subject: Check, raised: BaseException) -> Verdict:
        match raised:
            case Finding():
                place = str(raised.site) if raised.site else None
                why, incomparable = raised.why or subject.why, raised.incomparable
                return Verdict(raised.outcome, raised.message, why, place, incomparable)
            case pytest.skip.Exception():
                ungradable = any(self._is_ungradable(needed) for needed in subject.depends_on)
                outcome = Outcome.UNGRADABLE if ungradable else Outcome.SKIPPED
                return Verdict(outcome, str(raised), subject.why)
            case AssertionError() | pytest.fail.Exception() if str(raised):
                return Verdict(Outcome.FAILED, str(raised), subject.why)
        place = _deepest(raised, self.path)
        message = f"The check itself went wrong{place}: {type(raised).__name__}: {raised}".rstrip(": ")
        return Verdict(Outcome.UNGRADABLE, f"{message}. This is the grader's fault, not yours.", subject.why)

    def _is_ungradable(self, id: str) -> bool:
        verdict = self.verdicts.get(id)
        return verdict is not None and verdict.outcome is Outcome.UNGRADABLE


_STATES = {
    Outcome.PASSED: "passed",
    Outcome.FAILED: "failed",
    Outcome.ERROR: "failed",
    Outcome.TIMEOUT: "failed",
    Outcome.OUT_OF_MEMORY: "failed",
    Outcome.SKIPPED: "was skipped",
    Outcome.INCONCLUSIVE: "could not be decided",
    Outcome.UNGRADABLE: "could not be judged",
}


def _check_of(item: pytest.Item) -> Check:
    subject = marked(getattr(item, "obj", None))
    assert subject is not None, "only marked functions are collected"
    return subject


def _deepest(raised: BaseException, path: Path) -> str:
    """Where in the checks file an exception comes from, as " at checks.py:12"."""
    lines = [f.lineno for f in traceback.extract_tb(raised.__traceback__) if f.filename == str(path)]
    return f" at {path.name}:{lines[-1]}" if lines else ""
