"""What each thread knows: whether it is simulated, where it stands, and on which device."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class _Local(threading.local):
    observed = False  # whether what this thread does is simulated and charged; clocks are virtual
    inside = 0  # depth of torch's own code below the dispatch mode, which must see physical devices
    device = 0  # index of the current simulated GPU
    streams: dict[int, Any] | None = None  # current stream per device, where it is not the default one
    module = ""  # qualified name of the nn.Module that is running, while someone wants to know
    phase = "forward"  # or what else is going on, while someone wants to know
    turns: tuple[Any, Any] | None = None  # the parallel_apply whose workers this thread is starting


local = _Local()


@contextmanager
def unobserved() -> Iterator[None]:
    """What runs inside is neither simulated nor charged; clocks show real time.

    Tensors of a simulated GPU still say which GPU that is. Threads started inside stay unobserved.
    """
    before, local.observed = local.observed, False
    try:
        yield
    finally:
        local.observed = before


@contextmanager
def inside() -> Iterator[None]:
    """Run torch's own code on the physical tensors, not dispatched to the simulation again."""
    local.inside += 1
    try:
        yield
    finally:
        local.inside -= 1
