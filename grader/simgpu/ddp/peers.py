"""Point-to-point: send and receive between two processes, alone or in a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch._C._distributed_c10d import Work

from .. import links
from ..local import inside
from .base import Group, Tensors
from .exchange import Exchange, talking
from .failures import Peers
from .meeting import Call, described, fit, occupy, ready, row_of
from .tensors import check, flat, has_values, nbytes
from .work import Arrival, SimulatedWork

if TYPE_CHECKING:
    from ..clock import Moment


class Letter:
    """One tensor on its way to or from a peer: `peer` is its rank in `exchange`.

    Both ends tell each other what they expect, and when they are ready for it.
    """

    def __init__(
        self, group: PointToPoint, call: Call, tensor: torch.Tensor, exchange: Exchange, peer: int
    ) -> None:
        self.call = call
        self.tensor = tensor
        self.group = group
        self._row = row_of(group.machine, call)
        with talking(self._failed):
            self._line = exchange.line(peer, call.kind == "SEND")
            self._line.tell(self._row)
            if has_values(tensor, group.machine.math):
                begin = self._line.send if call.kind == "SEND" else self._line.receive
                begin(flat(tensor))

    def _failed(self, peers: Peers) -> Exception:
        return self.group.meeting.missing(self.call, peers)

    def deliver(self) -> Moment:
        """Wait until it has arrived; the moment at which both ends were ready for it."""
        with talking(self._failed):
            theirs = self._line.told()
        if not fit(self._row, theirs):
            reason = f"this process called {described(self._row)} and its peer {described(theirs)}"
            raise self.group.meeting.stuck(self.call, reason)
        with talking(self._failed):
            self._line.finish()
        return tuple(max(pair) for pair in zip(self._row[6:], theirs[6:], strict=True))


class Delivery(SimulatedWork):
    """Sends and receives under way as one; they are finished when they are waited for."""

    def __init__(self, letters: list[Letter]) -> None:
        first = letters[0]
        machine, device = first.group.machine, first.call.device
        tensors = [letter.tensor for letter in letters]
        super().__init__(Arrival(machine, device, ready(machine, device)), tensors)
        self._letters = letters
        self._source = first.call.detail

    @property
    def under_way(self) -> bool:
        """Whether nobody has waited for it yet."""
        return bool(self._letters)

    def finish(self) -> None:
        """Wait for the peers, and charge the device; only once."""
        letters, self._letters = self._letters, []
        if not letters:
            return
        starts = [letter.deliver() for letter in letters]
        group, call = letters[0].group, letters[0].call
        ways = [
            nbytes([letter.tensor for letter in letters if letter.call.kind == kind])
            for kind in ("SEND", "RECV")
        ]
        amount = max(ways)  # the two ways of a connection do not disturb each other
        start = tuple(max(moments) for moments in zip(*starts, strict=True))
        seconds = links.send_seconds(group.link, amount)
        self._arrival = occupy(group.machine, call, start, seconds, amount)

    def wait(self, timeout: Any = None) -> bool:
        """Wait for the peers, and make the current stream wait for what they sent."""
        self.finish()
        return super().wait()

    def is_completed(self) -> bool:
        """Whether it was waited for, and the host has reached its end."""
        return not self._letters and super().is_completed()

    def get_future(self) -> torch.futures.Future:
        """A future of the tensors."""
        self.finish()
        return super().get_future()

    def _source_rank(self) -> int:
        return self._source

    def source_rank(self) -> int:
        """The rank of the sender, within the group."""
        return self._source


class PointToPoint(Group):
    """Between two processes of the group.

    As with NCCL, two processes that speak to each other outside of a batch make a connection of their own
    for it, while a batch uses that of the whole group.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._pairs: dict[int, Exchange] = {}
        self._posted: list[Delivery] = []  # kept until they are finished, whoever forgets them
        self._batch: list[Letter] | None = None

    def send(self, tensors: Tensors, to: int, tag: int = 0) -> Work | None:
        """Send a tensor; it has left when the work was waited for."""
        return self._post("SEND", tensors, to)

    def recv(self, tensors: Tensors, source: int, tag: int = 0) -> Work | None:
        """Receive a tensor; it is there when the work was waited for."""
        return self._post("RECV", tensors, source)

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> Work:
        """NCCL cannot."""
        raise RuntimeError("ProcessGroupNCCL does not support recvAnysource")

    def _post(self, kind: str, tensors: Tensors, peer: int) -> Work | None:
        device = check(tensors, self.bound)
        tensor = tensors[0]
        with inside():
            flat(tensor)
        call = Call(kind, device, tensor.dtype, tensor.numel(), tensor.numel(), peer)
        if self._batch is not None:
            self._batch.append(Letter(self, call, tensor, self.exchange, peer))
            return None
        exchange = self._pairs.get(peer)
        if exchange is None:
            exchange = self._pairs[peer] = self.exchange.pair(peer)
        return self._sent([Letter(self, call, tensor, exchange, int(self.rank() < peer))])

    def _sent(self, letters: list[Letter]) -> Delivery:
        delivery = Delivery(letters)
        self._posted = [earlier for earlier in self._posted if earlier.under_way]
        self._posted.append(delivery)
        return delivery

    def _start_coalescing(self, device: torch.device | None = None) -> None:
        super()._start_coalescing(device)
        self._batch = []

    def _end_coalescing(self, device: torch.device | None = None) -> Work | None:
        letters, self._batch = self._batch or [], None
        work = super()._end_coalescing(device)
        return self._sent(letters) if letters else work

    def shutdown(self) -> None:
        """Leave the group, and every connection to a single process."""
        for exchange in self._pairs.values():
            exchange.close()
        super().shutdown()
