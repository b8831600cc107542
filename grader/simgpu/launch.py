"""What `simgpu run` starts: a script, a module or another program, in an environment that simulates."""

from __future__ import annotations

import difflib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from .settings import FIRST, Settings

_SCRIPTS = (".py", ".pyw", ".pyc", ".pyz")


class NothingToRun(ValueError):
    """What was to be run is not there or cannot be read; the message says what was looked for."""


def command(target: str, arguments: Sequence[str], module: bool = False) -> list[str]:
    """The command line that runs `target`. Raises NothingToRun."""
    if module:
        _check_module(target)
        return [sys.executable, "-m", target, *arguments]
    path = Path(target)
    if path.exists():
        if path.is_file() and path.suffix not in _SCRIPTS and os.access(path, os.X_OK):
            return [str(path.absolute()), *arguments]
        _check_script(path)
        return [sys.executable, target, *arguments]
    return [_program(target), *arguments]


def _check_script(path: Path) -> None:
    if path.is_dir():
        if not (path / "__main__.py").is_file():
            raise NothingToRun(f"{path} is a folder without a __main__.py; name a script")
        return
    try:
        with path.open("rb"):
            pass
    except OSError as problem:
        raise NothingToRun(f"{path} cannot be read: {problem.strerror}") from None


def _check_module(name: str) -> None:
    # Only the outermost package: looking for more would run the package's code.
    outermost = name.partition(".")[0]
    sys.path.insert(0, os.getcwd())
    try:
        found = bool(outermost) and importlib.util.find_spec(outermost) is not None
    except ValueError:  # a name that no module has
        found = False
    finally:
        del sys.path[0]
    if not found:
        raise NothingToRun(f"{sys.executable} has no module named {name!r}")


def _program(name: str) -> str:
    """The program of that name: one installed beside this Python, or else on PATH."""
    beside = os.path.dirname(sys.executable)
    found = shutil.which(name, path=os.pathsep.join([beside, os.environ.get("PATH", os.defpath)]))
    if found is not None:
        return found
    path = Path(name)
    if path.parent.is_dir():
        scripts = [script.name for script in path.parent.glob("*.py")]
        near = difflib.get_close_matches(path.name, scripts, n=1, cutoff=0.75)
        hint = f"; did you mean {path.parent / near[0]}?" if near else ""
    else:
        hint = f"; there is no folder {path.parent}"
    kinds = "is not a file" if path.suffix in _SCRIPTS else "is neither a file nor a program on PATH"
    raise NothingToRun(f"{name} {kinds}{hint}")


def execute(arguments: list[str], settings: Settings) -> NoReturn:
    """Become the program; or, where processes cannot be replaced, run it and end as it ended."""
    environment = {**os.environ, **settings.variables(os.environ), FIRST: "1"}
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name == "posix":
        os.execve(arguments[0], arguments, environment)
    sys.exit(subprocess.call(arguments, env=environment))
