"""Hints come one at a time and are remembered outside of the exercise."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader.course.hints import next_hint
from grader.exercise import Exercise, load_exercise


@pytest.fixture
def exercise(dataparallel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Exercise:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return load_exercise(dataparallel).model_copy(update={"hints": ["one", "two", "three"]})


def test_each_command_shows_the_next_and_the_last_stays(exercise: Exercise, tmp_path: Path) -> None:
    shown = [next_hint(exercise) for _ in range(4)]
    assert [hint.text for hint in shown] == ["one", "two", "three", "three"]
    assert [hint.remaining for hint in shown] == [2, 1, 0, 0]
    assert [hint.new for hint in shown] == [True, True, True, False]
    assert [path.name for path in (tmp_path / "multigpu-gym").iterdir()] == ["hints.json"]


def test_other_hints_and_another_place_start_from_the_first(exercise: Exercise) -> None:
    next_hint(exercise)
    assert next_hint(exercise.model_copy(update={"hints": ["a", "b"]})).text == "a"
    assert next_hint(exercise.model_copy(update={"folder": Path("/elsewhere/dataparallel")})).text == "one"
    assert next_hint(exercise).text == "two"


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"dataparallel": "x"}', "\xff"])
def test_a_corrupt_memory_starts_from_the_first(exercise: Exercise, tmp_path: Path, content: str) -> None:
    file = tmp_path / "multigpu-gym" / "hints.json"
    file.parent.mkdir()
    file.write_bytes(content.encode("latin-1"))
    assert next_hint(exercise).text == "one"
    assert next_hint(exercise).text == "two"


def test_where_nothing_can_be_remembered_there_is_still_a_hint(
    exercise: Exercise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert next_hint(exercise).text == "one"
