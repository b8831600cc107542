"""What every test may assume."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Small tensors gain nothing from many threads, and the tests themselves run side by side. The
# processes that a test starts inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The checkout's root, with `exercises/`, `solutions/` and `templates/` in it."""
    return ROOT


@pytest.fixture(scope="session")
def dataparallel(checkout: Path) -> Path:
    """The folder of the DataParallel exercise."""
    return checkout / "exercises" / "dataparallel"
