"""Submissions with what is known about them, and ways to grade them.

A submission states in its docstring, after the title, what its verdict must be: lines `key: value`.

    wrong/    fails: check ids, comma separated, none of which may pass
              says: a phrase of what the learner reads about the first of them
              passes: check ids that must pass all the same (optional)
              outcome: of the first check, where it is another than failed or error (optional)
    right/    unwrapped fails, unwrapped says: the same of a mutation that takes the wrapper away, where the
              style depends on what a wrapper does with devices (optional)
    hostile/  at most: points that it may get, which are those of the same script without the lines
              between the attack's markers
              through: "command line" where grading in this process would be unwise (optional)
    both      seconds: wall-clock limit of a run (optional)
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from grader.check import judge
from grader.exercise import load_exercise
from grader.grade import CheckResult, Grade, Outcome
from grader.run import gather
from grader.run.launch import Server
from tests.submissions.twin import REPOSITORY, make_twin, shrink

CORPUS = Path(__file__).parent / "dataparallel"
_FIELD = re.compile(r"^(?P<key>[a-z ]+): (?P<value>.+)$", re.MULTILINE)
_ATTACK = re.compile(r"^ *# --- attack\n.*?^ *# --- end of attack\n", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Submission:
    """A script of the corpus and what its header says."""

    name: str
    source: str
    fields: dict[str, str]

    def listed(self, key: str) -> list[str]:
        """Return the comma-separated values of a field, none where it is missing."""
        return [value.strip() for value in self.fields.get(key, "").split(",") if value.strip()]

    @property
    def seconds(self) -> float | None:
        return float(self.fields["seconds"]) if "seconds" in self.fields else None

    @property
    def without_attack(self) -> str:
        return _ATTACK.sub("", self.source)


def read(path: Path) -> Submission:
    """Read a submission; its header is text, so that a script with a syntax error has one too."""
    source = path.read_text(encoding="utf-8")
    header = source.split('"""')[1]
    return Submission(path.stem, source, {m["key"]: m["value"] for m in _FIELD.finditer(header)})


def corpus(kind: str) -> list[Submission]:
    """Return the submissions of "wrong", "right" or "hostile", by name."""
    return [read(path) for path in sorted((CORPUS / kind).glob("*.py"))]


class Twin:
    """The twin of the exercise with a run server that stays open; use as a context manager."""

    def __init__(self, folder: Path) -> None:
        self.folder = make_twin(folder)
        self._exercise = load_exercise(self.folder)
        self._scripts = folder / "submissions"
        self._server = Server("")
        self._graded = 0

    def __enter__(self) -> Twin:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()

    def write(self, source: str) -> Path:
        """Write a script of the original exercise as one of the twin, alone in a new folder."""
        self._graded += 1
        folder = self._scripts / str(self._graded)
        folder.mkdir(parents=True)
        script = folder / "train.py"
        script.write_text(shrink(source), encoding="utf-8")
        return script

    def grade(self, source: str, seconds: float | None = None) -> Grade:
        """Grade a script of the original exercise; `seconds` is a shorter limit for its runs."""
        exercise = self._exercise
        if seconds is not None:
            limits = exercise.limits.model_copy(update={"seconds": seconds})
            exercise = exercise.model_copy(update={"limits": limits})
        return judge(exercise, gather(exercise, self.write(source), "sim", server=self._server))


def grade_by_command(exercise_folder: Path, submission: Path) -> tuple[int, Grade]:
    """Grade with the real command in a process of its own; return its exit code and the grade it wrote."""
    command = [sys.executable, "-m", "grader.cli", str(exercise_folder), str(submission), "--json", "-"]
    run = subprocess.run(
        [*command, "--gpus", "sim"],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=submission.parent,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    written = json.loads(run.stdout)
    assert written["score"] == sum(check["score"] for check in written["checks"])
    return run.returncode, Grade.model_validate({k: written[k] for k in Grade.model_fields if k in written})


def check_of(grade: Grade, identifier: str) -> CheckResult:
    """Return the result of one check."""
    return next(check for check in grade.checks if check.id == identifier)


def told(grade: Grade, check: CheckResult) -> str:
    """Everything that a learner reads about one check."""
    parts = [check.message, check.why]
    if grade.error is not None and check.outcome in (Outcome.ERROR, Outcome.OUT_OF_MEMORY):
        parts += [grade.error.type, grade.error.message, grade.error.explanation, grade.error.look_at]
    return "\n".join(parts)


def summary(grade: Grade) -> str:
    """A grade in a few lines, for a failing test's message."""
    lines = [f"{grade.score:g} of {grade.max_score:g}, {grade.outcome}"]
    lines += [f"  {c.id} {c.outcome} {c.score:g}/{c.max_score:g}: {c.message}" for c in grade.checks]
    if grade.error is not None:
        lines.append(f"  {grade.error.type}: {grade.error.message}")
        lines.append(f"  {grade.error.explanation} {grade.error.look_at}")
    return "\n".join(lines)
