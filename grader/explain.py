"""What an exception means, in plain language, from a catalogue of known errors.

The catalogue is data (`explanations.yaml`); nothing here knows a particular error. An exception that
a replica raised arrives wrapped, "Caught RuntimeError in replica 1 on device 1.", with its own
traceback as text: the innermost one is the cause, and the cause is what is looked up.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from string import Formatter

from pydantic import BaseModel, ConfigDict, TypeAdapter, field_validator, model_validator

from grader.located import listing, read

CATALOGUE = Path(__file__).with_name("explanations.yaml")

_WRAPPED = re.compile(r"^Caught (?P<type>[\w.]+) (?P<where>in .+?)\.\s*^Original Traceback", re.M | re.S)
_REPLICA = re.compile(r"in replica (?P<replica>\d+) on device (?P<device>\d+)")
_RAISED = re.compile(r"^(?P<type>[A-Za-z_][\w.]*)(?::\s?(?P<message>.*))?$")
_AGAIN = ("During handling of the above exception", "The above exception was the direct cause")


class Part(BaseModel):
    """A part of the catalogue: an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Example(Part):
    """An exception that an entry is about, as Python reports it."""

    type: str
    message: str


class Entry(Part):
    """One kind of error; groups that `message` names can be used in both texts as `{name}`."""

    id: str
    type: str = r".*"  # regular expression for the whole class name, module left out
    message: str  # regular expression, searched for in the message with its white space joined
    explanation: str  # what happened and why, one or two sentences
    look_at: str  # what to look at or to change
    example: Example  # proves the entry: a test explains it

    @field_validator("type", "message")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        try:
            re.compile(pattern)
        except re.error as problem:
            raise ValueError(f"not a regular expression: {problem}") from None
        return pattern

    @model_validator(mode="after")
    def _texts_use_named_groups(self) -> Entry:
        groups = re.compile(self.message).groupindex
        used = {
            name for text in (self.explanation, self.look_at) for _, name, _, _ in Formatter().parse(text)
        }
        unknown = used - {None} - set(groups)
        if unknown:
            raise ValueError(f"{{{unknown.pop()}}} is not a group of `message`")
        return self

    def match(self, type_name: str, message: str) -> Explanation | None:
        """Return the explanation of an exception, or None where it is of another kind."""
        found = re.search(self.message, message)
        if found is None or not re.fullmatch(self.type, type_name):
            return None
        groups = {name: value or "" for name, value in found.groupdict().items()}
        return Explanation(
            id=self.id, explanation=self.explanation.format(**groups), look_at=self.look_at.format(**groups)
        )


class Explanation(Part):
    """A known error in plain language."""

    id: str
    explanation: str
    look_at: str


def explain(type_name: str, message: str) -> Explanation | None:
    """Explain an exception, given its class's name and its message; None where it is not a known one."""
    type_name, message, where = cause(type_name, message)
    type_name, message = type_name.rpartition(".")[2], " ".join(message.split())
    for entry in catalogue():
        found = entry.match(type_name, message)
        if found:
            replica = _REPLICA.search(where)
            if replica:
                place = f"This happened in the copy of the model on GPU {replica['device']}. "
                found = found.model_copy(update={"explanation": place + found.explanation})
            return found
    return None


def cause(type_name: str, message: str) -> tuple[str, str, str]:
    """Return class name and message of the innermost exception, and the words for where it was caught.

    The words are empty where nothing was wrapped, else like "in replica 1 on device 1".
    """
    where = ""
    while wrapped := _WRAPPED.search(message):
        type_name, where = wrapped["type"], wrapped["where"]
        type_name, message = _raised_in(message[wrapped.end() :].splitlines(), type_name)
    return type_name, message, where


def _raised_in(lines: Iterable[str], type_name: str) -> tuple[str, str]:
    """Return class name and message of the exception that ends a traceback, given as its lines."""
    message: list[str] = []
    in_frames = True
    for line in lines:
        if line.startswith(_AGAIN):  # another traceback follows, and its exception is the one that left
            in_frames = True
        elif not in_frames:
            message.append(line)
        elif raised := _RAISED.match(line):
            in_frames = False
            type_name, message = raised["type"], [raised["message"] or ""]
    return type_name, "\n".join(message).strip()


@cache
def catalogue(file: Path = CATALOGUE) -> tuple[Entry, ...]:
    """Return the entries of a catalogue, most specific first as in the file.

    Raises ValueError where the file is not a catalogue.
    """
    document = read(file)
    if document.faults:
        raise ValueError(listing(document.faults))
    return tuple(TypeAdapter(list[Entry]).validate_python(document.value))
