"""What is shown while grading takes its time."""

from __future__ import annotations

import io

from rich.console import Console

from grader.report.progress import Display


def test_off_a_terminal_each_step_is_one_plain_line() -> None:
    stream = io.StringIO()
    with Display(Console(file=stream, width=80)) as progress:
        for done, text in enumerate(["loading [the] data", "baseline"]):
            progress(text, done, 2)
            progress(text, done + 1, 2)
    assert stream.getvalue() == "[1/2] loading [the] data\n[2/2] baseline\n"


def test_on_a_terminal_the_line_disappears_also_after_an_error() -> None:
    stream = io.StringIO()
    try:
        with Display(Console(file=stream, force_terminal=True, width=80)) as progress:
            progress("baseline", 0, 2)
            raise KeyError
    except KeyError:
        pass
    shown = stream.getvalue()
    assert "\x1b[?25l" in shown  # the cursor was hidden
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")  # and is back
    assert shown.endswith("\x1b[2K")
