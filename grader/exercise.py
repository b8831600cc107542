"""An exercise as its folder specifies it: `exercise.yaml` and the files it names.

Everything an instructor may change about an exercise is a field here, with its bounds and a sentence
of what it means; the sentence is also what a fault says would be right.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from grader.consistency import blame_surroundings
from grader.faults import blame_validation, shown
from grader.located import Document, Fault, listing, read

SPECIFICATION = "exercise.yaml"

Text = Annotated[str, Field(pattern=r"\S")]
PythonFile = Annotated[
    str, Field(pattern=r"^[\w-]+\.py$", description="the name of a Python file beside exercise.yaml")
]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Points = Annotated[float, Field(ge=0, le=1000, allow_inf_nan=False)]


class Specified(BaseModel):
    """A part of `exercise.yaml`: an unknown key is a fault, and so is text where a number belongs."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class DeviceNeeds(Specified):
    simulated: Text = Field(
        "2xT4", description="the simulated GPUs to grade on, as COUNTxPROFILE, for example 2xT4"
    )
    minimum: int = Field(2, ge=1, le=64, description="how many GPUs a graded run needs")


class Limits(Specified):
    seconds: float = Field(120, gt=0, le=86_400, description="seconds that one run of the script may take")
    output_kilobytes: int = Field(256, ge=1, le=1_000_000, description="kilobytes that the script may print")
    memory_gigabytes: float = Field(8, gt=0, le=100_000, description="gigabytes of the host's memory")
    events_megabytes: float = Field(64, gt=0, le=100_000, description="megabytes of records of one run")
    weights_megabytes: float = Field(64, gt=0, le=1_000_000, description="megabytes of trained weights")
    tasks: int = Field(256, ge=1, le=100_000, description="processes and threads of one run")


class AccuracyRun(Specified):
    data: Text = Field("digits", description="data for the accuracy run, as data.py names them")


class SpeedRun(Specified):
    data: Text = Field("synthetic:60000", description="data for the speed run, as data.py names them")
    epochs: int = Field(1, ge=1, le=100, description="epochs to time on simulated GPUs")


class Thresholds(Specified):
    saving: Share = Field(
        0.40, description="the share of the baseline's time per epoch to save, 0.40 for 40 %"
    )
    validation_accuracy: Share = Field(0.75, description="the accuracy to exceed, 0.75 for 75 %")
    accuracy_tolerance: Share = Field(
        0.03, description="how far the accuracy may fall short of the baseline's, 0.03 for 3 points"
    )
    loss_tolerance: Share = Field(
        0.02, description="how far a step's loss may be from the baseline's, as a share, 0.02 for 2 %"
    )
    weights_tolerance: Share = Field(
        0.06, description="how far the weights may be from the baseline's, as a share of how far those moved"
    )


class Specification(Specified):
    """What `exercise.yaml` holds."""

    title: Text = Field(description="the exercise's name for people")
    summary: Text = Field(description="the task in one sentence")
    script: PythonFile = "train.py"
    baseline: PythonFile = "baseline.py"
    checks: PythonFile = "checks.py"
    model: str = Field(
        "Net", pattern=r"^[A-Za-z_]\w*$", description="the name of the trained class in the baseline"
    )
    solution: Annotated[Path, Field(strict=False)] | None = Field(
        None, description="the path of the solution, relative to exercise.yaml"
    )
    devices: DeviceNeeds = DeviceNeeds()
    limits: Limits = Limits()
    accuracy_run: AccuracyRun = AccuracyRun()
    speed_run: SpeedRun = SpeedRun()
    thresholds: Thresholds = Thresholds()
    points: dict[str, Points] = Field(description="points from 0 to 1000 for every check, by its id")
    hints: list[Text] = Field(min_length=1, description="hints, each more explicit than the last")


_DEFAULTS = {name: field.default for name, field in Specification.model_fields.items()}


class Exercise(Specification):
    """A complete exercise: its specification and the folder it lies in (absolute, like `solution`)."""

    folder: Path

    @property
    def name(self) -> str:
        """The folder's name, by which the exercise is known."""
        return self.folder.name


class BrokenExercise(Exception):
    """The exercise cannot be used; `faults` says everything that is wrong with it."""

    def __init__(self, summary: str, faults: Sequence[Fault]) -> None:
        super().__init__(summary, faults)
        self.summary, self.faults = summary, tuple(faults)

    def __str__(self) -> str:
        return f"{self.summary}\n\n{listing(self.faults)}"


def find_exercises(root: Path) -> list[Path]:
    """Return the folders directly below `root` that hold an `exercise.yaml`, by name."""
    return sorted(file.parent for file in root.glob(f"*/{SPECIFICATION}")) if root.is_dir() else []


def load_exercise(folder: Path | str) -> Exercise:
    """Read and check the exercise in `folder`; raises `BrokenExercise` with all faults at once."""
    folder = Path(folder)
    file = folder / SPECIFICATION
    if not file.is_file():
        raise BrokenExercise(f"There is no exercise in {folder}.", [_nothing_there(folder)])
    document = read(file)
    specification = None
    if document.value is not None or not document.faults:
        specification = _validate(document)
        if isinstance(document.value, dict):
            blame_surroundings(document, _DEFAULTS)
    if document.faults or specification is None:
        count = len(document.faults)
        summary = f"The exercise in {folder} has {count} fault{'s' * (count != 1)}."
        raise BrokenExercise(summary, document.faults)
    fields = {name: getattr(specification, name) for name in type(specification).model_fields}
    folder = folder.resolve()
    if specification.solution is not None:
        fields["solution"] = Path(os.path.normpath(folder / specification.solution))
    return Exercise(folder=folder, **fields)


def _nothing_there(folder: Path) -> Fault:
    if (folder.parent / SPECIFICATION).is_file():
        return Fault(folder, "something inside an exercise", f"the exercise's folder, {folder.parent}")
    known = find_exercises(folder.parent) or find_exercises(Path("exercises"))
    if not folder.exists():
        found = "no such folder"
    elif not folder.is_dir():
        found = "a file"
    else:
        found = f"a folder without {SPECIFICATION}"
    if not known:
        return Fault(folder, found, f"the path of a folder that holds {SPECIFICATION}")
    near = difflib.get_close_matches(folder.name, [path.name for path in known], n=1)
    first = [f"{path}" for path in known if path.name in near]
    guess = f"{first[0]}? " if first else ""
    return Fault(folder, found, f"{guess}The exercises are: {', '.join(map(str, known))}")


def _validate(document: Document) -> Specification | None:
    if not isinstance(document.value, dict):
        found = "an empty file" if document.value is None else shown(document.value)
        document.blame((), found, "`title: ...` and the other keys of an exercise, one a line")
        return None
    try:
        return Specification.model_validate(document.value)
    except ValidationError as error:
        blame_validation(document, Specification, error)
        return None
