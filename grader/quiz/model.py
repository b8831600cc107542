"""A quiz as its YAML file specifies it: questions of seven kinds, one of three ways to prove a key.

Every field is described by what belongs there; the description is also what a fault says would be right,
and what an editor shows, for the JSON Schema is made from it. How a key is proven follows from the kind:

* `code`: each option is a snippet; the key's run to their end, the others fail as they say;
* `debug`: the broken program raises or prints what it quotes, and the fixed one no longer does;
* all others: the program prints or raises what the key says, and what no other option says.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator

Text = Annotated[str, StringConstraints(pattern=r"\S")]
Code = Annotated[str, StringConstraints(pattern=r"\S")]  # Python source
Identifier = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9]*(-[a-z0-9]+)*$", max_length=64)]
Difficulty = Literal["easy", "medium", "hard", "intermediate", "advanced", "expert"]

# What a question and an option must have unless the quiz is a draft.
DUE = ("hints", "steps", "quick_check", "mistakes", "explanation")
DUE_OF_OPTION = ("why",)

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
# Two scales are in use; this is how they compare.
LEVELS: dict[str, int] = {"easy": 1, "medium": 2, "intermediate": 2, "hard": 3, "advanced": 3, "expert": 4}


class Specified(BaseModel):
    """A part of a quiz file: an unknown key is a fault."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class BaseOption(Specified):
    """What all options have."""

    why: Text = Field("", description="why this option is right, or which mistake it is")
    pinned: bool = Field(
        False, description="true for an option that keeps its place when the others are shuffled"
    )


class Choice(BaseOption):
    """An option told in words, or by what the program would print or raise were it right."""

    text: Text | None = Field(
        None, description="the option in Markdown; left out where `prints` or `raises` say it"
    )
    prints: str | None = Field(None, description="what the program prints if this option is right")
    raises: Text | None = Field(
        None,
        description="what the program raises if this option is right: the exception's class, and after a "
        "colon a part of its message",
    )


class Cause(BaseOption):
    """An option of a debug question: a cause in words, perhaps with the program that would mend it."""

    text: Text = Field(description="the cause, or the remedy, in Markdown")
    fix: Code | None = Field(None, description="the whole program, changed as this option suggests")
    fails: Text | None = Field(
        None,
        description="how a wrong `fix` ends, where not as before: the exception's class, and after a colon a "
        "part of its message",
    )


class Snippet(BaseOption):
    """An option of a code question: lines of Python that run between `before` and `after`."""

    code: Code = Field(description="the snippet")
    fails: Text | None = Field(
        None,
        description="how a wrong snippet ends: the exception's class, and after a colon a part of its "
        "message",
    )


class Proof(Specified):
    """How the key is proven, or why it cannot be."""

    gpus: list[Text] = Field(
        ["2xT4"],
        min_length=1,
        description="the simulated GPUs to run on, as 2xT4; a list where the answer is the same on several",
    )
    processes: int = Field(
        1, ge=1, le=16, description="processes that torchrun starts, 1 for a plain program"
    )
    seconds: float = Field(60, gt=0, le=600, description="seconds that one run may take")
    program: Code | None = Field(
        None, description="the program to run, where it is not the `code` that learners see"
    )
    before: Code | None = Field(
        None, description="lines in front of the program or snippet that nobody is shown"
    )
    after: Code | None = Field(
        None, description="lines behind it that nobody is shown, for example assertions"
    )
    unproven: Text | None = Field(None, description="why running code cannot prove this key")
    source: Text | None = Field(
        None,
        description="where the error's text is from if not from Python: a file of the sources, or the GPU it "
        "was seen on",
    )

    @field_validator("gpus", mode="before")
    @classmethod
    def _one_or_several(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value


class BaseQuestion(Specified):
    """What all questions have; `options` and `code` are of the kind."""

    id: Identifier = Field(
        description="lower-case words joined by hyphens, unique over all quizzes, never changed"
    )
    title: Text | None = Field(
        None, description="a short name for lists, which does not give the answer away"
    )
    difficulty: Difficulty = Field(description="easy, medium, hard; or intermediate, advanced, expert")
    tags: list[Identifier] = Field([], description="topics, each lower-case words joined by hyphens")
    points: float = Field(1, gt=0, le=100, multiple_of=0.5, description="points, in steps of one half")
    stem: Text = Field(description="the question in Markdown")
    code: Code | None = Field(
        None, description="the program that the question is about, shown below the stem"
    )
    select: Literal["one", "all"] = Field("one", description="one right option, or all that are right")
    key: list[Text] = Field(
        min_length=1,
        description="the letter of the right option as the file orders them, or a list of letters",
    )
    shuffle: bool = Field(True, description="false where the options' order means something")
    hints: list[Text] = Field([], description="hints in order, each more explicit than the last")
    steps: list[Text] = Field([], description="the way to the answer: understand, compare, conclude")
    quick_check: Text = Field("", description="how to convince oneself of the answer in a minute")
    mistakes: list[Text] = Field([], description="mistakes that people make here")
    explanation: Text = Field("", description="what to remember")
    references: list[Text] = Field([], description="where to read on: addresses, or names of documents")
    proof: Proof = Field(Proof(), description="how the key is proven: GPUs, processes, or why it is not")

    @field_validator("key", mode="before")
    @classmethod
    def _one_or_several(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @property
    def right(self) -> tuple[int, ...]:
        """Positions of the right options in the file's order, from 0."""
        return tuple(sorted(LETTERS.index(letter) for letter in self.key))

    @property
    def level(self) -> int:
        """Difficulty on a common scale, from 1 to 4."""
        return LEVELS[self.difficulty]

    @property
    def program(self) -> str | None:
        """The program whose run proves the key, without what goes before and after it."""
        return self.proof.program or self.code


class Conceptual(BaseQuestion):
    """What something is, does or is for."""

    kind: Literal["conceptual"]
    options: list[Choice] = Field(min_length=2, max_length=26, description="the options")


class PredictOutput(BaseQuestion):
    """What a program prints or raises."""

    kind: Literal["predict_output"]
    code: Code = Field(description="the program whose output is asked for")
    options: list[Choice] = Field(min_length=2, max_length=26, description="the options")


class Hyperparameter(BaseQuestion):
    """Which value to choose."""

    kind: Literal["hyperparameter"]
    options: list[Choice] = Field(min_length=2, max_length=26, description="the options")


class Debug(BaseQuestion):
    """Why a program fails, or does the wrong thing, and what mends it."""

    kind: Literal["debug"]
    code: Code = Field(description="the broken program")
    error: Text | None = Field(
        None, description="what it raises: the exception's class, and after a colon a part of its message"
    )
    prints: str | None = Field(None, description="what it prints, where the fault raises nothing")
    fix: Code = Field(description="the whole program, mended")
    fix_prints: str | None = Field(None, description="what the mended program prints")
    options: list[Cause] = Field(min_length=2, max_length=26, description="the options")


class ModelChoice(BaseQuestion):
    """Which approach fits a situation."""

    kind: Literal["model_choice"]
    options: list[Choice] = Field(min_length=2, max_length=26, description="the options")


class WhichWorks(BaseQuestion):
    """Which of several snippets works."""

    kind: Literal["code"]
    options: list[Snippet] = Field(min_length=2, max_length=26, description="the snippets")


class MultipleChoice(BaseQuestion):
    """Anything else."""

    kind: Literal["multiple_choice"]
    options: list[Choice] = Field(min_length=2, max_length=26, description="the options")


Option = Choice | Cause | Snippet
Question = Conceptual | PredictOutput | Hyperparameter | Debug | ModelChoice | WhichWorks | MultipleChoice
AnyQuestion = Annotated[Question, Field(discriminator="kind")]


class Quiz(Specified):
    """What a quiz file holds."""

    title: Text = Field(description="the quiz's name for people")
    summary: Text = Field(description="what it is about, in a sentence or two")
    draft: bool = Field(
        False,
        description="true while parts are still to be written: what is missing is a warning, not an error",
    )
    questions: list[AnyQuestion] = Field(min_length=1, description="the questions")
