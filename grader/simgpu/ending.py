"""What is shown and written when a simulated process ends."""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console

from . import ddp, view
from .local import unobserved

if TYPE_CHECKING:
    from .machine import Machine
    from .settings import Settings


def arrange(machine: Machine, settings: Settings, first: bool) -> None:
    """Record what the machine does from now on, to be shown when this process ends.

    `first` is the process that `simgpu run` became.
    """
    if settings.quiet and not (settings.trace or settings.report):
        return
    if settings.explain:
        show = _explanation(machine, settings.explain == "module")
    else:
        show = _summary(machine, settings, first)
    pid = os.getpid()

    def end() -> None:
        if os.getpid() == pid:  # not a fork that runs what its parent had arranged
            with unobserved():
                _carefully(show)

    atexit.register(end)


def _carefully(show: Callable[[], None]) -> None:
    """Show it after all that the program has printed; whatever fails is a sentence."""
    try:
        sys.stdout.flush()
        show()
    except BrokenPipeError:  # whoever read standard error has seen enough
        pass
    except Exception as fault:
        print(f"simgpu: what the run did cannot be shown: {_described(fault)}", file=sys.__stderr__)
    finally:
        _keep_interrupt()


def _keep_interrupt() -> None:
    """Let a process that Ctrl-C ended say so to its parent, as Python does by a flag.

    Code run from a text clears the flag, or sets it, and there is such code in what was imported meanwhile.
    """
    if getattr(sys, "last_type", None) is KeyboardInterrupt:
        with contextlib.suppress(KeyboardInterrupt):
            exec("raise KeyboardInterrupt")


def _described(fault: Exception) -> str:
    if isinstance(fault, OSError) and fault.filename:
        return f"{fault.filename}: {fault.strerror}"
    return f"{type(fault).__name__}: {fault}"


def _explanation(machine: Machine, by_module: bool) -> Callable[[], None]:
    from .view import explain
    from .view.ledger import Ledger

    ledger = Ledger(machine)
    ledger.start()

    def show() -> None:
        ledger.stop()
        if _was_used(machine):
            explain.show(ledger.step(), machine.spec, machine.profile, _console(sys.__stdout__), by_module)

    return show


def _summary(machine: Machine, settings: Settings, first: bool) -> Callable[[], None]:
    recording = view.start(machine, spans=bool(settings.trace or settings.report))
    children = _ended_children()

    def show() -> None:
        used = _was_used(machine)
        if not used and not first:
            return
        facts = ddp.summary_facts()
        rank = facts.get("rank")
        if not used and _ended_children() != children:
            return  # a launcher: they have shown what they did
        trace, report = (_file(path, rank) for path in (settings.trace, settings.report))
        console = _console(sys.__stderr__) if not (rank or settings.quiet) else None
        if console is not None and not first:
            console.print(f"\n{_who(facts)}:", soft_wrap=True)
        view.finish(recording, trace, report, console)

    return show


def _who(facts: dict[str, Any]) -> str:
    """Which of the processes this is."""
    if "rank" in facts:
        return f"rank {facts['rank']} of {facts['world_size']}"
    process = multiprocessing.current_process()
    if multiprocessing.parent_process() is not None:
        return process.name
    return f"process {process.pid}, {' '.join(sys.argv)}"


def _was_used(machine: Machine) -> bool:
    return any(device.busy_seconds or device.memory.allocations for device in machine.devices)


def _ended_children() -> int:
    """A count that grows with every process that this one has started and that has ended."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt


def _file(path: str | None, rank: int | None) -> Path | None:
    """Where this process writes: a file of its own, where several write."""
    if path is None:
        return None
    file = Path(path)
    if rank:
        file = file.with_name(f"{file.stem}.rank{rank}{file.suffix}")
    elif rank is None:
        number = 1
        while file.exists():
            number += 1
            file = Path(path).with_name(f"{Path(path).stem}.{number}{file.suffix}")
    return file


def _console(stream: TextIO | None) -> Console:
    return Console(file=stream, highlight=False, emoji=False)
