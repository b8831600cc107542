"""Grades of every kind, as the reports get them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from grader.grade import Grade

FIXTURES = Path(__file__).with_name("fixtures")


@pytest.fixture(scope="session")
def grade() -> Callable[[str], Grade]:
    """Read a grade of `fixtures/`, by name."""
    return lambda name: Grade.model_validate_json((FIXTURES / f"{name}.json").read_text(encoding="utf-8"))
