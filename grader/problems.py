"""What a command answers when it cannot do what it was asked: a sentence and an exit code.

Only an expected problem is told in its own words. Anything else is a fault of ours, whose details go
to a file and not to the person at the terminal.
"""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

import typer

USAGE, UNGRADABLE = 2, 3  # exit codes: a mistake in what was asked, or nothing could be graded

_UsageError: Any = typer.BadParameter.__base__  # of the click that typer brings along


def say(sentence: str, code: int) -> int:
    """Print a sentence on standard error and return an exit code."""
    if hasattr(sys.stderr, "reconfigure"):
        sys.stderr.reconfigure(errors="replace")
    print(f"grade: {sentence}", file=sys.stderr)
    return code


def answer(problem: Exception) -> int:
    """Say what the problem is and return the exit code."""
    code = _expected(problem)
    if code is None:
        file = _keep(problem)
        sentence = f"The grader itself failed, which costs you nothing; the details are in {file}."
        return say(sentence, UNGRADABLE)
    if isinstance(problem, _UsageError):
        sentence = problem.format_message().rstrip(".")
        return say(f"{sentence}. `grade --help` shows what can be given.", code)
    return say(str(problem), code)


def _expected(problem: Exception) -> int | None:
    """Return the exit code of a problem that its text explains, None for any other."""
    if isinstance(problem, _UsageError):
        return USAGE
    from grader.course.exercises import NoSuchExercise
    from grader.course.reset import NotRestorable
    from grader.devices import BadDeviceChoice, NoSuchDevices
    from grader.exercise import BrokenExercise
    from grader.report.targets import UnwritableTarget
    from grader.run import ServerBroken, SubmissionMissing

    mistakes = (
        NoSuchExercise,
        NotRestorable,
        BrokenExercise,
        UnwritableTarget,
        BadDeviceChoice,
        SubmissionMissing,
    )
    if isinstance(problem, mistakes):
        return USAGE
    return UNGRADABLE if isinstance(problem, (NoSuchDevices, ServerBroken)) else None


def _keep(problem: Exception) -> Path:
    """Write the details of a fault to a file and return its path."""
    details = "".join(traceback.format_exception(problem))
    try:
        from grader.run.cache import cache_folder

        file = cache_folder() / "fault.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(details, encoding="utf-8", errors="replace")
    except Exception:  # a full disk, or the very fault that is to be kept
        descriptor, name = tempfile.mkstemp(prefix="grade-fault-", suffix=".txt")
        os.write(descriptor, details.encode("utf-8", "replace"))
        os.close(descriptor)
        file = Path(name)
    return file
