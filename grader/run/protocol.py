"""What crosses the border between a learner's process and the grader: JSON lines, checked one by one.

A run sends records over a pipe. Each line is one JSON object `{"token", "record", ...}`; the token is
drawn anew for every run, so that a line written by anything but the probe is recognised as foreign.
A record that breaks the schema or exceeds the cap ends the run as malformed: nothing is guessed.
"""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from grader.evidence import (
    Architecture,
    DeviceUse,
    Epoch,
    Optimizer,
    Record,
    ScriptError,
    Span,
    Step,
    Wrapper,
)


class Fence(Record):
    """The devices are idle and the script waits: an epoch begins, pauses, goes on or has ended."""

    record: Literal["fence"]
    edge: Literal["begin", "pause", "resume", "end"]
    epoch: int
    steps: int = 0  # optimizer steps taken within the epoch
    virtual: float | None = None  # simulated seconds; None on real GPUs


class StepRecord(Record):
    record: Literal["step"]
    step: Step


class EpochRecord(Record):
    """A finished pass over the training rows; its seconds are the parent's to fill in."""

    record: Literal["epoch"]
    epoch: Epoch


class Summary(Record):
    """Sent once, when the script has ended or is stopped at a fence."""

    record: Literal["summary"]
    wrappers: list[Wrapper]
    optimizers: list[Optimizer]
    architecture: Architecture | None
    precision: dict[str, str]
    devices: list[DeviceUse]
    spans: list[Span]
    tampering: list[str]
    warnings: list[str]


class End(Record):
    """The last record of a run that ended by itself or at a fence; what comes without it was killed."""

    record: Literal["end"]
    outcome: Literal["completed", "error", "out_of_memory", "killed", "ungradable"]
    error: ScriptError | None = None
    detail: str = ""  # what broke in the grader, where the outcome is ungradable
    weights: bool = False  # whether a file of weights was written


class Tampering(Record):
    """The script was caught at it; sent at once, so that nothing it does later takes it back."""

    record: Literal["tampering"]
    what: str


AnyRecord = Fence | StepRecord | EpochRecord | Summary | Tampering | End
_ADAPTER: TypeAdapter[AnyRecord] = TypeAdapter(Annotated[AnyRecord, Field(discriminator="record")])


# A terminal must not be steered by what a script chose to name or to print: colours, cursor moves, control
# characters, marks that reverse the text's direction, and halves of characters go.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_LONGEST = 20_000  # characters of one text; a traceback is cut to less where it is made


def printable(text: str) -> str:
    """Return `text` without what a terminal would obey."""
    return _CONTROLS.sub("", _ESCAPES.sub("", text.replace("\r\n", "\n").replace("\r", "\n")))


def _printable(value: Any) -> Any:
    """Clean every text in a decoded record."""
    if isinstance(value, str):
        return printable(value)[:_LONGEST]
    if isinstance(value, list):
        return [_printable(item) for item in value]
    if isinstance(value, dict):
        return {printable(key)[:_LONGEST]: _printable(item) for key, item in value.items()}
    return value


class MalformedRecord(ValueError):
    """A line from the learner's process is not a record of this run."""


def parse(line: bytes, token: str) -> AnyRecord:
    """Return the record in `line`; raises MalformedRecord."""
    try:
        fields: Any = _printable(json.loads(line))
    except (ValueError, RecursionError):
        raise MalformedRecord(f"not JSON: {line[:80]!r}") from None
    if not isinstance(fields, dict) or fields.pop("token", None) != token:
        raise MalformedRecord("a record that the grader's probe did not write")
    try:
        return _ADAPTER.validate_python(fields)
    except ValidationError as fault:
        first = fault.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise MalformedRecord(f"record breaks the schema at {where}: {first['msg']}") from None
