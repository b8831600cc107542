"""Runs baseline and submission and gathers what they were seen to do.

`gather`, `SubmissionMissing` and `ServerBroken` are imported on first use: the child process shares this
package and has no business with the parent's half of it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from grader.run.grading import gather
    from grader.run.launch import ServerBroken
    from grader.run.submission import SubmissionMissing

__all__ = ["ServerBroken", "SubmissionMissing", "gather"]

_HOMES = {"gather": "grading", "ServerBroken": "launch", "SubmissionMissing": "submission"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"grader.run.{_HOMES[name]}"), name)
