"""A grade as JSON, for other programs; `schema` describes it."""

from __future__ import annotations

import json

from grader.grade import Grade


def dump(grade: Grade) -> str:
    """Return the grade as JSON that ends in a newline; the same grade gives the same bytes."""
    return json.dumps(grade.model_dump(mode="json"), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def schema() -> str:
    """Return the JSON Schema of what `dump` gives."""
    described = Grade.model_json_schema(mode="serialization")
    described = {"$schema": "https://json-schema.org/draft/2020-12/schema", **described}
    return json.dumps(described, indent=2, ensure_ascii=False) + "\n"
