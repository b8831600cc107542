"""What is shown and written when a simulated process ends."""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from multiprocessing import util
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import torch
from rich.console import Console

from . import ddp, view
from .local import unobserved

if TYPE_CHECKING:
    from .machine import Machine
    from .settings import Settings


class _Ending:
    """Shows something at the end of one process."""

    def __init__(self, show: Callable[[], None]) -> None:
        self._show = show
        self._pid = os.getpid()

    def in_fork(self) -> None:
        """This is a fork, in which the parent had used no GPU if it may use one."""
        if not torch.cuda._is_in_bad_fork():
            self._pid = os.getpid()
            util.Finalize(None, self.end, exitpriority=0)

    def end(self) -> None:
        """Show it, unless this is a fork that runs what its parent had arranged."""
        if os.getpid() == self._pid:
            with unobserved():
                _carefully(self._show)


_endings: list[_Ending] = []  # multiprocessing refers to them weakly


def arrange(machine: Machine, settings: Settings, first: bool) -> None:
    """Record what the machine does from now on, to be shown when this process ends.

    `first` is the process that `simgpu run` became.
    """
    if settings.quiet and not (settings.trace or settings.report):
        return
    if settings.explain:
        show = _explanation(machine, settings.explain == "module", first)
    else:
        show = _summary(machine, settings, first)
    ending = _Ending(show)
    atexit.register(ending.end)
    # Processes that multiprocessing forks do not end by way of atexit.
    util.register_after_fork(ending, _Ending.in_fork)
    _endings.append(ending)


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


def _explanation(machine: Machine, by_module: bool, first: bool) -> Callable[[], None]:
    from .view import explain
    from .view.ledger import Ledger

    ledger = Ledger(machine)
    ledger.start()
    children = _ended_children()

    def show() -> None:
        ledger.stop()
        if not _was_used(machine):
            if first and _ended_children() == children:
                print(
                    "simgpu: nothing to explain: the script put nothing on a GPU",
                    file=sys.__stderr__,
                )
        else:
            with _printing(sys.__stdout__) as console:
                explain.show(ledger.step(), machine.spec, machine.profile, console, by_module)

    return show


def _summary(machine: Machine, settings: Settings, first: bool) -> Callable[[], None]:
    recording = view.start(machine, spans=bool(settings.trace or settings.report))
    children = _ended_children()

    def show() -> None:
        alone = first and multiprocessing.parent_process() is None  # and not one of several alike
        if not _was_used(machine) and (not alone or _ended_children() != children):
            return  # a launcher, or a process that helps on the CPU
        facts = ddp.summary_facts()
        rank = facts.get("rank")
        trace, report = (_file(path, rank, alone) for path in (settings.trace, settings.report))
        if rank or settings.quiet:
            view.finish(recording, trace, report)
            return
        with _printing(sys.__stderr__) as console:
            if not alone:
                console.print(f"\n{_who(facts)}:", soft_wrap=True)
            if _was_used(machine) or trace or report:
                # Python keeps the error that it has printed.
                failed = getattr(sys, "last_type", None) is not None
                view.finish(recording, trace, report, console, failed)
            else:
                console.print("simgpu: the program put nothing on the simulated GPUs", soft_wrap=True)

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


def _file(path: str | None, rank: int | None, alone: bool) -> Path | None:
    """Where this process writes: a file of its own, where several write."""
    if path is None:
        return None
    file = Path(path)
    if rank:
        file = file.with_name(f"{file.stem}.rank{rank}{file.suffix}")
    elif rank is None and not alone:
        file = file.with_name(f"{file.stem}.{os.getpid()}{file.suffix}")
    return file


@contextlib.contextmanager
def _printing(stream: TextIO | None) -> Iterator[Console]:
    """A console whose output reaches the stream in one piece, as other processes may print there, too."""
    console = Console(file=stream, highlight=False, emoji=False)
    with console.capture() as captured:
        yield console
    if stream is not None:
        stream.write(captured.get())
        stream.flush()
