"""The calls of a group's processes, brought together: what each wants, and when it is ready for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from ..clock import COMMUNICATION
from ..local import local
from ..surface import streams
from . import failures
from .exchange import Exchange, talking
from .failures import Peers
from .work import Arrival

if TYPE_CHECKING:
    from ..clock import Moment
    from ..machine import Machine

_DTYPES = [value for value in vars(torch).values() if isinstance(value, torch.dtype)]
_DTYPES = sorted(set(_DTYPES), key=str)


class Call(NamedTuple):
    """One process's part in a collective."""

    kind: str  # as NCCL's OpType: "ALLREDUCE"
    device: int
    dtype: torch.dtype
    sent: int  # elements
    received: int
    detail: int = 0  # the root, or the number of the reduction: the same on all
    uneven: bool = False  # whether processes may bring different amounts

    @property
    def name(self) -> str:
        """What a timeline shows."""
        return f"nccl:{self.kind.lower().lstrip('_')}"


KINDS = (
    "ALLREDUCE", "ALLREDUCE_COALESCED", "BROADCAST", "REDUCE", "ALLGATHER", "_ALLGATHER_BASE",
    "ALLGATHER_COALESCED", "REDUCE_SCATTER", "_REDUCE_SCATTER_BASE", "REDUCE_SCATTER_COALESCED",
    "GATHER", "SCATTER", "ALLTOALL", "ALLTOALL_BASE", "BARRIER", "SEND", "RECV",
)  # fmt: skip


class Meeting:
    """Brings the calls of one process group together, one after another."""

    def __init__(self, machine: Machine, exchange: Exchange) -> None:
        self.machine = machine
        self.exchange = exchange
        self.sequence = 0
        self._checked = False

    def meet(self, call: Call) -> tuple[list[int], Moment]:
        """Wait until every process has made its call; how many elements each sends, and the
        moment at which the last one is ready.

        Raises DistBackendError, as NCCL, where the calls do not fit together or a process is missing.
        """
        self.sequence += 1
        row = row_of(self.machine, call)
        with talking(lambda peers: self.missing(call, peers)):
            rows = self.exchange.rows(row)
        if not self._checked:
            self._check_devices(rows)
            self._checked = True
        self._compare(call, rows)
        moments = tuple(max(moment) for moment in zip(*(one[6:] for one in rows), strict=True))
        return [one[4] for one in rows], moments

    def missing(self, call: Call, peers: Peers) -> Exception:
        """The error of a call that another process does not answer."""
        exchange = self.exchange
        left = exchange.left() if peers is Peers.GONE else []
        reason = peers.value.format(f"rank {left[0]}" if left else "another process of the group")
        if self.sequence == 1:
            return failures.no_communicator(exchange.rank, exchange.timeout, reason)
        return self.stuck(call, reason)

    def stuck(self, call: Call, reason: str) -> Exception:
        """The error of a call that never ends."""
        exchange = self.exchange
        counts = (call.sent, call.received)
        return failures.watchdog(exchange.rank, self.sequence, call.kind, counts, exchange.timeout, reason)

    def _check_devices(self, rows: list[list[int]]) -> None:
        owners: dict[int, int] = {}
        for rank, row in enumerate(rows):
            first = owners.setdefault(row[1], rank)
            if first != rank:
                raise failures.duplicate(first, rank, row[1])

    def _compare(self, call: Call, rows: list[list[int]]) -> None:
        mine = rows[self.exchange.rank]
        compared = 4 if call.uneven else 6
        for rank, row in enumerate(rows):
            if [row[0], *row[2:compared]] != [mine[0], *mine[2:compared]]:
                reason = (
                    f"rank {self.exchange.rank} called {described(mine)} "
                    f"while rank {rank} called {described(row)}"
                )
                raise self.stuck(call, reason)


def row_of(machine: Machine, call: Call) -> list[int]:
    """What other processes are told of a call: six numbers that describe it, and when this one is ready."""
    kind, dtype = KINDS.index(call.kind), _DTYPES.index(call.dtype)
    moments = ready(machine, call.device)
    # The computer's number of the GPU: each process may see others, under CUDA_VISIBLE_DEVICES.
    device = machine.visible[call.device]
    return [kind, device, dtype, call.detail, call.sent, call.received, *moments]


def fit(mine: list[int], theirs: list[int]) -> bool:
    """Whether the two ends of a transfer speak of the same: type and number of elements."""
    return mine[2] == theirs[2] and mine[4] == theirs[4]


def described(row: list[int]) -> str:
    """A row in words."""
    return f"{KINDS[row[0]].lower().lstrip('_')} of {row[4]} elements ({_DTYPES[row[2]]})"


def ready(machine: Machine, device: int) -> Moment:
    """When what a process has put on its current stream, and its earlier collectives, are done."""
    clocks = machine.clocks
    on_stream = clocks.moment(device, streams.current(machine, device).stream_id)
    before = clocks.moment(device, COMMUNICATION)
    return tuple(max(pair) for pair in zip(on_stream, before, strict=True))


def occupy(machine: Machine, call: Call, start: Moment, seconds: float, nbytes: int) -> Arrival:
    """Charge the device with a collective that begins at `start`; its end."""
    if local.observed:
        phase = "forward" if torch._C._current_graph_task_id() == -1 else "backward"
        machine.clocks.collective(call.device, start, seconds, call.name, nbytes, phase)
    return Arrival(machine, call.device, machine.clocks.moment(call.device, COMMUNICATION))
