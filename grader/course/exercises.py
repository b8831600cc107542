"""Finding the exercise that someone means."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

from grader.exercise import SPECIFICATION, find_exercises

FOLDER = "exercises"


class NoSuchExercise(ValueError):
    """There is no exercise where one was asked for; the text says which there are."""


def known(start: Path | None = None) -> list[Path]:
    """Return the exercises' folders, by name.

    They are looked for in `exercises/` of the working directory (or `start`), then of each folder above
    it, then beside this package; the first that holds any counts.
    """
    start = (start or Path.cwd()).resolve()
    beside = Path(__file__).resolve().parents[2]
    for folder in (start, *start.parents, beside):
        found = find_exercises(folder / FOLDER)
        if found:
            return found
    return []


def find(text: str) -> Path:
    """Return the folder of the exercise at a path or, where no such path exists, of that name.

    Raises NoSuchExercise. A path that exists wins, so `./list` reaches an exercise of any name.
    """
    path = Path(text).expanduser()
    if path.name == SPECIFICATION and path.is_file():
        return path.parent
    if (path / SPECIFICATION).is_file():
        return path
    exercises = known()
    if not path.exists():
        named = [folder for folder in exercises if folder.name == text]
        if named:
            return named[0]
    raise NoSuchExercise(_sentence(text, path, exercises))


def shown(folder: Path) -> str:
    """Return a folder as one would type it from here: relative to the working directory where it is below."""
    folder = folder.resolve()
    return os.path.relpath(folder) if folder.is_relative_to(Path.cwd()) else str(folder)


def _sentence(text: str, path: Path, exercises: list[Path]) -> str:
    if path.is_dir():
        what = f"The folder {text} is not an exercise: it holds no {SPECIFICATION}"
    elif path.exists():
        what = f"{text} is a file, and an exercise is a folder that holds {SPECIFICATION}"
    else:
        what = f"There is no exercise {text}"
    names = {folder.name: shown(folder) for folder in exercises}
    near = difflib.get_close_matches(path.name, list(names), n=1)
    if near:
        return f"{what}; did you mean {names[near[0]]}?"
    if names:
        return f"{what}; the exercises are: {', '.join(names.values())}."
    return f"{what}; give the path of a folder that holds {SPECIFICATION}."
