"""The command `grade` as it is typed: what it prints, what it writes, how it ends."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from grader import cli
from grader.devices import BadDeviceChoice, NoSuchDevices
from grader.grade import Grade
from grader.run import ServerBroken, SubmissionMissing

ROOT = Path(__file__).resolve().parent.parent
FIXTURES = ROOT / "tests" / "report" / "fixtures"

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, dataparallel: Path
) -> Run:
    """Run the command in a folder that holds the exercise; gives exit code, output and errors."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "80")
    work = tmp_path / "work"
    shutil.copytree(dataparallel, work / "exercises" / "dataparallel")
    shutil.copytree(ROOT / "solutions", work / "solutions")
    monkeypatch.chdir(work)

    def execute(*arguments: str) -> tuple[int, str, str]:
        code = cli.execute(arguments)
        sys.stdout.flush()
        out, err = capfd.readouterr()
        return code, out, err

    return execute


@pytest.fixture
def graded(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[str | Exception | type[BaseException]], list[object]]:
    """Let grading give a grade of the fixtures, or raise; gives the list of what it was asked."""

    def give(result: str | Exception | type[BaseException]) -> list[object]:
        asked: list[object] = []

        def grade_submission(exercise: object, submission: Path, gpus: str, *, use_cache: bool) -> Grade:
            asked.extend([exercise, submission, gpus, use_cache])
            if not isinstance(result, str):
                raise result
            return Grade.model_validate_json((FIXTURES / f"{result}.json").read_text())

        monkeypatch.setattr(cli, "grade_submission", grade_submission)
        return asked

    return give


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("solution", 0),
        ("stub", 1),
        ("script_error", 1),
        ("timeout", 1),
        ("inconclusive", 1),
        ("ungradable", 3),
    ],
)
def test_the_exit_code_is_the_outcome(
    run: Run, graded: Callable[[str], list[object]], name: str, code: int
) -> None:
    graded(name)
    ended, out, err = run("exercises/dataparallel")
    assert ended == code
    assert "DataParallel basics" in out
    assert err == ""


def test_by_default_the_exercise_s_own_script_is_graded_as_one_would_type_it(
    run: Run, graded: Callable[[str], list[object]]
) -> None:
    asked = graded("stub")
    run("dataparallel")
    assert asked[1:] == [Path("exercises/dataparallel/train.py"), "auto", True]
    asked.clear()
    run("--gpus", "sim:4xV100", "exercises/dataparallel", "mine.py", "--no-cache")
    assert asked[1:] == [Path("mine.py"), "sim:4xV100", False]


def test_json_on_standard_output_is_all_that_is_there(
    run: Run, graded: Callable[[str], list[object]]
) -> None:
    graded("stub")
    code, out, _ = run("exercises/dataparallel", "--json", "-")
    assert code == 1
    assert json.loads(out)["score"] == 30


def test_reports_are_written_beside_the_one_in_the_terminal(
    run: Run, graded: Callable[[str], list[object]]
) -> None:
    graded("stub")
    _, out, _ = run("exercises/dataparallel", "--json", "a.json", "--junit", "a.xml", "--html", "a.html")
    assert "30 / 100 points" in out
    assert json.loads(Path("a.json").read_text())["outcome"] == "failed"
    assert Path("a.xml").read_text().startswith("<?xml")
    assert Path("a.html").read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["exercises/dataparalel"],
            "There is no exercise exercises/dataparalel; did you mean exercises/dataparallel?",
        ),
        (["exercises"], "holds no exercise.yaml; the exercises are: exercises/dataparallel."),
        (
            ["dataparallel", "--json", "no/where.json"],
            "--json no/where.json cannot be written: there is no folder no.",
        ),
        (["dataparallel", "--html", "exercises"], "--html exercises is a folder"),
        (["dataparallel", "--json", "-", "--junit", "-"], "both write to standard output"),
        (["dataparallel", "--nonsense"], "No such option: --nonsense"),
        (["dataparallel", "a", "b"], "unexpected extra argument"),
        (["reset"], "Missing argument 'EXERCISE'"),
        (["dataparallel", "--gpus"], "requires an argument"),
    ],
)
def test_a_mistake_in_the_command_is_one_sentence_before_anything_is_run(
    run: Run, graded: Callable[[Exception], list[object]], arguments: list[str], sentence: str
) -> None:
    asked = graded(AssertionError("must not be reached"))
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.startswith("grade: ")
    assert err.count("\n") == 1
    assert asked == []


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        (BadDeviceChoice("--gpus '7up' is not a choice of GPUs."), 2),
        (SubmissionMissing("There is no file mine.py."), 2),
        (NoSuchDevices("--gpus real needs 2 real GPUs."), 3),
        (ServerBroken("The run server did not start."), 3),
    ],
)
def test_what_grading_refuses_is_a_sentence(
    run: Run, graded: Callable[[Exception], list[object]], problem: Exception, code: int
) -> None:
    graded(problem)
    ended, out, err = run("dataparallel", "--json", "-")
    assert (ended, out) == (code, "")
    assert err == f"grade: {problem}\n"


def test_nonsense_for_gpus_and_a_missing_file_are_refused_by_the_real_thing(run: Run) -> None:
    code, _, err = run("dataparallel", "--gpus", "7up")
    assert code == 2
    assert "7up" in err
    code, _, err = run("dataparallel", "nowhere.py")
    assert code == 2
    assert "nowhere.py" in err


def test_a_fault_of_the_grader_is_one_sentence_and_its_details_are_in_a_file(
    run: Run, graded: Callable[[Exception], list[object]], tmp_path: Path
) -> None:
    graded(KeyError("our own mistake"))
    code, out, err = run("dataparallel")
    file = tmp_path / "cache" / "multigpu-gym" / "fault.txt"
    assert (code, out) == (3, "")
    assert err == f"grade: The grader itself failed, which costs you nothing; the details are in {file}.\n"
    assert "KeyError: 'our own mistake'" in file.read_text()


def test_interrupting_is_one_line(run: Run, graded: Callable[[type[BaseException]], list[object]]) -> None:
    graded(KeyboardInterrupt)
    assert run("dataparallel") == (130, "", "grade: Interrupted; nothing was graded.\n")


def test_a_broken_exercise_is_reported_with_file_and_line(run: Run) -> None:
    file = Path("exercises/dataparallel/exercise.yaml")
    file.write_text(file.read_text().replace("title:", "titel:"))
    code, out, err = run("exercises/dataparallel")
    assert (code, out) == (2, "")
    assert "exercise.yaml:" in err
    assert "titel" in err


def test_an_exercise_named_like_a_command_is_reached_by_its_path(
    run: Run, graded: Callable[[str], list[object]]
) -> None:
    asked = graded("stub")
    shutil.copytree("exercises/dataparallel", "exercises/list")
    os.chdir("exercises")
    run("./list")
    assert asked[0].name == "list"  # type: ignore[attr-defined]
    assert "dataparallel: DataParallel basics" in run("list")[1]


def test_list_names_each_exercise_and_says_which_is_broken(run: Run) -> None:
    shutil.copytree("exercises/dataparallel", "exercises/other")
    Path("exercises/other/exercise.yaml").write_text("title: [")
    code, out, _ = run("list")
    assert code == 2
    assert "exercises/dataparallel: DataParallel basics" in out
    assert "exercises/other: (broken)" in out


def test_hints_come_one_at_a_time_and_say_how_many_remain(run: Run) -> None:
    shown = [run("exercises/dataparallel", "--hint")[1] for _ in range(4)]
    assert "Hint 1 of 3" in shown[0]
    assert "2 more remain;" in shown[0]
    assert "1 more remains;" in shown[1]
    assert "That was the last; `grade exercises/dataparallel --hint` shows all of them again." in shown[2]
    assert all(f"Hint {number} of 3" in shown[3] for number in (1, 2, 3))
    assert sorted(path.name for path in Path("exercises/dataparallel").glob("*hint*")) == []


def test_reset_asks_for_a_yes_before_it_overwrites_edits(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    script = Path("exercises/dataparallel/train.py")
    shutil.copyfile("exercises/dataparallel/.original/train.py", script)
    handed_out = script.read_bytes()
    code, out, _ = run("reset", "exercises/dataparallel")
    assert code == 0
    assert "nothing to do" in out
    script.write_bytes(handed_out + b"# mine\n")
    monkeypatch.setattr(sys, "stdin", open(os.devnull))  # noqa: SIM115
    code, _, err = run("reset", "exercises/dataparallel")
    assert code == 2
    assert "has 1 changed line; add --yes" in err
    assert script.read_bytes().endswith(b"# mine\n")
    code, out, _ = run("reset", "exercises/dataparallel", "--yes")
    assert code == 0
    assert "yours is now exercises/dataparallel/train.py.bak" in out
    assert script.read_bytes() == handed_out
    assert Path("exercises/dataparallel/train.py.bak").read_bytes().endswith(b"# mine\n")


def test_schema_and_version_and_help(run: Run) -> None:
    code, out, _ = run("schema")
    assert code == 0
    assert json.loads(out)["properties"]["score"]
    assert run("--version")[1].startswith("multigpu-gym ")
    code, out, _ = run("--help")
    assert code == 0
    assert out.startswith("Usage: grade EXERCISE [SUBMISSION] [OPTIONS]")
    for word in ("--gpus", "--json", "--junit", "--html", "--hint", "--no-cache", "list", "reset", "schema"):
        assert word in out
    assert run()[0] == 2


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys; from grader import cli; code = cli.execute(['--help']);"
        "heavy = {'torch', 'pydantic', 'rich', 'jinja2', 'ruamel.yaml', 'numpy', 'pytest'};"
        "heavy &= set(sys.modules);"
        "sys.exit(repr(heavy) if heavy or code else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_unwinds_and_ends_quietly(tmp_path: Path, number: int, code: int) -> None:
    script = (
        "import sys, time; from pathlib import Path; from grader import cli\n"
        "def grade_submission(*arguments, **options):\n"
        "    try:\n"
        "        print('ready', flush=True); time.sleep(60)\n"
        "    finally:\n"
        f"        Path({str(tmp_path / 'cleared')!r}).touch()\n"
        "cli.grade_submission = grade_submission\n"
        "sys.argv = ['grade', 'exercises/dataparallel']; cli.main()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.05)
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == code
    assert (tmp_path / "cleared").exists()
    assert "Traceback" not in err
    assert err.count("\n") <= 1


def test_the_c_locale_gets_ascii(run: Run, graded: Callable[[str], list[object]], monkeypatch) -> None:
    graded("stub")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    assert not run("exercises/dataparallel")[1].isascii()
    monkeypatch.setenv("LC_ALL", "C")
    try:
        assert run("exercises/dataparallel")[1].isascii()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(encoding="utf-8")


def test_a_hint_writes_no_report(run: Run, tmp_path: Path) -> None:
    code, _, err = run("exercises/dataparallel", "--hint", "--html", str(tmp_path / "report.html"))
    assert code == 2
    assert "--hint" in err
    assert not (tmp_path / "report.html").exists()


def test_after_the_last_hint_all_are_shown_again(run: Run) -> None:
    for _ in range(3):
        run("exercises/dataparallel", "--hint")
    code, out, _ = run("exercises/dataparallel", "--hint")
    assert code == 0
    assert all(f"Hint {number} of 3" in out for number in (1, 2, 3))


def test_hints_are_all_shown_where_progress_cannot_be_kept(run: Run, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    code, out, _ = run("exercises/dataparallel", "--hint")
    assert code == 0
    assert "Hint 3 of 3" in out


def test_a_typed_path_is_repeated_in_the_next_step(run: Run, graded: Callable[[str], list[object]]) -> None:
    graded("stub")
    assert "grade exercises/dataparallel --hint" in run("exercises/dataparallel")[1]


def test_it_is_not_run_under_simulated_gpus_itself(run, monkeypatch):
    monkeypatch.setenv("SIMGPU", '{"spec": "2xT4"}')
    code, out, err = run("exercises/dataparallel")
    assert (code, out) == (2, "")
    assert "grade simulates GPUs by itself; run it without `simgpu run`." in " ".join(err.split())
