"""The process group that stands in for NCCL's: who is in it, and how one of its collectives runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch._C._distributed_c10d import ProcessGroup, Work

from .. import known
from ..local import inside
from ..tags import device_index
from .backward import before_the_end_of_backward
from .exchange import Exchange, talking
from .meeting import Call, Meeting, occupy
from .tensors import check, flat, has_values
from .work import SimulatedWork

if TYPE_CHECKING:
    from ..machine import Machine
    from ..profiles import Link

Tensors = Sequence[torch.Tensor]
_Base: Any = ProcessGroup  # whose overloads, several for each collective, are not all repeated here


@dataclass
class Part:
    """What one process brings to a collective."""

    kind: str  # as NCCL's OpType
    tensors: Tensors  # all that are given, of which the first decides on type and device
    sent: int  # elements
    received: int
    amount: Callable[
        [list[int]], int
    ]  # bytes that `formula` takes, from the elements that each process sends
    formula: Callable[..., float]  # of `links`
    move: Callable[[list[int]], None]  # moves the values, given the elements that each process sends
    detail: int = 0  # what must be the same on all processes: the root, the reduction
    uneven: bool = False  # whether processes may send different amounts
    results: Tensors = field(default_factory=list)


class Group(_Base):
    """`exchange.size` processes, each with a GPU of its own.

    Values come at once, and the host does not wait in virtual time: a collective occupies the
    communication stream of the device from the moment at which the last process is ready.
    `host` is a group for tensors in host memory, None where there is no backend for them.
    """

    # What torch.distributed asks of a backend.
    supports_splitting = False
    supports_coalescing = True
    supports_time_estimate = False
    supports_tensor_alloc = False

    def __init__(self, machine: Machine, exchange: Exchange, options: Any = None) -> None:
        super().__init__(exchange.rank, exchange.size)
        self.machine = machine
        self.exchange = exchange
        self.meeting = Meeting(machine, exchange)
        self._name = self._description = ""
        self._coalesced: list[Work] | None = None
        self.bound: torch.device | None = None
        self.options = options or SimpleNamespace(is_high_priority_stream=False)
        self.options._timeout = exchange.timeout

    def run(self, part: Part) -> SimulatedWork:
        """Carry out a collective."""
        device = check(part.tensors, self.bound)
        with inside():
            for tensor in part.tensors:
                flat(tensor)
        first = part.tensors[0]
        call = Call(part.kind, device, first.dtype, part.sent, part.received, part.detail, part.uneven)
        sent, start = self.meeting.meet(call)
        if has_values(first, self.machine.math):
            with talking(lambda peers: self.meeting.missing(call, peers)):
                part.move(sent)
        else:
            known.mark([*part.tensors, *part.results], False)  # one process's own numbers are no result
        amount = part.amount(sent)
        seconds = part.formula(self.link, amount, self.size())
        arrival = occupy(self.machine, call, start, seconds, amount)
        before_the_end_of_backward(arrival)
        # What comes from host memory returns there: the host waits for it.
        work = SimulatedWork(arrival, list(part.results), host_waits=device_index(first) is None)
        if self._coalesced is not None:
            self._coalesced.append(work)
        return work

    @property
    def link(self) -> Link:
        """How bytes move between the GPUs."""
        return self.machine.profile.link

    def _start_coalescing(self, device: torch.device | None = None) -> None:
        self._coalesced = []

    def _end_coalescing(self, device: torch.device | None = None) -> Work | None:
        works, self._coalesced = self._coalesced or [], None
        return works[-1] if works else None

    # What follows is asked by torch.distributed, and by those who want to know with whom they talk.

    def getBackendName(self) -> str:
        """As torch.distributed knows it."""
        return "nccl"

    def name(self) -> str:
        """The same."""
        return "nccl"

    def _get_backend_name(self) -> str:
        return "nccl"

    def _set_group_name(self, name: str) -> None:
        self._name = name

    def _set_group_desc(self, description: str) -> None:
        self._description = description

    @property
    def group_name(self) -> str:
        """The name under which torch.distributed registered the group."""
        return self._name

    @property
    def group_desc(self) -> str:
        """What the user said about it."""
        return self._description

    @property
    def bound_device_id(self) -> torch.device | None:
        """The GPU that init_process_group(device_id=...) named."""
        return self.bound

    @bound_device_id.setter
    def bound_device_id(self, device: torch.device | None) -> None:
        self.bound = device

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device("cuda")]

    def _get_backend(self, device: torch.device) -> Any:
        if device.type != "cuda":
            raise RuntimeError(f"No backend type associated with device type {device.type}")
        return self

    def get_backend(self, device: torch.device) -> Any:
        """What serves tensors of a device."""
        return self._get_backend(device)

    def _get_sequence_number_for_group(self) -> int:
        return self.meeting.sequence

    def _set_sequence_number_for_group(self) -> None:
        """Counting begins at 0."""

    def _has_hooks(self) -> bool:
        return False

    def set_timeout(self, timeout: timedelta) -> None:
        """How long, in real time, others are waited for from the next connection on."""
        self.exchange.set_timeout(timeout)
        self.options._timeout = timeout

    def _set_default_timeout(self, timeout: timedelta) -> None:
        self.set_timeout(timeout)

    def comm_split_count(self) -> int:
        """No communicator is ever split."""
        return 0

    def get_group_store(self) -> Any:
        """Where the processes found each other."""
        return self.exchange.store

    def eager_connect_single_device(self, device: torch.device | None = None) -> None:
        """Connections are made when they are needed."""

    def perform_nocolor_split(self, device: torch.device | None = None) -> None:
        """No communicator is ever split."""

    def shutdown(self) -> None:
        """Leave the group; who still waits for this process learns it."""
        self.exchange.close()

    def _shutdown(self) -> None:
        self.shutdown()

    def abort(self) -> None:
        """Leave the group without waiting for anything."""
        self.shutdown()
