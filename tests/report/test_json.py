"""The grade as other programs read it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from grader.grade import Grade
from grader.report.json import dump, schema

NAMES = ["solution", "stub", "script_error", "timeout", "inconclusive", "ungradable", "real_gpus"]


@pytest.mark.parametrize("name", NAMES)
def test_the_promised_keys_are_there(grade: Callable[[str], Grade], name: str) -> None:
    found = json.loads(dump(grade(name)))
    assert {"score", "max_score", "outcome", "devices", "epoch_seconds", "accuracy", "checks"} <= set(found)
    assert {"kind", "profile", "count"} <= set(found["devices"])
    assert {"baseline", "submission"} <= set(found["epoch_seconds"])
    assert {"train", "validation", "baseline_train", "baseline_validation"} <= set(found["accuracy"])
    for check in found["checks"]:
        assert {"id", "title", "outcome", "score", "max_score", "message", "location"} <= set(check)


@pytest.mark.parametrize("name", NAMES)
def test_the_schema_describes_what_is_written(grade: Callable[[str], Grade], name: str) -> None:
    described = json.loads(schema())
    _conforms(json.loads(dump(grade(name))), described, described["$defs"])


def test_a_stub_gets_its_thirty_points_and_the_same_bytes_each_time(grade: Callable[[str], Grade]) -> None:
    text = dump(grade("stub"))
    assert text == dump(grade("stub"))
    assert text.endswith("}\n")
    found = json.loads(text)
    assert (found["score"], found["max_score"], found["outcome"]) == (30.0, 100.0, "failed")


def _conforms(value: Any, described: dict[str, Any], definitions: dict[str, Any]) -> None:
    """Check the part of JSON Schema that the grade's schema uses."""
    if "$ref" in described:
        _conforms(value, definitions[described["$ref"].rpartition("/")[2]], definitions)
        return
    if "anyOf" in described:
        kind = "null" if value is None else None
        options = [o for o in described["anyOf"] if (o.get("type") == "null") == (kind == "null")]
        assert options, value
        _conforms(value, options[0], definitions)
        return
    if "enum" in described:
        assert value in described["enum"]
    types = {
        "object": dict,
        "array": list,
        "string": str,
        "boolean": bool,
        "integer": int,
        "number": (int, float),
    }
    if described.get("type") in types:
        assert isinstance(value, types[described["type"]])
    if isinstance(value, dict) and "properties" in described:
        assert set(described.get("required", [])) <= set(value) <= set(described["properties"])
        for key, item in value.items():
            _conforms(item, described["properties"][key], definitions)
    if isinstance(value, list):
        for index, item in enumerate(value):
            parts = described.get("prefixItems", [])
            _conforms(item, parts[index] if parts else described["items"], definitions)
