"""A quiz together with the file it was read from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from grader.located import Document
from grader.quiz.model import Quiz


@dataclass(frozen=True)
class QuizFile:
    """A quiz that was read without errors; `document` knows the place of each value, and takes warnings."""

    path: Path
    quiz: Quiz
    document: Document

    @property
    def id(self) -> str:
        """The quiz's name in addresses and file names: that of its file."""
        return self.path.stem
