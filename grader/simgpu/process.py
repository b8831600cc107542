"""Puts the simulated machine that the environment describes under the Python process that is starting.

The process that `simgpu run` becomes gets it at once. One that such a process starts gets it when it imports
torch, and costs nothing if it never does.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from . import settings as environment
from . import visible
from .earlyclocks import EarlyClocks
from .settings import Settings

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    from .machine import Machine

USAGE = 2  # exit code of a mistake in what was asked


def start() -> None:
    """Called while Python starts, before the program."""
    first = os.environ.pop(environment.FIRST, None) is not None
    try:
        settings = environment.of(os.environ)
        if settings is None:
            return
        process = Process(settings, first)
        if first:
            process.install()
        else:
            sys.meta_path.insert(0, AfterImport("torch", EarlyClocks(process.install).end))
    except environment.BadSettings as problem:
        give_up(str(problem))
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.raise_signal(signal.SIGINT)


class Process:
    """This process, which is to see a machine."""

    def __init__(self, settings: Settings, first: bool) -> None:
        self.settings, self.first = settings, first
        self.machine: Machine | None = None
        self._see(visible.hide(settings.visible, settings.hiding, self._see))

    def _see(self, said: str | None) -> None:
        """The program says this in CUDA_VISIBLE_DEVICES; as with CUDA, until CUDA is initialized."""
        self.settings = self.settings.seeing(said)
        os.environ[environment.VARIABLE] = self.settings.text()
        if self.machine is not None:
            import torch

            if not torch.cuda.is_initialized():
                self.machine.restrict(visible.numbers(said, self.machine.clocks.count))

    def install(self) -> None:
        """Put the machine under this process, and let what it did be shown at its end."""
        try:
            self._install()
        except ModuleNotFoundError as missing:
            give_up(f"{sys.executable} has no {missing.name}, which simulated GPUs need")
        except Exception as fault:  # of a torch that the simulation does not know, for example
            known = fault.__class__.__name__ in ("BadProfile", "RealGPUs")  # as they say what is wrong
            give_up(str(fault) if known else f"no GPUs can be simulated: {type(fault).__name__}: {fault}")

    def _install(self) -> None:
        from . import profiles

        count = profiles.load(self.settings.spec).count
        numbers = visible.numbers(self.settings.visible, count)
        if not numbers:  # torch finds no GPU, as where real ones are hidden
            if self.first:
                tell(f"CUDA_VISIBLE_DEVICES leaves none of the {count} GPUs: nothing is simulated")
            return
        from . import ending, tracebacks
        from .machine import Machine, installed

        if installed() is None:
            self.machine = machine = Machine(self.settings.spec, self.settings.math, ranges=True)
            machine.restrict(numbers)
            machine.install()
            if not self.settings.frames:
                tracebacks.install()
            ending.arrange(machine, self.settings, self.first)


def give_up(sentence: str) -> NoReturn:
    """End the process before its program begins."""
    tell(sentence)
    os._exit(USAGE)


def tell(sentence: str) -> None:
    """Print on standard error."""
    print(f"simgpu: {sentence}", file=sys.stderr, flush=True)


class AfterImport:
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
            spec.loader = _Then(spec.loader, self._action)  # type: ignore[assignment]
        return spec


class _Then:
    """A module's loader, and what is done after it."""

    def __init__(self, loader: Any, action: Callable[[], None]) -> None:
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
