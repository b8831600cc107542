"""pytest, run inside the grader and out of reach of whatever lies around.

Nothing that a submission, a working folder or an environment can hold changes what is run: no
conftest.py, no configuration file, no option from the environment, no plugin found on `sys.path`.
Nothing is printed and nothing is written.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

# Each would print, write, replace a process-wide hook, or disturb a pytest that is running already.
_UNUSED_PLUGINS = (
    "cacheprovider",
    "capture",
    "debugging",
    "doctest",
    "faulthandler",
    "junitxml",
    "legacypath",
    "logging",
    "pastebin",
    "setuponly",
    "setupplan",
    "stepwise",
    "terminal",
    "threadexception",
    "tmpdir",
    "unittest",
    "unraisableexception",
    "warnings",
)

# pytest keeps its state in the environment and in the import system, which one process has once.
_one_at_a_time = threading.RLock()


def run_isolated(path: Path, plugin: object) -> None:
    """Collect and run one file of tests, `plugin` being the only one besides pytest's own.

    What the tests said is left in the plugin. Raises `RuntimeError` where pytest itself breaks.
    """
    arguments = [
        str(path),
        f"--rootdir={path.parent}",
        f"--config-file={os.devnull}",
        "--noconftest",
        "--import-mode=importlib",
        "--assert=plain",
        "--disable-plugin-autoload",
        *(part for name in _UNUSED_PLUGINS for part in ("-p", f"no:{name}")),
    ]
    with _one_at_a_time, _clean_environment():
        status = pytest.main(arguments, plugins=[plugin])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise RuntimeError(f"pytest ended with {status!r}")


@contextmanager
def _clean_environment() -> Iterator[None]:
    """Hide every variable that pytest reads, and put all of them back afterwards."""
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PYTEST_", "PY_COLORS"))}
    for name in kept:
        del os.environ[name]
    try:
        yield
    finally:
        for name in [name for name in os.environ if name.startswith("PYTEST_")]:
            del os.environ[name]
        os.environ.update(kept)
