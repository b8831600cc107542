"""Collectives within a backward pass: what comes after it on the device waits for them.

The reducer of DistributedDataParallel waits for its buckets in C++, where no stream of the simulation is
seen. So the current stream is ordered after them when the pass ends, before the reducer does its last copies.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import torch
from torch.autograd import Variable

if TYPE_CHECKING:
    from .work import Arrival


class _Pending(threading.local):
    task = -1  # the backward pass whose end this thread waits for
    latest: dict[int, Arrival] | None = None  # by device


_pending = _Pending()


def before_the_end_of_backward(arrival: Arrival) -> None:
    """Let the current stream wait for `arrival` at the end of the running backward pass, if there is one."""
    task = torch._C._current_graph_task_id()
    if task == -1:
        return
    if _pending.task != task:
        _pending.task, _pending.latest = task, {}
        Variable._execution_engine.queue_callback(_wait)
    assert _pending.latest is not None
    _pending.latest[arrival.device] = arrival


def _wait() -> None:
    arrivals, _pending.latest, _pending.task = _pending.latest or {}, None, -1
    for arrival in arrivals.values():
        arrival.order()
