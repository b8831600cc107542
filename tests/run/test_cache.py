"""The baseline's evidence is kept by content, and a damaged cache costs time and nothing else."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from grader.evidence import RunEvidence, RunOutcome, Runs
from grader.exercise import load_exercise
from grader.run import cache

RUN = RunEvidence(outcome=RunOutcome.COMPLETED)
RUNS = Runs(accuracy=RUN, speed=RUN)
EXERCISE = Path(__file__).parents[2] / "exercises" / "dataparallel"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def kept() -> Path:
    cache.store("name", cache.entry(RUNS, b"weights"))
    (path,) = (cache.cache_folder() / "baseline").iterdir()
    return path


def test_what_is_stored_is_read_back():
    kept()
    entry = cache.load("name")
    assert entry.runs == RUNS and entry.weight_bytes == b"weights"


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff\xfe", b'{"runs": 1}', b"[]"])
def test_a_damaged_file_is_no_entry(damage):
    kept().write_bytes(damage)
    assert cache.load("name") is None


def test_weights_that_do_not_decode_are_no_entry():
    path = kept()
    entry = json.loads(path.read_text()) | {"weights": "§"}
    path.write_text(json.dumps(entry))
    assert cache.load("name") is None


def test_a_crash_while_writing_leaves_the_old_entry(monkeypatch):
    kept()
    monkeypatch.setattr(json, "dump", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        cache.store("name", cache.entry(RUNS, b"other"))
    assert cache.load("name").weight_bytes == b"weights"
    assert len(list((cache.cache_folder() / "baseline").iterdir())) == 1


def test_a_cache_that_cannot_be_written_is_no_error(home):
    home.write_text("a file where the folder belongs")
    cache.store("name", cache.entry(RUNS, b""))
    assert cache.load("name") is None


def test_the_key_follows_the_files_the_machine_and_the_threads(tmp_path):
    folder = tmp_path / "dataparallel"
    shutil.copytree(EXERCISE, folder)
    exercise = load_exercise(EXERCISE)
    first = cache.key(exercise, "2xT4", "")
    assert cache.key(exercise, "2xT4", "") == first
    assert cache.key(exercise, "4xT4", "") != first
    assert cache.key(exercise, "2xT4", "1") != first
    changed = exercise.model_copy(update={"folder": folder})
    assert cache.key(changed, "2xT4", "") == first
    thresholds = exercise.thresholds.model_copy(update={"saving": 0.5})
    assert cache.key(changed.model_copy(update={"thresholds": thresholds}), "2xT4", "") == first
    with (folder / "baseline.py").open("a") as file:
        file.write("# edited\n")
    assert cache.key(changed, "2xT4", "") != first
