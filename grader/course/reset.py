"""Starting over: the script that a learner edits, put back as it was handed out.

Each exercise keeps a copy of its script under `.original/`, byte for byte as handed out; that copy is
what is restored. What the learner had is kept beside the script under a name that is still free.
"""

from __future__ import annotations

import difflib
import os
import shutil
from pathlib import Path

from grader.exercise import Exercise

ORIGINALS = ".original"


class NotRestorable(ValueError):
    """The exercise cannot be put back; the text says why."""


def original(exercise: Exercise) -> Path:
    """Return the script as handed out; raises NotRestorable where the exercise keeps none."""
    path = exercise.folder / ORIGINALS / exercise.script
    if not path.is_file():
        raise NotRestorable(
            f"The exercise {exercise.name} keeps no copy of its {exercise.script} as handed out ({path})."
        )
    return path


def changed_lines(exercise: Exercise) -> int | None:
    """Return how many lines of the script were added, changed or removed; None where there is no script."""
    script = exercise.folder / exercise.script
    if not script.exists():
        return None
    before, after = original(exercise).read_bytes(), script.read_bytes()
    if before == after:
        return 0
    matcher = difflib.SequenceMatcher(None, before.split(b"\n"), after.split(b"\n"), autojunk=False)
    spans = [(b - a, d - c) for tag, a, b, c, d in matcher.get_opcodes() if tag != "equal"]
    return max(1, sum(max(span) for span in spans))


def restore(exercise: Exercise) -> Path | None:
    """Put the script back and return where the edited one was kept, or None where there was none."""
    source, script = original(exercise), exercise.folder / exercise.script
    backup = None
    if script.exists():
        backup = _free_name(script)
        shutil.copy2(script, backup)
    temporary = script.with_name(f".{script.name}.new")
    shutil.copyfile(source, temporary)
    os.replace(temporary, script)
    return backup


def _free_name(script: Path) -> Path:
    name = script.with_name(script.name + ".bak")
    number = 1
    while name.exists():
        number += 1
        name = script.with_name(f"{script.name}.bak{number}")
    return name
