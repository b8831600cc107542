"""Clocks that a program takes hold of before it imports torch (`from time import perf_counter`).

They show real time until the machine is there, and its virtual time from then on.
"""

from __future__ import annotations

import queue  # noqa: F401  (these hold on to clocks of their own, which stay real)
import subprocess  # noqa: F401
import threading  # noqa: F401
import time
from collections.abc import Callable
from typing import Any

NAMES = [
    *("time", "time_ns", "sleep", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns"),
    *("process_time", "process_time_ns", "thread_time", "thread_time_ns"),
]


class EarlyClocks:
    """Stand in the `time` module until a machine's clocks, which `install` puts there, take over."""

    def __init__(self, install: Callable[[], object]) -> None:
        self._install = install
        self._now = {name: getattr(time, name) for name in NAMES if hasattr(time, name)}
        self._stand_ins = {name: self._stand_in(name) for name in self._now}
        for name, stand_in in self._stand_ins.items():
            setattr(time, name, stand_in)

    def _stand_in(self, name: str) -> Callable[..., Any]:
        now = self._now

        def clock(*args: Any) -> Any:
            return now[name](*args)

        clock.__name__ = clock.__qualname__ = name
        return clock

    def end(self) -> None:
        """Install the machine; what was taken before then shows its clocks."""
        for name, stand_in in self._stand_ins.items():
            if getattr(time, name) is stand_in:
                setattr(time, name, self._now[name])
        self._install()
        self._now.update({name: getattr(time, name) for name in self._now})
