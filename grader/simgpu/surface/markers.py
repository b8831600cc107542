"""torch.cuda.nvtx, torch.cuda.profiler and cudart: what marks a run for a profiler of NVIDIA's.

No such profiler watches a simulated GPU. As on a real one that is not being watched, all of this is
accepted and shows nowhere.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..errors import NotSimulated

if TYPE_CHECKING:
    from ..machine import Machine


class Annotations(threading.local):
    """The depth of the ranges of each thread."""

    def __init__(self) -> None:
        self._depth = 0
        self._handles = 0

    def range_push(self, msg: str) -> int:
        """Begin a range; the depth before it."""
        self._depth += 1
        return self._depth - 1

    def range_pop(self) -> int:
        """End the innermost range; its depth, or -1 where none is open, as in NVTX."""
        self._depth = max(self._depth - 1, -1)
        depth, self._depth = self._depth, max(self._depth, 0)
        return depth

    def range_start(self, msg: str) -> int:
        """Begin a range that may end in another thread, and return its handle."""
        self._handles += 1
        return self._handles

    def range_end(self, range_id: int) -> None:
        """End the range with that handle."""

    def mark(self, msg: str) -> None:
        """Mark a moment."""

    @contextmanager
    def range(self, msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
        """A range for the length of a `with` block, or of a function that it decorates."""
        self.range_push(msg.format(*args, **kwargs))
        try:
            yield
        finally:
            self.range_pop()


class Runtime:
    """Stands in for the CUDA runtime that torch.cuda.cudart() gives."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def cudaProfilerStart(self) -> int:
        """Success, as the runtime answers without a profiler."""
        return 0

    def cudaProfilerStop(self) -> int:
        """Success, as the runtime answers without a profiler."""
        return 0

    def cudaMemGetInfo(self, device: int) -> tuple[int, int]:
        """Bytes free and in total."""
        meter = self._machine.devices[self._machine.check(device)].memory
        return meter.capacity - meter.reserved, meter.capacity

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NotSimulated(f"torch.cuda.cudart().{name}")


def functions(machine: Machine) -> dict[str, Any]:
    """The names under torch.cuda that this module answers."""
    annotations, runtime = Annotations(), Runtime(machine)

    @contextmanager
    def profile() -> Iterator[None]:
        yield

    names = ("range_push", "range_pop", "range_start", "range_end", "mark", "range")
    return {
        **{f"nvtx.{name}": getattr(annotations, name) for name in names},
        "cudart": lambda: runtime,
        "profiler.start": runtime.cudaProfilerStart,
        "profiler.stop": runtime.cudaProfilerStop,
        "profiler.profile": profile,
    }
