"""Whatever keeps a command of `quiz` from doing its job, for the person who typed it."""

from __future__ import annotations


class QuizProblem(Exception):
    """An expected problem: its text is a sentence that says what to do; the command ends with `code`.

    1 where quizzes are faulty, 2 for a mistake in what was asked.
    """

    def __init__(self, sentence: str, code: int = 2) -> None:
        super().__init__(sentence)
        self.code = code
