"""What a question is recognized by once its text has changed, or has not."""

from __future__ import annotations

import hashlib

from pydantic import BaseModel

# What no run depends on: changing a word of these leaves a proof as it was.
_WORDS = {"why", "text", "title", "difficulty", "tags", "points", "stem", "hints", "steps", "quick_check",
          "mistakes", "explanation", "references", "shuffle", "pinned", "select"}  # fmt: skip


def content_hash(question: BaseModel) -> str:
    """Return 16 hexadecimal digits that change with anything a learner is shown or judged by."""
    return _digest(question.model_dump_json())


def proof_hash(question: BaseModel) -> str:
    """Return 16 hexadecimal digits that change with anything a proof runs or compares."""
    options = [{"__all__": _WORDS}]
    return _digest(question.model_dump_json(exclude={**dict.fromkeys(_WORDS, True), "options": options[0]}))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
