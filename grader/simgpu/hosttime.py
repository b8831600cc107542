"""The clocks of a simulated script: they show virtual time, and reading one takes a little of it.

Code that runs unobserved keeps real time, and so does what waits for other threads and processes: the parts
of the standard library that hold on to a clock of their own (threading, queue, subprocess), and the packages
that are named here.
"""

from __future__ import annotations

import math
import os
import sys
import time
import timeit
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .local import local
from .patches import Patches

if TYPE_CHECKING:
    from .clock import Clocks

POLLING = 1.0  # real seconds: who sleeps longer than that is not waiting for another process
READ_SECONDS = 1e-6  # what reading a clock costs, so that a loop that waits for a moment reaches it
_WAITING = ("asyncio.", "concurrent.", "multiprocessing.", "torch.distributed.", "torch.multiprocessing.")
_MONOTONIC = ("perf_counter", "monotonic", "process_time", "thread_time")


def install(patches: Patches, clocks: Clocks) -> None:
    """Replace the clocks of the `time` module."""
    # A whole number of seconds keeps the rounding of differences the same in every run.
    epoch = math.floor(time.time())
    for name in _MONOTONIC:
        patches.set(time, name, _seconds(getattr(time, name), clocks, 0))
        patches.set(time, f"{name}_ns", _nanoseconds(getattr(time, f"{name}_ns"), clocks, 0))
    patches.set(time, "time_ns", _nanoseconds(time.time_ns, clocks, epoch))
    patches.set(time, "time", _seconds(time.time, clocks, epoch))
    patches.set(time, "sleep", _sleep(time.sleep, clocks))
    patches.set(timeit, "default_timer", time.perf_counter)


def _seconds(real: Callable[[], float], clocks: Clocks, epoch: int) -> Callable[[], float]:
    def read() -> float:
        if not local.observed or _caller_waits():
            return real()
        clocks.host(READ_SECONDS, "clock")
        return epoch + clocks.now()

    return read


def _nanoseconds(real: Callable[[], int], clocks: Clocks, epoch: int) -> Callable[[], int]:
    def read() -> int:
        if not local.observed or _caller_waits():
            return real()
        clocks.host(READ_SECONDS, "clock")
        return epoch * 1_000_000_000 + round(clocks.now() * 1e9)

    return read


def _sleep(real: Callable[[float], Any], clocks: Clocks) -> Callable[[float], None]:
    def sleep(seconds: float) -> None:
        if not local.observed or seconds < 0 or _caller_waits():
            real(seconds)
            return
        clocks.host(seconds, "sleep")
        # A thread that is being waited for can run meanwhile; a process that is asked now and then whether it
        # has ended needs the time that it needs.
        real(min(seconds, POLLING) if _has_children() else 0)

    return sleep


def _caller_waits() -> bool:
    """Whether a clock is asked by what waits, in real time, for something outside of this thread."""
    return sys._getframe(2).f_globals.get("__name__", "").startswith(_WAITING)


def _has_children() -> bool:
    """Whether this process has started others that have not been waited for."""
    if not hasattr(os, "waitid"):
        return False
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True
