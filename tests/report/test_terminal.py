"""What a learner sees: the whole report at 80 columns in a pipe, and what must hold at any width."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from grader.grade import Grade, Outcome
from grader.report import words
from grader.report.terminal import show

NAMES = sorted(path.stem for path in Path(__file__).with_name("fixtures").glob("*.json"))
GOLDEN = Path(__file__).with_name("golden")

Grades = Callable[[str], Grade]


def report(
    grade: Grade,
    width: int = 80,
    encoding: str = "utf-8",
    *,
    terminal: bool = False,
    color: str | None = None,
) -> str:
    """Return what the report puts on a stream of that encoding."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="strict")
    options = {"force_terminal": True, "color_system": color} if terminal else {}
    show(grade, Console(file=stream, width=width, highlight=False, **options))  # type: ignore[arg-type]
    stream.flush()
    return stream.buffer.getvalue().decode(encoding)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", NAMES)
def test_the_report_reads_as_intended(grade: Grades, name: str) -> None:
    """Set UPDATE_GOLDEN=1 to take the present reports as the intended ones, then read the difference."""
    file = GOLDEN / f"{name}.txt"
    seen = report(grade(name))
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(seen, encoding="utf-8")
    assert seen == file.read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [40, 80, 120, 200])
@pytest.mark.parametrize("name", NAMES)
def test_no_line_is_wider_than_the_terminal(grade: Grades, name: str, width: int) -> None:
    lines = report(grade(name), width).splitlines()
    assert max(map(cell_len, lines)) <= width
    assert all(line == line.rstrip() for line in lines)


@pytest.mark.parametrize("name", NAMES)
def test_where_the_terminal_knows_ascii_only_nothing_else_is_printed(grade: Grades, name: str) -> None:
    assert report(grade(name), encoding="ascii").isascii()


def test_without_colour_nothing_but_text_is_printed(grade: Grades, monkeypatch: pytest.MonkeyPatch) -> None:
    assert re.search(r"\x1b\[(?:\d;)?[349]\d", report(grade("stub"), terminal=True, color="standard"))
    monkeypatch.setenv("NO_COLOR", "1")
    assert not re.search(r"\x1b\[(?:\d;)?[349]\d", report(grade("stub"), terminal=True, color="standard"))


def test_the_same_grade_gives_the_same_report(grade: Grades) -> None:
    assert report(grade("solution")) == report(grade("solution"))


def test_every_simulated_figure_is_called_simulated(grade: Grades) -> None:
    lines = report(grade("stub")).splitlines()
    for name in ("before", "after"):
        line = next(line for line in lines if line.startswith(f"  {name}"))
        assert line.endswith("s simulated T4")
    assert "exercises/dataparallel/train.py on 2 simulated T4" in lines
    assert any("its times are simulated T4 times" in line for line in lines)


def test_nothing_measured_on_real_gpus_is_called_simulated(grade: Grades) -> None:
    assert "simulated" not in report(grade("inconclusive")).replace("(2 simulated T4)", "")


def test_the_bars_are_as_long_as_the_times_are(grade: Grades) -> None:
    before, after = (line.count("█") for line in report(grade("solution"), 100).splitlines() if "█" in line)
    times = grade("solution").epoch_seconds
    assert times.baseline
    assert times.submission
    assert after / before == pytest.approx(times.submission / times.baseline, abs=0.01)


def test_what_a_script_prints_cannot_restyle_or_forge_the_report(grade: Grades) -> None:
    forged = (
        "\x1b[2J\x1b[1;1H100 / 100 points  All checks passed.\n[bold red]x[/bold red]\r overwritten\n\x07"
    )
    printed = grade("stub").model_copy(update={"output": forged})
    seen = report(printed)
    assert "\x1b" not in seen
    assert "\x07" not in seen
    assert "  │ 100 / 100 points  All checks passed." in seen.splitlines()
    assert "  │  overwritten" in seen.splitlines()
    assert [line for line in seen.splitlines() if line.startswith("100 / 100")] == []


def test_markup_in_a_message_stays_text(grade: Grades) -> None:
    stub = grade("stub")
    check = stub.checks[1].model_copy(update={"message": "Got [red]cuda:0[/red] and `model[0]` :boom:"})
    seen = report(stub.model_copy(update={"checks": [check]}))
    assert "Got [red]cuda:0[/red] and `model[0]` :boom:" in seen


def test_a_very_long_line_is_cut(grade: Grades) -> None:
    seen = report(grade("stub").model_copy(update={"output": "x" * 100_000}))
    assert seen.count("x") < 1000


def test_a_grade_with_nothing_but_a_verdict_is_still_a_report(grade: Grades) -> None:
    bare = Grade(
        exercise="e", title="E", submission="s.py", devices=grade("stub").devices,
        outcome=Outcome.UNGRADABLE, checks=[],
    )  # fmt: skip
    assert "Not graded" in report(bare)


def test_every_outcome_has_a_mark_and_a_word() -> None:
    assert set(words.MARKS) == set(Outcome)
    assert len({mark.word for mark in words.MARKS.values()}) == len(Outcome)
    assert all(mark.plain.isascii() for mark in words.MARKS.values())
