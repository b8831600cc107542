"""An exercise's hints, offered one at a time; which were shown is remembered between commands."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import NamedTuple

from grader.exercise import Exercise
from grader.run.cache import cache_folder


class Hint(NamedTuple):
    """The next hint, or the last again once all were shown."""

    text: str
    number: int  # from 1
    total: int
    new: bool  # False where it had been shown before
    kept: bool = True  # False where it could not be remembered that it was shown

    @property
    def remaining(self) -> int:
        """How many have not been shown yet."""
        return self.total - self.number


def next_hint(exercise: Exercise) -> Hint:
    """Return the next hint and remember that it was shown."""
    shown, total = _read(), len(exercise.hints)
    before = total - left(exercise)
    number = min(before + 1, total)
    new = number != before
    kept = not new or _write({**shown, _key(exercise): number})
    return Hint(text(exercise, number), number, total, new, kept)


def left(exercise: Exercise) -> int:
    """Return how many hints have not been shown yet."""
    return max(len(exercise.hints) - _read().get(_key(exercise), 0), 0)


def text(exercise: Exercise, number: int) -> str:
    """Return a hint, counted from 1, as one paragraph."""
    return " ".join(exercise.hints[number - 1].split())


def _file() -> Path:
    return cache_folder() / "hints.json"


def _key(exercise: Exercise) -> str:
    """Name an exercise in one place with one set of hints; other hints start from the first."""
    digest = hashlib.sha256("\0".join([str(exercise.folder), *exercise.hints]).encode())
    return f"{exercise.name}-{digest.hexdigest()[:16]}"


def _read() -> dict[str, int]:
    """Return the number of hints shown by exercise; whatever cannot be read counts as none shown."""
    try:
        found = json.loads(_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {key: count for key, count in found.items() if isinstance(count, int) and count >= 0}


def _write(shown: dict[str, int]) -> bool:
    """Keep the numbers, and return whether that was possible."""
    with contextlib.suppress(OSError):
        _file().parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=_file().parent, prefix=".new-")
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(shown, file, indent=1, sort_keys=True)
        os.replace(temporary, _file())
        return True
    return False
