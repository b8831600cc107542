"""The baseline's evidence, kept under a key of everything that it depends on.

An entry is one file, written whole under another name and then renamed, so that a crash leaves either
the old entry or none. A file that cannot be read back is no entry: it is made anew.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import tempfile
from importlib import metadata
from pathlib import Path

from pydantic import ValidationError

from grader.evidence import Record, Runs
from grader.exercise import Exercise

_GRADER = Path(__file__).resolve().parents[1]
_KEPT = 40  # entries; the oldest go


class Entry(Record):
    """What the baseline was seen to do, and what it learned."""

    runs: Runs
    weights: str  # safetensors, base64

    @property
    def weight_bytes(self) -> bytes:
        return base64.b64decode(self.weights)


def cache_folder() -> Path:
    """Where this user's caches live, by the XDG base directory specification."""
    root = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(root) if os.path.isabs(root) else Path.home() / ".cache") / "multigpu-gym"


def key(exercise: Exercise, machine: str, threads: str) -> str:
    """Hash the exercise's files, the grader's own code, the devices and the torch that runs it all."""
    digest = hashlib.sha256()
    own = [
        path for part in ("run", "simgpu") for path in sorted((_GRADER / part).rglob("*")) if path.is_file()
    ]
    theirs = [exercise.folder / name for name in (exercise.baseline, "data.py")]
    for path in [*theirs, *(p for p in own if p.suffix in (".py", ".yaml"))]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    profile = Path(machine.partition("x")[2])
    if profile.suffix in (".yaml", ".yml") and profile.is_file():
        digest.update(profile.read_bytes())
    # Of exercise.yaml what a run depends on; thresholds, points and hints may change.
    settings = exercise.model_dump_json(include={"accuracy_run", "speed_run", "limits", "model"})
    for fact in (settings, machine, threads, metadata.version("torch"), metadata.version("numpy")):
        digest.update(fact.encode() + b"\0")
    return digest.hexdigest()[:40]


def load(name: str) -> Entry | None:
    """Return the entry, or None where there is none that can be read."""
    path = cache_folder() / "baseline" / f"{name}.json"
    try:
        found = Entry.model_validate_json(path.read_bytes())
        base64.b64decode(found.weights, validate=True)
        os.utime(path)
        return found
    except (OSError, ValidationError, ValueError):
        return None


def entry(runs: Runs, weights: bytes) -> Entry:
    """Return an entry for what a baseline's runs gave."""
    return Entry(runs=runs, weights=base64.b64encode(weights).decode())


def store(name: str, kept: Entry) -> None:
    """Keep an entry; a cache that cannot be written costs time, not the grade."""
    folder = cache_folder() / "baseline"
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=folder, prefix=".new-")
        try:
            with os.fdopen(descriptor, "w") as file:
                json.dump(kept.model_dump(mode="json"), file)
            os.replace(temporary, folder / f"{name}.json")
        except BaseException:
            os.unlink(temporary)
            raise
        entries = sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime)
        for old in entries[:-_KEPT]:
            old.unlink(missing_ok=True)
