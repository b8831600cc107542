"""Starting over loses nothing and restores what was handed out, byte for byte."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

import pytest

from grader.course.reset import NotRestorable, changed_lines, original, restore
from grader.exercise import Exercise, load_exercise


@pytest.fixture
def exercise(dataparallel: Path, tmp_path: Path) -> Exercise:
    """A copy of the exercise that may be edited."""
    shutil.copytree(dataparallel, tmp_path / "exercises" / "dataparallel")
    shutil.copytree(dataparallel.parents[1] / "solutions", tmp_path / "solutions")
    copy = load_exercise(tmp_path / "exercises" / "dataparallel")
    shutil.copyfile(original(copy), copy.folder / copy.script)
    return copy


def test_the_script_is_restored_and_the_edited_one_is_kept(exercise: Exercise) -> None:
    script = exercise.folder / "train.py"
    handed_out = script.read_bytes()
    assert changed_lines(exercise) == 0
    script.write_text("mine\n")
    assert changed_lines(exercise)
    backup = restore(exercise)
    assert backup == exercise.folder / "train.py.bak"
    assert backup.read_text() == "mine\n"
    assert script.read_bytes() == handed_out
    assert changed_lines(exercise) == 0


def test_an_earlier_copy_is_never_overwritten(exercise: Exercise) -> None:
    script = exercise.folder / "train.py"
    kept = []
    for text in ("first", "second", "third"):
        script.write_text(text)
        backup = restore(exercise)
        assert backup
        kept.append((backup.name, backup.read_text()))
    assert kept == [("train.py.bak", "first"), ("train.py.bak2", "second"), ("train.py.bak3", "third")]


def test_a_script_that_is_gone_comes_back(exercise: Exercise) -> None:
    (exercise.folder / "train.py").unlink()
    assert changed_lines(exercise) is None
    assert restore(exercise) is None
    assert changed_lines(exercise) == 0


def test_an_exercise_without_a_copy_says_so(exercise: Exercise) -> None:
    shutil.rmtree(exercise.folder / ".original")
    with pytest.raises(NotRestorable, match=r"keeps no copy of its train\.py as handed out"):
        restore(exercise)


def test_what_is_handed_out_does_what_the_baseline_does(dataparallel: Path) -> None:
    """The two differ in comments and in the module's docstring alone."""
    handed_out, baseline = (
        ast.parse(path.read_text())
        for path in (dataparallel / ".original/train.py", dataparallel / "baseline.py")
    )
    assert list(map(ast.dump, handed_out.body[1:])) == list(map(ast.dump, baseline.body[1:]))


def test_an_untouched_script_is_what_is_handed_out(dataparallel: Path) -> None:
    """Comments count: while the script does what the copy does, nobody has worked on it yet."""
    script, handed_out = ((dataparallel / name).read_text() for name in ("train.py", ".original/train.py"))
    if ast.dump(ast.parse(script)) != ast.dump(ast.parse(handed_out)):
        pytest.skip("train.py has been worked on")
    assert script == handed_out
