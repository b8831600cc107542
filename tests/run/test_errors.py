"""A learner sees their own traceback and torch's, and none of ours."""

from __future__ import annotations

import pytest

from grader.run import errors


def test_frames_of_the_grader_are_dropped_with_their_source_lines(tmp_path):
    text = (
        "Traceback (most recent call last):\n"
        f'  File "{errors._GRADER}/run/probe.py", line 10, in observed_call\n'
        "    return call(module)\n"
        "           ^^^^^^^^^^^^\n"
        f'  File "{tmp_path}/train.py", line 3, in <module>\n'
        "    boom()\n"
        "RuntimeError: boom"
    )
    assert errors.clean(text, tmp_path) == (
        "Traceback (most recent call last):\n"
        '  File "train.py", line 3, in <module>\n'
        "    boom()\n"
        "RuntimeError: boom"
    )


def test_an_error_names_the_deepest_place_in_the_submission(run_raw):
    raw = run_raw("def inner():\n    raise KeyError('gone')\n\ndef outer():\n    inner()\n\nouter()\n")
    error = raw.end.error
    assert (error.type, error.site.file, error.site.line) == ("KeyError", "train.py", 2)
    assert error.site.code == "raise KeyError('gone')"
    assert "grader" not in error.traceback and "program.py" not in error.traceback


def test_a_syntax_error_names_its_line(run_raw):
    error = run_raw("x = 1\nif x\n    pass\n").end.error
    assert (error.type, error.site.line) == ("SyntaxError", 2)
    assert "program.py" not in error.traceback


def test_an_error_in_a_replica_names_the_line_in_forward(observe):
    evidence = observe(
        """
        class Broken(Net):
            def forward(self, images):
                raise ValueError("inside")
        model = nn.DataParallel(Broken().cuda())
        """
    )
    assert evidence.error.site.code == 'raise ValueError("inside")'
    assert "grader/" not in evidence.error.traceback


def test_a_file_that_is_no_text_is_an_error_of_the_script(run_raw, tmp_path):
    raw = run_raw("x = '\x00'")
    assert raw.end.error.type in ("SyntaxError", "ValueError")


@pytest.mark.parametrize("body", ["raise KeyError", "return 7", "import sys; sys.exit(0)"])
def test_an_exception_that_cannot_be_shown_is_still_an_error(run_raw, body):
    raw = run_raw(f"class Odd(Exception):\n    def __str__(self):\n        {body}\nraise Odd\n")
    assert (raw.outcome, raw.end.error.type) == ("error", "Odd")


def test_an_exit_with_an_object_is_an_error(run_raw):
    assert run_raw("raise SystemExit(object())").end.error.message == "object"
