"""Judging an exercise that a test makes up: verdicts, points, dependencies and isolation."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from grader.check import judge
from grader.devices import DeviceKind, Devices
from grader.exercise import BrokenExercise, Exercise
from grader.grade import Grade, Outcome
from tests.check.builders import solution_evidence

IMPORTS = "from grader.check import CheckFailed, Inconclusive, Ungradable, check\n"
FIRST = '@check("first", title="The first", why="Because.")\ndef first(evidence):\n    {}\n'
SECOND = '@check("second", title="The second", depends_on=["first"])\ndef second(evidence):\n    {}\n'

Make = Callable[..., Exercise]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Return an exercise whose checks are the given source."""

    def exercise(source: str, **points: float) -> Exercise:
        folder = tmp_path / "exercise"
        folder.mkdir(exist_ok=True)
        (folder / "checks.py").write_text(IMPORTS + source)
        points = points or {"first": 60, "second": 40}
        return Exercise(folder=folder, title="Made up", summary="Nothing.", points=points, hints=["a", "b"])

    return exercise


def graded(exercise: Exercise) -> Grade:
    return judge(exercise, solution_evidence())


def outcomes(grade: Grade) -> list[Outcome]:
    return [check.outcome for check in grade.checks]


def test_a_pass_gives_the_points_and_tells_what_was_seen(make: Make) -> None:
    grade = graded(make(FIRST.format('return f"{evidence.devices.count} GPUs"') + SECOND.format("pass")))
    assert (grade.score, grade.max_score, grade.outcome) == (100, 100, Outcome.PASSED)
    first, second = grade.checks
    assert (first.message, first.why, first.title) == ("2 GPUs", "Because.", "The first")
    assert (second.message, second.depends_on) == ("", ["first"])


def test_what_a_report_needs_is_in_the_grade(make: Make) -> None:
    grade = graded(make(FIRST.format("pass"), first=1))
    assert (grade.exercise, grade.title, grade.submission) == ("exercise", "Made up", "train.py")
    assert (grade.epoch_seconds.baseline, grade.epoch_seconds.submission) == (12.0, 6.6)
    assert (grade.accuracy.validation, grade.accuracy.baseline_train) == (0.88, 0.9)
    assert grade.submission_usage.devices[0].busy_seconds == 0.45
    assert (grade.output, grade.hints_available) == ("epoch 1/3\n", 2)


def test_a_failure_says_why_and_skips_what_depends_on_it(make: Make) -> None:
    site = 'site=Site(file="a.py", line=3)'
    body = f'from grader.evidence import Site\n    raise CheckFailed("No.", {site}, why="Own.")'
    first, second = graded(make(FIRST.format(body) + SECOND.format("pass"))).checks
    assert (first.outcome, first.message, first.why) == (Outcome.FAILED, "No.", "Own.")
    assert (first.location, first.score, first.max_score) == ("a.py:3", 0, 60)
    assert (second.outcome, second.max_score) == (Outcome.SKIPPED, 40)
    assert second.message == 'Not judged, since "The first" failed.'


def test_an_assertion_with_words_is_a_failure(make: Make) -> None:
    grade = graded(make(FIRST.format('assert evidence.devices.count == 3, "three GPUs expected"'), first=5))
    assert outcomes(grade) == [Outcome.FAILED]
    assert grade.checks[0].message == "three GPUs expected"


def test_noise_is_inconclusive(make: Make) -> None:
    grade = graded(make(FIRST.format('raise Inconclusive("Too noisy.")') + SECOND.format("pass")))
    assert outcomes(grade) == [Outcome.INCONCLUSIVE, Outcome.SKIPPED]
    assert (grade.outcome, grade.max_score) == (Outcome.INCONCLUSIVE, 100)


@pytest.mark.parametrize("fault", ["1 / 0", "evidence.nonsense", "assert False", "raise SystemExit(0)"])
def test_a_check_that_breaks_costs_nothing(make: Make, fault: str) -> None:
    grade = graded(make(FIRST.format(fault) + SECOND.format("pass")))
    assert outcomes(grade) == [Outcome.UNGRADABLE] * 2
    assert (grade.score, grade.max_score, grade.outcome) == (0, 0, Outcome.UNGRADABLE)
    assert "checks.py:4" in grade.checks[0].message
    assert "Traceback" not in grade.model_dump_json()


def test_a_fixture_that_breaks_costs_nothing(make: Make) -> None:
    source = "import pytest\n@pytest.fixture\ndef broken():\n    raise OSError('disk')\n"
    source += '@check("first", title="The first")\ndef first(broken):\n    pass\n'
    grade = graded(make(source, first=10))
    assert outcomes(grade) == [Outcome.UNGRADABLE]
    assert "OSError: disk" in grade.checks[0].message


def test_one_gpu_is_not_graded(make: Make) -> None:
    one = Devices(kind=DeviceKind.REAL, count=1, profile="NVIDIA T4", graded=False)
    grade = judge(make(FIRST.format("pass"), first=10), solution_evidence(one))
    assert (outcomes(grade), grade.max_score) == ([Outcome.UNGRADABLE], 0)
    assert "1 x NVIDIA T4" in grade.checks[0].message


def test_a_changed_checks_file_is_read_again(make: Make) -> None:
    assert graded(make(FIRST.format("pass"), first=1)).outcome is Outcome.PASSED
    assert graded(make(FIRST.format('raise CheckFailed("Now it fails.")'), first=1)).outcome is Outcome.FAILED


class TestNothingPlantedMatters:
    """What lies in the working folder, in the exercise's folder or in the environment is not read."""

    EVIL = "raise SystemExit('planted code was run')\n"

    @pytest.fixture
    def exercise(self, make: Make) -> Exercise:
        return make(FIRST.format('raise CheckFailed("No.")'), first=10)

    @staticmethod
    def unchanged(exercise: Exercise, capfd: pytest.CaptureFixture[str]) -> None:
        before = dict(os.environ)
        assert outcomes(graded(exercise)) == [Outcome.FAILED]
        assert dict(os.environ) == before
        assert capfd.readouterr() == ("", "")

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("conftest.py", EVIL),
            ("__init__.py", EVIL),
            ("test_more.py", EVIL),
            ("sitecustomize.py", EVIL),
            ("pytest.py", EVIL),
            ("pytest.ini", "[pytest]\naddopts = -p planted --collect-only\n"),
            ("setup.cfg", "[tool:pytest]\naddopts = -p planted --collect-only\n"),
            ("pyproject.toml", "[tool.pytest.ini_options]\naddopts = '-p planted --collect-only'\n"),
            ("tox.ini", "[pytest]\naddopts = -p planted --collect-only\n"),
        ],
    )
    def test_files(
        self,
        exercise: Exercise,
        name: str,
        text: str,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capfd: pytest.CaptureFixture[str],
    ) -> None:
        for folder in (tmp_path, exercise.folder, exercise.folder.parent):
            (folder / name).write_text(text)
        monkeypatch.chdir(tmp_path)
        self.unchanged(exercise, capfd)

    def test_a_plugin_among_the_installed_distributions(
        self,
        exercise: Exercise,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capfd: pytest.CaptureFixture[str],
    ) -> None:
        folder = tmp_path / "planted-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: planted\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text("[pytest11]\nplanted = planted\n")
        (tmp_path / "planted.py").write_text(self.EVIL)
        monkeypatch.syspath_prepend(tmp_path)
        self.unchanged(exercise, capfd)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("PYTEST_ADDOPTS", "--collect-only"),
            ("PYTEST_ADDOPTS", "--no-such-option"),
            ("PYTEST_PLUGINS", "planted"),
            ("PYTEST_DEBUG", "1"),
        ],
    )
    def test_environment(
        self,
        exercise: Exercise,
        name: str,
        value: str,
        monkeypatch: pytest.MonkeyPatch,
        capfd: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.setenv(name, value)
        self.unchanged(exercise, capfd)

    def test_the_folder_is_left_as_it_was(
        self, exercise: Exercise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        path, hooks = list(sys.path), list(sys.meta_path)
        graded(exercise)
        assert {p.name for p in exercise.folder.iterdir()} <= {"checks.py", "__pycache__"}
        assert [p.name for p in tmp_path.iterdir()] == ["exercise"]
        assert (sys.path, sys.meta_path) == (path, hooks)


class TestBrokenChecks:
    def faults(self, exercise: Exercise) -> str:
        with pytest.raises(BrokenExercise) as caught:
            graded(exercise)
        return str(caught.value)

    def test_all_faults_are_told_at_once(self, make: Make) -> None:
        again = '@check("first", title="Again", depends_on=["later"])\ndef again():\n    pass\n'
        text = self.faults(make(FIRST.format("pass") + again, first=1, third=2))
        for phrase in ("a second check `first`", "depends on `later`", "no check `third`", "checks.py:5:1"):
            assert phrase in text

    def test_a_check_without_points(self, make: Make) -> None:
        text = self.faults(make(FIRST.format("pass") + SECOND.format("pass"), first=1))
        assert "no points for the check `second`" in text
        assert "`second: POINTS` under `points`" in text

    def test_no_checks(self, make: Make) -> None:
        assert "at least one function decorated" in self.faults(make("", first=1))

    @pytest.mark.parametrize(
        ("source", "phrases"),
        [
            ("import nowhere_to_be_found\n", ("nowhere_to_be_found", "checks.py:2")),
            ("def broken(:\n", ("SyntaxError", "checks.py:2")),
        ],
    )
    def test_a_file_that_does_not_import(self, make: Make, source: str, phrases: tuple[str, ...]) -> None:
        text = self.faults(make(source, first=1))
        for phrase in phrases:
            assert phrase in text
