"""Numbers and texts as all reports write them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from grader.grade import EpochSeconds, Grade
from grader.report import words


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0.0, "0 s"),
        (0.0123, "12.3 ms"),
        (0.0000004, "0.0004 ms"),
        (4.333, "4.33 s"),
        (123.4, "123 s"),
    ],
)
def test_durations(value: float | None, text: str) -> None:
    assert words.seconds(value) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (311001088, "297 MiB"), (15826954485, "14.7 GiB")],
)
def test_sizes(count: int, text: str) -> None:
    assert words.size(count) == text


@pytest.mark.parametrize(
    ("saving", "text"),
    [
        (0.456, "45.6% less time per epoch"),
        (-0.1, "10.0% more time per epoch"),
        (0.0001, "no less time per epoch"),
    ],
)
def test_savings(grade: Callable[[str], Grade], saving: float, text: str) -> None:
    times = EpochSeconds(baseline=1.0, submission=1.0 - saving, saving=saving, confidence=(saving, saving))
    assert words.saving(grade("stub").model_copy(update={"epoch_seconds": times})) == text


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("10%\r20%\r30%\r\nnext", "30%\nnext"),
        ("a\x00b\x9bc\u202ed", "abcd"),
        ("a\tb", "a   b"),
        ("[bold]kept[/bold] äöü", "[bold]kept[/bold] äöü"),
    ],
)
def test_a_text_of_the_script_is_cleaned_of_everything_invisible(raw: str, text: str) -> None:
    assert words.clean(raw) == text
