"""Puts the simulated machine that the environment describes under the Python process that is starting.

The process that `simgpu run` becomes gets it at once. One that such a process starts gets it when it imports
torch, and costs nothing if it never does.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import signal
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NoReturn

from . import settings as environment
from .settings import Settings

USAGE = 2  # exit code of a mistake in what was asked


def start() -> None:
    """Called while Python starts, before the program."""
    try:
        settings = environment.of(os.environ)
        first = os.environ.pop(environment.FIRST, None) is not None
        if settings is None:
            return
        if first:
            install(settings, first=True)
        else:
            sys.meta_path.insert(0, AfterImport("torch", lambda: install(settings, first=False)))
    except environment.BadSettings as problem:
        give_up(str(problem))
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.raise_signal(signal.SIGINT)


def install(settings: Settings, first: bool) -> None:
    """Put the machine under this process, and let what it did be shown at its end."""
    try:
        from .machine import Machine, RealGPUs, installed
    except ModuleNotFoundError as missing:
        give_up(f"{sys.executable} has no {missing.name}, which simulated GPUs need")
    if installed() is not None:
        return
    from .profiles import BadProfile

    try:
        machine = Machine(settings.spec, settings.math, ranges=True)
        machine.install()
    except (BadProfile, RealGPUs) as problem:
        give_up(str(problem))
    from .ending import Ending

    atexit.register(Ending(machine, settings, first).show)


def give_up(sentence: str) -> NoReturn:
    """End the process before its program begins."""
    print(f"simgpu: {sentence}", file=sys.stderr, flush=True)
    os._exit(USAGE)


class AfterImport(MetaPathFinder):
    """Runs something once, right after a module has been imported for the first time."""

    def __init__(self, name: str, action: Callable[[], None]) -> None:
        self._name, self._action = name, action

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Then(spec.loader, self._action)
        return spec


class _Then(Loader):
    """A module's loader, and what is done after it."""

    def __init__(self, loader: Loader, action: Callable[[], None]) -> None:
        self._loader, self._action = loader, action

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        assert spec is not None
        spec.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._action()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
