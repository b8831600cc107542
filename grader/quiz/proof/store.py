"""Proofs that are kept beside a quiz, in NAME.proof.json."""

from __future__ import annotations

import json
import os
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from grader.quiz.files import QuizFile
from grader.quiz.identity import proof_hash
from grader.quiz.proof.record import Record

_RECORDS = TypeAdapter(dict[str, Record])


def store_path(file: QuizFile) -> Path:
    """Where the proofs of a quiz are kept."""
    return file.path.with_suffix(".proof.json")


def stored(file: QuizFile) -> dict[str, Record]:
    """The proofs that still hold, by question id: those of questions that are as they were."""
    try:
        records = _RECORDS.validate_json(store_path(file).read_bytes())
    except (OSError, ValidationError):
        return {}
    hashes = {question.id: proof_hash(question) for question in file.quiz.questions}
    return {name: record for name, record in records.items() if hashes.get(name) == record.hash}


def store(file: QuizFile, records: dict[str, Record]) -> None:
    """Replace the proofs of a quiz, in the order of its questions. Raises OSError."""
    ordered = {q.id: records[q.id].model_dump() for q in file.quiz.questions if q.id in records}
    path = store_path(file)
    if not ordered and not path.exists():
        return
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_text(json.dumps(ordered, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(fresh, path)
