"""Loading an exercise: what a good folder gives, and what the author of a broken one reads."""

import subprocess
import sys
from pathlib import Path

import pytest

from grader.exercise import BrokenExercise, find_exercises, load_exercise

ROOT = Path(__file__).parent.parent

VALID = """\
title: Two GPUs
summary: Use both.
script: train.py
baseline: baseline.py
checks: checks.py
model: Net
solution: solution.py
devices:
  simulated: 2xT4
  minimum: 2
limits:
  seconds: 300
  tasks: 256
thresholds:
  saving: 0.40
points:
  runs: 5
  wrapped: 95
hints:
  - Look at the model.
  - Wrap it.
"""

CHECKS = """\
from grader.check import check

@check("runs", title="It runs")
def test_runs(evidence):
    pass

@check(id="wrapped", title="It is wrapped")
def test_wrapped(evidence):
    pass
"""


@pytest.fixture
def folder(tmp_path):
    """A complete small exercise named `small`."""
    folder = tmp_path / "exercises" / "small"
    folder.mkdir(parents=True)
    (folder / "exercise.yaml").write_text(VALID)
    (folder / "checks.py").write_text(CHECKS)
    (folder / "baseline.py").write_text("class Net:\n    pass\n")
    for name in ("train.py", "data.py", "solution.py"):
        (folder / name).write_text("")
    return folder


def faults_of(folder):
    with pytest.raises(BrokenExercise) as broken:
        load_exercise(folder)
    return broken.value.faults


def test_a_valid_exercise_keeps_what_it_says_and_has_defaults_for_the_rest(folder):
    exercise = load_exercise(folder)
    assert exercise.name == "small"
    assert exercise.folder == folder
    assert exercise.solution == folder / "solution.py"
    assert exercise.points == {"runs": 5, "wrapped": 95}
    assert exercise.hints == ["Look at the model.", "Wrap it."]
    assert exercise.limits.seconds == 300
    assert exercise.speed_run.data == "synthetic:60000"


def test_an_exercise_cannot_be_changed(folder):
    with pytest.raises(ValueError, match="frozen"):
        load_exercise(folder).title = "Another"


# What is replaced in VALID by what; for each fault its line, and parts of what was found and expected.
BROKEN = {
    "a percentage for a share": ("0.40", "40", [(15, "40", "0.40 for 40 %")]),
    "negative points": ("runs: 5", "runs: -5", [(17, "-5", "at least 0")]),
    "points in words": ("runs: 5", "runs: five", [(17, '"five"', "a number")]),
    "points for an unknown check": (
        "runs: 5",
        "run: 5",
        [(17, "`run`", "`runs`?"), (16, "`runs`", "checks.py")],
    ),
    "points for a check like no other": (
        "  wrapped",
        "  zeal: 1\n  wrapped",
        [(18, "`zeal`", "runs, wrapped")],
    ),
    "a check without points": ("  wrapped: 95\n", "", [(16, "`wrapped`", "`wrapped: POINTS`")]),
    "no points at all": ("5\n  wrapped: 95", "0\n  wrapped: 0", [(16, "no points", "above 0")]),
    "a misspelled key": ("model:", "modell:", [(6, "`modell`", "`model`?")]),
    "a misspelled key inside": ("seconds: 300", "second: 300", [(12, "`second`", "`seconds`?")]),
    "a key like no other": ("model: Net", "colour: red", [(6, "`colour`", "one of title")]),
    "a key that is ours to set": ("model: Net", "folder: /tmp", [(6, "`folder`", "one of title")]),
    "a missing key": ("summary: Use both.\n", "", [(1, "`summary`", "the task in one sentence")]),
    "no points section": (
        VALID[VALID.index("points") : VALID.index("hints")],
        "",
        [(1, "`points`", "every check")],
    ),
    "a blank title": ("Two GPUs", '" "', [(1, '""', "name for people")]),
    "a number for text": ("Two GPUs", "2", [(1, "2", "in quotes")]),
    "text for a number": ("seconds: 300", 'seconds: "300"', [(12, 'the text "300"', "a number")]),
    "a fraction for a count": ("tasks: 256", "tasks: 2.5", [(13, "2.5", "a whole number")]),
    "true for a number": ("seconds: 300", "seconds: true", [(12, "true", "a number")]),
    "no time at all": ("seconds: 300", "seconds: 0", [(12, "0", "above 0")]),
    "infinity": ("0.40", ".inf", [(15, "inf", "0.40 for 40 %")]),
    "not a number": ("seconds: 300", "seconds: .nan", [(12, "nan", "a number")]),
    "a section without content": (
        "  seconds: 300\n  tasks: 256\n",
        "",
        [(11, "no value", "keys and values")],
    ),
    "a list for a section": ("  saving: 0.40", "  - 0.40", [(15, "a list", "keys and values")]),
    "no hints": (
        "hints:\n  - Look at the model.\n  - Wrap it.",
        "hints: []",
        [(19, "empty list", "at least 1")],
    ),
    "a blank hint": ("- Wrap it.", "- ''", [(21, '""', "more explicit")]),
    "one text for the hints": (
        "hints:\n  - Look at the model.\n  - Wrap it.",
        "hints: Wrap it.",
        [(19, "Wrap it", "a list")],
    ),
    "an unknown GPU": ("2xT4", "2xT99", [(9, "'2xT99'", "for example 2xT4")]),
    "no GPUs": ("2xT4", "0xT4", [(9, "0 GPUs", "for example 2xT4")]),
    "fewer GPUs than the minimum": ("minimum: 2", "minimum: 4", [(9, "2 GPUs where `minimum` is 4", "4x")]),
    "a minimum below one": ("minimum: 2", "minimum: 0", [(10, "0", "at least 1")]),
    "a script that is not there": ("train.py", "trian.py", [(3, "trian.py", "train.py, which is there")]),
    "a script elsewhere": (
        "script: train.py",
        "script: ../train.py",
        [(3, "../train.py", "beside exercise.yaml")],
    ),
    "a solution that is not there": (
        "solution.py",
        "no/where.py",
        [(7, "no/where.py", "no `solution` at all")],
    ),
    "a class that is not there": ("model: Net", "model: Nett", [(6, "no class Nett", "Net")]),
    "an impossible class": ("model: Net", "model: a b", [(6, '"a b"', "trained class")]),
    "the same key twice": (
        "model: Net",
        "model: Net\ntitle: Again",
        [(7, "first is in line 1", "each key once")],
    ),
    "a number as a key": ("runs: 5", "5: 5", [(17, "`5` as a key", "a word"), (16, "`runs`", "POINTS")]),
    "an anchor": (
        "runs: 5\n  wrapped: 95",
        "runs: &half 50\n  wrapped: *half",
        [(17, "`&half`", "anchors and aliases are not used")],
    ),
    "an anchor inside itself": (
        "  - Wrap it.",
        "  - &me [*me]",
        [(21, "`&me`", "anchors and aliases are not used")],
    ),
    "an alias to nothing": (
        "Use both.",
        "*both",
        [(2, "undefined alias", "anchors and aliases are not used")],
    ),
    "a merge key": ("  saving", "  <<: {saving: 0.5}\n  saving", [(15, "`<<` as a key", "a word")]),
    "a tag": ("Net", "!!python/name:os.system x", [(6, "python/name", "without a tag")]),
    "a tag that does not fit": ("seconds: 300", "seconds: !!int x", [(12, "the tag", "without a tag")]),
    "a tag on a section": ("limits:", "limits: !!set", [(11, "the tag", "without a tag")]),
    "a tab": ("  saving", "\tsaving", [(15, "\\t", "spaces")]),
    "a colon in a text": ("Use both.", "GPUs: use both", [(2, "not YAML", "quotes around")]),
    "an open quote": ("Two GPUs", '"Two GPUs', [(1, "not YAML", "the quote that ends")]),
    "an open bracket": ("model: Net", "model: [Net", [(6, "not YAML", "the bracket that ends")]),
    "two documents": ("model: Net", "---\nmodel: Net", [(6, "another document", "no second `---`")]),
    "a list instead of keys": (VALID, "- title\n", [(1, "a list", "`title: ...`")]),
    "an empty file": (VALID, "", [(None, "an empty file", "`title: ...`")]),
    "several at once": (
        "seconds: 300\n  tasks: 256\nthresholds:\n  saving: 0.40",
        "second: 300\n  tasks: many\nthresholds:\n  saving: 40",
        [(12, "`second`", "`seconds`?"), (13, '"many"', "a whole number"), (15, "40", "at most 1")],
    ),
}


@pytest.mark.parametrize(("old", "new", "expected"), BROKEN.values(), ids=BROKEN.keys())
def test_a_fault_has_its_line_and_says_what_was_found_and_what_would_be_right(folder, old, new, expected):
    file = folder / "exercise.yaml"
    assert old in VALID
    file.write_text(VALID.replace(old, new, 1))
    faults = faults_of(folder)
    assert len(faults) == len(expected), "\n\n".join(map(str, faults))
    for line, found, right in expected:
        matching = [f for f in faults if f.line == line and found in f.found and right in f.expected]
        assert len(matching) == 1, "\n\n".join(map(str, faults))
        assert matching[0].file == file
        assert (matching[0].column is None) == (line is None)


def test_a_fault_quotes_its_line_and_points_at_the_value(folder):
    (folder / "exercise.yaml").write_text(VALID.replace("0.40", "40"))
    with pytest.raises(BrokenExercise) as broken:
        load_exercise(folder)
    assert str(broken.value) == (
        f"The exercise in {folder} has 1 fault.\n"
        "\n"
        f"{folder}/exercise.yaml:15:11\n"
        "  15 |   saving: 40\n"
        "                 ^\n"
        "  found:    40\n"
        "  expected: a number of at most 1: the share of the baseline's time per epoch to save, 0.40 for 40 %"
    )


def test_faults_are_shown_in_the_order_of_their_lines(folder):
    (folder / "exercise.yaml").write_text(VALID.replace("0.40", "40").replace("Use both.", "3"))
    with pytest.raises(BrokenExercise) as broken:
        load_exercise(folder)
    text = str(broken.value)
    assert "2 faults" in text
    assert text.index("exercise.yaml:2:10") < text.index("exercise.yaml:15:11")


@pytest.mark.parametrize("name", ["train.py", "baseline.py", "checks.py", "data.py", "solution.py"])
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    (fault,) = faults_of(folder)
    assert f"no file {name}" in fault.found


def test_a_syntax_error_in_the_checks_has_its_own_file_and_line(folder):
    (folder / "checks.py").write_text(CHECKS + "\ndef broken(:\n")
    (fault,) = faults_of(folder)
    assert (fault.file, fault.line) == (folder / "checks.py", 11)
    assert "syntax error" in fault.found


def test_bytes_that_are_not_text_are_a_fault(folder):
    (folder / "exercise.yaml").write_bytes(b"title: one\nsummary: \xff\n")
    (fault,) = faults_of(folder)
    assert (fault.line, fault.column, fault.found) == (2, 10, "a byte that is not UTF-8")


def test_a_control_character_is_a_fault(folder):
    (folder / "exercise.yaml").write_text("title: one\nsummary: a\x00\n")
    (fault,) = faults_of(folder)
    assert (fault.line, fault.column, fault.found) == (2, 11, "the control character U+0000")


def test_a_hopelessly_nested_file_is_a_fault(folder):
    (folder / "exercise.yaml").write_text("title: " + "[" * 5000 + "]" * 5000)
    (fault,) = faults_of(folder)
    assert "nested too deeply" in fault.found


def test_a_wrong_path_lists_the_exercises_and_guesses(folder, monkeypatch):
    monkeypatch.chdir(folder.parent.parent)
    for wrong in ("exercises/smal", "smal"):
        with pytest.raises(BrokenExercise, match=f"There is no exercise in {wrong}") as broken:
            load_exercise(Path(wrong))
        (fault,) = broken.value.faults
        assert fault.found == "no such folder"
        assert "exercises/small? The exercises are: exercises/small" in fault.expected


def test_a_folder_without_a_specification_is_no_exercise(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (fault,) = faults_of(tmp_path)
    assert fault.found == "a folder without exercise.yaml"


def test_the_script_instead_of_its_folder_is_recognized(folder):
    (fault,) = faults_of(folder / "train.py")
    assert fault.found == "something inside an exercise"
    assert str(folder) in fault.expected


def test_exercises_are_found_by_their_specification(folder):
    (folder.parent / "unfinished").mkdir()
    assert find_exercises(folder.parent) == [folder]
    assert find_exercises(folder / "nowhere") == []


def test_every_exercise_that_comes_along_is_whole():
    folders = find_exercises(ROOT / "exercises")
    assert folders
    for folder in folders:
        exercise = load_exercise(folder)
        assert sum(exercise.points.values()) == 100
        assert exercise.solution is not None
        assert len(exercise.hints) == 3


def test_importing_this_module_does_not_import_torch():
    code = "import sys, grader.exercise; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
