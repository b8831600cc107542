"""Finding the exercise that someone means."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from grader.course.exercises import NoSuchExercise, find, known, shown


@pytest.fixture
def course(tmp_path: Path, dataparallel: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the exercises `dataparallel` and `list`, and the working directory."""
    for name in ("dataparallel", "list"):
        shutil.copytree(dataparallel, tmp_path / "exercises" / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "text",
    [
        "exercises/dataparallel",
        "exercises/dataparallel/",
        "dataparallel",
        "exercises/dataparallel/exercise.yaml",
    ],
)
def test_a_path_a_name_and_the_specification_all_mean_the_exercise(course: Path, text: str) -> None:
    assert find(text).resolve() == course / "exercises" / "dataparallel"


def test_an_exercise_is_found_by_name_from_inside_of_it(
    course: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(course / "exercises" / "list")
    assert find("dataparallel") == course / "exercises" / "dataparallel"
    assert find(".").resolve() == course / "exercises" / "list"
    assert [folder.name for folder in known()] == ["dataparallel", "list"]
    assert shown(find(".")) == "."
    assert shown(find("dataparallel")) == str(course / "exercises" / "dataparallel")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("exercises/paralel", "There is no exercise exercises/paralel; did you mean exercises/dataparallel?"),
        ("zebra", "There is no exercise zebra; the exercises are: exercises/dataparallel, exercises/list."),
        ("exercises", "The folder exercises is not an exercise: it holds no exercise.yaml"),
        ("exercises/list/train.py", "exercises/list/train.py is a file, and an exercise is a folder"),
    ],
)
def test_anything_else_is_answered_with_what_there_is(course: Path, text: str, sentence: str) -> None:
    with pytest.raises(NoSuchExercise) as refusal:
        find(text)
    assert str(refusal.value).startswith(sentence)
    assert "\n" not in str(refusal.value)
