"""Which files a submission consists of."""

from __future__ import annotations

from pathlib import Path

from grader.exercise import Exercise

_FILES_AT_MOST = 50
_BYTES_AT_MOST = 1_000_000


class SubmissionMissing(ValueError):
    """There is nothing to grade at the path given; the text says what would be right."""


def files(exercise: Exercise, submission: Path | None) -> tuple[Path, list[Path]]:
    """Return the script and its own helper modules; raises SubmissionMissing.

    A folder is a whole submission, and so is the folder of a file that bears the script's name; any
    other file stands alone, so that one of many in a folder cannot import its neighbours.
    """
    path = submission if submission is not None else exercise.folder / exercise.script
    try:
        path.stat()
    except FileNotFoundError:
        pass
    except OSError as problem:
        raise SubmissionMissing(f"{str(path)[:200]} cannot be read: {problem.strerror}.") from None
    if path.is_dir():
        path = path / exercise.script
        if not path.is_file():
            raise SubmissionMissing(f"{path.parent} holds no {exercise.script}.")
    if not path.exists():
        raise SubmissionMissing(f"There is no file {path}.")
    if not path.is_file():
        raise SubmissionMissing(f"{path} is not a file.")
    if path.suffix != ".py":
        raise SubmissionMissing(f"{path} is not a Python file; its name must end in .py.")
    if path.stat().st_size > _BYTES_AT_MOST:
        raise SubmissionMissing(
            f"{path} is larger than {_BYTES_AT_MOST // 1000} kB; a training script is not."
        )
    if path.name != exercise.script:
        return path, []
    own = {exercise.script, "data.py"}
    if path.parent.resolve() == exercise.folder:
        own |= {exercise.baseline, exercise.checks}
    helpers = [
        helper
        for helper in sorted(path.parent.glob("*.py"))
        if helper.name not in own
        and helper.is_file()
        and not helper.is_symlink()
        and helper.stat().st_size <= _BYTES_AT_MOST
    ]
    return path, helpers[:_FILES_AT_MOST]
