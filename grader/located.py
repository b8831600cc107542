"""YAML whose values know their line, and faults that say where they are.

`read` accepts a part of YAML 1.2 that cannot surprise: one document, plain keys, each key once, no
anchors, no tags. Whatever leaves that part is a `Fault`, and reading goes on to find the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, StringMark
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

Severity = Literal["error", "warning"]
Location = tuple[str | int, ...]  # the keys and list positions that lead to a value, outermost first

# What to do about the syntax errors that people make, by a part of the parser's words.
_REMEDIES = (
    ("'\\t'", "spaces: YAML does not allow a tab in front of a value"),
    ("mapping values are not allowed", "quotes around a text that contains a colon followed by a space"),
    ("cannot start any token", "quotes around a text that begins with this character"),
    ("unexpected end of stream", "the quote that ends the text which begins here"),
    ("expected ',' or", "the bracket that ends the list or mapping which begins here, or a comma"),
    ("expected <block end>", "the same indentation as the lines above"),
    ("could not find expected ':'", "a colon and a space after the key"),
    ("another document", "one document: no second `---` line"),
)
_TAG = "tag:yaml.org,2002:"
_PLAIN_TAGS = {_TAG + name for name in ("map", "seq", "str", "int", "float", "bool", "null", "timestamp")}


@dataclass(frozen=True)
class Place:
    """A position in a text; lines and columns count from 1."""

    line: int
    column: int


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong in a file, for the person who has to mend it."""

    file: Path
    found: str
    expected: str
    line: int | None = None  # None where the file as a whole is meant
    column: int | None = None
    quoted: str = ""  # the line itself
    code: str = ""  # names the kind of fault, where there is more to read about it
    severity: Severity = "error"

    def __str__(self) -> str:
        place = f"{self.file}" if self.line is None else f"{self.file}:{self.line}:{self.column}"
        lines = [f"{place}: {self.severity} {self.code}" if self.code else place]
        if self.quoted.strip():
            gutter = f"{self.line} | "
            lines += [f"  {gutter}{self.quoted}", "  " + " " * (len(gutter) + (self.column or 1) - 1) + "^"]
        return "\n".join([*lines, f"  found:    {self.found}", f"  expected: {self.expected}"])


@dataclass
class Document:
    """A YAML file as plain Python values, with the place of each value and key."""

    file: Path
    text: str = ""
    value: Any = None
    values: dict[Location, Place] = field(default_factory=dict)
    keys: dict[Location, Place] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    blamed: set[Location] = field(default_factory=set)

    def blame(
        self,
        location: Location,
        found: str,
        expected: str,
        *,
        key: bool = False,
        code: str = "",
        severity: Severity = "error",
    ) -> None:
        """Note a fault of the value at `location`, or of its key.

        Where neither exists the fault stands at the nearest thing around it. A location is blamed for one
        error only: what is found there later mostly follows from the first.
        """
        if severity == "error":
            if location in self.blamed:
                return
            self.blamed.add(location)
        place = self.keys.get(location) if key else None
        while place is None and location not in self.values and location:
            location = location[:-1]
            place = self.keys.get(location)
        self.blame_place(place or self.values.get(location), found, expected, code=code, severity=severity)

    def blame_place(
        self, place: Place | None, found: str, expected: str, *, code: str = "", severity: Severity = "error"
    ) -> None:
        """Note a fault at a place of the text, or of the file as a whole."""
        line = column = None
        quoted = ""
        if place is not None:
            line, column = place.line, place.column
            lines = self.text.splitlines()
            quoted = lines[line - 1] if line <= len(lines) else ""
        self.faults.append(Fault(self.file, found, expected, line, column, quoted, code, severity))

    def at(self, location: Location, default: Any = None) -> Any:
        """Return the value at `location`, or `default` where there is none."""
        value = self.value
        for step in location:
            try:
                value = value[step]
            except (KeyError, IndexError, TypeError):
                return default
        return value


def read(file: Path) -> Document:
    """Read a YAML file; what is wrong with it as YAML stands in the document's `faults`.

    Where the file cannot be read at all, `value` is None and there is at least one fault.
    """
    document = Document(file)
    try:
        document.text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as problem:
        before = problem.object[: problem.start].decode("utf-8")
        document.blame_place(_place_after(before), "a byte that is not UTF-8", "a text file in UTF-8")
        return document
    except OSError as problem:
        document.blame_place(None, problem.strerror or str(problem), "a file that can be read")
        return document
    yaml = YAML(typ="safe", pure=True)
    try:
        node = yaml.compose(document.text)
    except MarkedYAMLError as problem:
        _blame_syntax(document, problem)
    except ReaderError as problem:
        place = _place_after(document.text[: problem.position])
        found = f"the control character U+{ord(document.text[problem.position]):04X}"
        document.blame_place(place, found, "text without control characters")
    except RecursionError:
        document.blame_place(None, "lists or mappings nested too deeply", "a few levels")
    else:
        if node is not None:
            document.value = _Conversion(document, yaml).convert(node, ())
    return document


def _blame_syntax(document: Document, problem: MarkedYAMLError) -> None:
    text = problem.problem or problem.context or "a mistake"
    expected = next((remedy for part, remedy in _REMEDIES if part in text), "correct YAML")
    if "undefined alias" in text:
        expected = "the value itself: anchors and aliases are not used here"
    begins_here = "begins here" in expected and problem.context_mark is not None
    mark = problem.context_mark if begins_here else problem.problem_mark
    document.blame_place(_place(mark) if mark else None, f"not YAML: {text}", expected)


class _Conversion:
    """Turns a tree of YAML nodes into Python values and notes their places."""

    def __init__(self, document: Document, yaml: YAML) -> None:
        self.document, self.yaml = document, yaml
        self.anchored: set[int] = set()

    def convert(self, node: Node, location: Location) -> Any:
        self.document.values[location] = _place(node.start_mark)
        if node.start_mark.index == node.end_mark.index and location in self.document.keys:
            # No value at all: its mark is wherever the next thing begins, so the key stands for it.
            self.document.values[location] = self.document.keys[location]
        if node.anchor:
            if id(node) in self.anchored:  # an alias: the same node again, perhaps inside of itself
                self.document.blamed.add(location)
                return None
            self.anchored.add(id(node))
            expected = "the value itself in each place: anchors and aliases are not used here"
            self.document.blame(location, f"the anchor `&{node.anchor}`", expected)
        if node.tag not in _PLAIN_TAGS:
            return self._refuse_tag(node, location)
        if isinstance(node, MappingNode):
            return self._mapping(node, location)
        if isinstance(node, SequenceNode):
            return [self.convert(item, (*location, index)) for index, item in enumerate(node.value)]
        return self._scalar(node, location)

    def _mapping(self, node: MappingNode, location: Location) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            place = _place(key_node.start_mark)
            if not isinstance(key_node, ScalarNode) or key_node.tag != _TAG + "str":
                scalar = isinstance(key_node, ScalarNode)
                found = f"`{key_node.value}` as a key" if scalar else "a list or mapping as a key"
                self.document.blame_place(place, found, "a key that is a word")
                continue
            key = key_node.value
            if key in values:
                first = self.document.keys[(*location, key)].line
                found = f"the key `{key}` a second time; the first is in line {first}"
                self.document.blame_place(place, found, "each key once")
                continue
            self.document.keys[(*location, key)] = place
            values[key] = self.convert(value_node, (*location, key))
        return values

    def _scalar(self, node: Node, location: Location) -> Any:
        if node.tag == _TAG + "timestamp":  # for people a text like any other
            return node.value
        try:
            return self.yaml.constructor.construct_object(node)
        except ValueError:  # an explicit tag such as !!int on what is none
            return self._refuse_tag(node, location)

    def _refuse_tag(self, node: Node, location: Location) -> None:
        self.document.blame(location, f"the tag `{node.tag}`", "a plain value without a tag")


def _place(mark: StringMark) -> Place:
    return Place(mark.line + 1, mark.column + 1)


def _place_after(text: str) -> Place:
    return Place(text.count("\n") + 1, len(text) - (text.rfind("\n") + 1) + 1)


def listing(faults: Sequence[Fault]) -> str:
    """Return the faults as a text for a terminal, in the order of their lines."""
    ordered = sorted(faults, key=lambda f: (str(f.file), f.line or 0, f.column or 0))
    return "\n\n".join(str(fault) for fault in ordered)
