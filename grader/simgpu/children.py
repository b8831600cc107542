"""Processes that a simulated one starts: Python ones see the same machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from . import visible
from .patches import Patches
from .settings import VARIABLE, Settings

if TYPE_CHECKING:
    from .machine import Machine


def install(machine: Machine, patches: Patches) -> None:
    """Describe the machine in this process's environment, unless that describes one already."""
    if VARIABLE in os.environ:
        return
    hiding = os.environ.get(visible.VARIABLE)
    settings = Settings(absolute(machine.spec), machine.math, quiet=True, hiding=hiding)
    for name, value in settings.variables(os.environ).items():
        before = os.environ.get(name)
        os.environ[name] = value
        patches.finally_do(lambda name=name, before=before: _put_back(name, before))  # type: ignore[misc]


def _put_back(name: str, before: str | None) -> None:
    if before is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = before


def absolute(spec: str) -> str:
    """The specification as it can be read in any folder."""
    count, times, which = spec.strip().partition("x")
    if not (times and count.isdigit()):
        count, times, which = "", "", spec.strip()
    if which.endswith((".yaml", ".yml")):
        which = str(Path(which).expanduser().absolute())
    return f"{count}{times}{which}"
