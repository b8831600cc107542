"""Threads of a simulated script: each gets the simulation and a clock of its own.

Dispatch modes are thread-local, so they are entered again in every thread. The workers of parallel_apply
run one after another in the order of their replicas: CPU kernels use all cores anyway, and random
numbers, memory peaks and charges then come in the same order in every run.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from .local import local
from .patches import Patches

if TYPE_CHECKING:
    from .clock import Clocks, Worker

_WORKER = "parallel_apply.<locals>._worker"


class Turns:
    """The workers of one parallel_apply: each waits until the one before it has ended."""

    def __init__(self) -> None:
        self._last: threading.Event | None = None

    def take(self) -> tuple[threading.Event | None, threading.Event]:
        """What the next worker waits for, and what it sets when it ends."""
        before, self._last = self._last, threading.Event()
        return before, self._last


def install(patches: Patches, clocks: Clocks, simulated: Callable[[], AbstractContextManager]) -> None:
    """Make threads started from now on by a simulated thread simulated, too.

    `simulated` gives the context that a thread runs in.
    """
    real_start, real_join = threading.Thread.start, threading.Thread.join

    def start(self: threading.Thread) -> None:
        if local.observed:
            before, done = _turns(self).take() if _is_worker(self) else (None, None)
            worker = self._worker_clock = clocks.fork()  # type: ignore[attr-defined]
            self.run = _run(self, worker, simulated, clocks, before, done)  # type: ignore[method-assign]
        real_start(self)

    def join(self: threading.Thread, timeout: float | None = None) -> None:
        real_join(self, timeout)
        worker = self.__dict__.get("_worker_clock")
        if local.observed and worker is not None and not self.is_alive():
            clocks.join(worker)

    patches.set(threading.Thread, "start", start)
    patches.set(threading.Thread, "join", join)


def _is_worker(thread: threading.Thread) -> bool:
    target = getattr(thread, "_target", None)
    return (
        getattr(target, "__qualname__", "") == _WORKER
        and target.__module__ == "torch.nn.parallel.parallel_apply"
    )


def _turns(thread: threading.Thread) -> Turns:
    # All workers of one call share its `_worker`, a fresh function each time.
    target = thread._target  # type: ignore[attr-defined]
    if local.turns is None or local.turns[0]() is not target:
        local.turns = (weakref.ref(target), Turns())  # weak, as it holds the replicas and their inputs
    return local.turns[1]


def _run(
    thread: threading.Thread,
    worker: Worker,
    simulated: Callable[[], AbstractContextManager],
    clocks: Clocks,
    before: threading.Event | None,
    done: threading.Event | None,
) -> Callable[[], None]:
    real_run = thread.run

    def run() -> None:
        thread.__dict__.pop("run", None)  # leaves no reference cycle behind
        if before is not None:
            before.wait()
        try:
            with simulated(), clocks.worker(worker):
                real_run()
        finally:
            if done is not None:
                done.set()

    return run
