"""What pydantic finds wrong with a YAML document, in words for the person who wrote it."""

from __future__ import annotations

import difflib
import typing
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from grader.located import Document, Location

_KINDS = {
    "string_type": "text, in quotes where it looks like something else",
    "path_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "keys and values",
    "model_type": "keys and values",
}
_BOUNDS = {
    "greater_than": "a number above {gt:g}",
    "greater_than_equal": "a number of at least {ge:g}",
    "less_than": "a number below {lt:g}",
    "less_than_equal": "a number of at most {le:g}",
    "too_short": "at least {min_length}",
    "too_long": "at most {max_length}",
}


def blame_validation(document: Document, model: type[BaseModel], error: ValidationError) -> None:
    """Add every finding of `error`, which validating `document` against `model` gave, to its faults."""
    for finding in error.errors(include_url=False):
        location: Location = tuple(step for step in finding["loc"] if step != "[key]")
        kind, context = finding["type"], finding.get("ctx", {})
        if kind == "extra_forbidden":
            _blame_unknown_key(document, model, location)
        elif kind == "missing":
            where = f" under `{_dotted(location[:-1])}`" if len(location) > 1 else ""
            expected = _join(f"`{location[-1]}: ...`", _description(model, location))
            document.blame(location, f"no key `{location[-1]}`{where}", expected, key=True)
        else:
            expected = _KINDS.get(kind) or _BOUNDS.get(kind, "").format(**context)
            if kind == "value_error":
                expected = str(context["error"])
            document.blame(location, shown(finding["input"]), _join(expected, _description(model, location)))


def shown(value: Any) -> str:
    """Return a value as its author would recognize it."""
    match value:
        case None:
            return "no value"
        case bool():
            return "true" if value else "false"
        case str():
            text = " ".join(value.split())
            return f'the text "{text[:57]}..."' if len(text) > 60 else f'the text "{text}"'
        case list():
            return f"a list of {len(value)}" if value else "an empty list"
        case dict():
            return "keys and values"
        case _:
            return str(value)


def _blame_unknown_key(document: Document, model: type[BaseModel], location: Location) -> None:
    parent = _model_at(model, location[:-1])
    known = list(parent.model_fields) if parent else []
    near = difflib.get_close_matches(str(location[-1]), known, n=1)
    expected = f"`{near[0]}`?" if near else f"one of {', '.join(known)}"
    document.blame(location, f"the unknown key `{location[-1]}`", expected, key=True)


def _description(model: type[BaseModel], location: Location) -> str:
    """Return the description of the innermost described field on the way to `location`."""
    description = ""
    for length in range(1, len(location) + 1):
        parent = _model_at(model, location[: length - 1])
        field = parent.model_fields.get(str(location[length - 1])) if parent else None
        if field and field.description:
            description = field.description
    return description


def _model_at(model: type[BaseModel] | None, location: Location) -> type[BaseModel] | None:
    for step in location:
        field = model.model_fields.get(str(step)) if model else None
        model = _model_of(field) if field else None
    return model


def _model_of(field: FieldInfo) -> type[BaseModel] | None:
    candidates = (field.annotation, *typing.get_args(field.annotation))
    return next((c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)), None)


def _dotted(location: Location) -> str:
    return ".".join(str(step) for step in location)


def _join(*parts: str) -> str:
    return ": ".join(part for part in parts if part)
