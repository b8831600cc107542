"""The words for parts of a question, the same on every page, in the terminal and in every export."""

from __future__ import annotations

import re

from grader.quiz.model import BaseQuestion, Cause, Choice, Option, Question, Snippet

KINDS = {
    "conceptual": "concept",
    "predict_output": "predict the output",
    "hyperparameter": "hyperparameter",
    "debug": "debugging",
    "model_choice": "choice of approach",
    "code": "which of these works",
    "multiple_choice": "multiple choice",
}


def option_markdown(option: Option) -> str:
    """Return what a learner reads of an option, as Markdown."""
    match option:
        case Snippet():
            return code_markdown(option.code)
        case Cause() | Choice(text=str()):
            return str(option.text)
        case Choice(prints=str(printed)):
            return code_markdown(printed, language="text") if printed.strip() else "nothing"
        case _:
            kind, _, message = str(option.raises).partition(":")
            said = f": {code_markdown(message.strip(), language='text')}" if message.strip() else ""
            return f"`{kind.strip()}`{said}"


def code_markdown(code: str, language: str = "python") -> str:
    """Return code as Markdown: in its line where it is one short line, else as a block."""
    code = code.strip("\n").rstrip()
    longest = max((len(run) for run in re.findall("`+", code)), default=0)
    if "\n" not in code and len(code) <= 90:
        fence = "`" * (longest + 1)
        pad = " " if code.startswith("`") or code.endswith("`") or code != code.strip() else ""
        return f"{fence}{pad}{code}{pad}{fence}"
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{code}\n{fence}"


def instruction(question: BaseQuestion) -> str:
    """Return what a learner is asked to do with the options."""
    return "Choose one." if question.select == "one" else "Choose all that are right."


def name(question: Question) -> str:
    """Return the question's name for lists."""
    return question.title or question.id.replace("-", " ")
