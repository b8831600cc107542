"""Processes that a simulated one starts: Python ones see the same machine."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from . import sharing, visible
from .patches import Patches
from .settings import VARIABLE, Settings
from .specification import absolute

if TYPE_CHECKING:
    from .machine import Machine


def install(machine: Machine, patches: Patches) -> None:
    """Describe the machine in this process's environment, unless that describes one already."""
    sharing.install(machine, patches)
    if VARIABLE in os.environ:
        return
    hiding = os.environ.get(visible.VARIABLE)
    settings = Settings(absolute(machine.spec), machine.math, quiet=True, frames=True, hiding=hiding)
    for name, value in settings.variables(os.environ).items():
        before = os.environ.get(name)
        os.environ[name] = value
        patches.finally_do(lambda name=name, before=before: _put_back(name, before))  # type: ignore[misc]


def _put_back(name: str, before: str | None) -> None:
    if before is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = before
