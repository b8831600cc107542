"""What the processes of a group tell each other in real time: numbers, and the values of tensors.

Everything goes over gloo on this computer, between plain CPU tensors. Connections are made when the first
collective needs them, as NCCL makes its communicators.
"""

from __future__ import annotations

import atexit
import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from ..local import inside, unobserved
from .failures import Peers

_HERE = "127.0.0.1"
_POLL_SECONDS = 0.005
# A launcher ends the others when one process failed. It is given this long, so that what it reports is the
# error of that process and not that another one found it missing.
_GRACE_SECONDS = 1.5


class Exchange:
    """Rank `rank` of `size` processes that find each other through `store`."""

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta, is_pair: bool = False) -> None:
        self.store = store
        self.rank = rank
        self.size = size
        self.timeout = timeout
        self._is_pair = is_pair
        self._gloo: Any = None
        self._lines: dict[tuple[int, bool], int] = {}
        atexit.register(self.close)  # for scripts that end without destroy_process_group()

    def connect(self) -> Any:
        """The gloo group, made on first use; waits for the other processes, and raises RuntimeError when one
        has left or does not come in time."""
        if self._gloo is None:
            self._wait_for_all()
            gloo: Any = dist.ProcessGroupGloo
            options = gloo._Options()
            options._devices = [gloo.create_device(hostname=_HERE)]
            options._timeout = self.timeout
            self._gloo = gloo(self.store, self.rank, self.size, options)
        return self._gloo

    def _wait_for_all(self) -> None:
        self.store.set(f"here/{self.rank}", "")
        missing = set(range(self.size))
        late = time.monotonic() + self.timeout.total_seconds()
        while missing := {rank for rank in missing if not self.store.check([f"here/{rank}"])}:
            if any(self.store.check([f"left/{rank}"]) for rank in missing):
                raise RuntimeError("Connection closed by peer")
            if time.monotonic() > late:
                raise RuntimeError("timed out")
            time.sleep(_POLL_SECONDS)

    def left(self) -> list[int]:
        """The ranks that have left the group, as far as can be known."""
        try:
            return [rank for rank in range(self.size) if self.store.check([f"left/{rank}"])]
        except RuntimeError:  # the process that kept the store has
            return []

    def close(self) -> None:
        """Leave the group; a process that still waits for this one learns it."""
        atexit.unregister(self.close)
        with contextlib.suppress(RuntimeError):  # the process that kept the store has left before
            self.store.set(f"left/{self.rank}", "")
            for peer in () if self._is_pair else set(range(self.size)) - {self.rank}:
                self._pair_store(peer).set(f"left/{int(self.rank > peer)}", "")
        self._gloo = None

    def set_timeout(self, timeout: timedelta) -> None:
        """How long other processes are waited for, in real time."""
        self.timeout = timeout
        if self._gloo is not None:
            self._gloo.options._timeout = timeout

    def pair(self, peer: int) -> Exchange:
        """An exchange of this process and another one alone."""
        return Exchange(self._pair_store(peer), int(self.rank > peer), 2, self.timeout, is_pair=True)

    def _pair_store(self, peer: int) -> Any:
        low, high = sorted((self.rank, peer))
        return dist.PrefixStore(f"pair/{low}:{high}", self.store)

    def line(self, peer: int, sends: bool) -> Line:
        """The way of the next tensor to, or from, a process."""
        number = self._lines.get((peer, sends), 0)
        self._lines[peer, sends] = number + 1
        return Line(self.connect(), peer, sends, number)

    def rows(self, row: list[int]) -> list[list[int]]:
        """The rows of all processes, each as long as this one's."""
        mine = torch.tensor(row, dtype=torch.int64)
        every = [torch.empty_like(mine) for _ in range(self.size)]
        self.connect().allgather([every], [mine]).wait()
        return [one.tolist() for one in every]

    def values(self, tensor: torch.Tensor, counts: list[int]) -> list[torch.Tensor]:
        """The flat tensors of all processes, of which process i has counts[i] elements."""
        width = tensor.element_size()
        longest = max(counts) * width
        mine = torch.zeros(longest, dtype=torch.uint8)
        if tensor.numel():
            mine[: tensor.numel() * width] = tensor.view(torch.uint8)
        every = [torch.empty_like(mine) for _ in range(self.size)]
        if longest:
            self.connect().allgather([every], [mine]).wait()
        return [
            one[: count * width].clone().view(tensor.dtype) for one, count in zip(every, counts, strict=True)
        ]

    def broadcast(self, tensor: torch.Tensor, root: int) -> None:
        """Give every process the values of the root's flat tensor."""
        if tensor.numel():
            options = dist.BroadcastOptions()
            options.rootRank, options.rootTensor = root, 0
            self.connect().broadcast([tensor.view(torch.uint8)], options).wait()

    def all_reduce(self, tensor: torch.Tensor, op: Any) -> None:
        """Give every process the reduction of all flat tensors."""
        options = dist.AllreduceOptions()
        options.reduceOp = op
        self.connect().allreduce([tensor], options).wait()


class Line:
    """The way of one tensor between this process and a peer: number `number` in its direction."""

    def __init__(self, gloo: Any, peer: int, sends: bool, number: int) -> None:
        self._gloo = gloo
        self._peer = peer
        self._tags = {"sender": 3 * number, "receiver": 3 * number + 1, "values": 3 * number + 2}
        self._mine, self._theirs = ("sender", "receiver") if sends else ("receiver", "sender")
        self._under_way: list[tuple[Any, torch.Tensor]] = []

    def tell(self, row: list[int]) -> None:
        """Begin to send a row, and to receive the peer's, which is as long."""
        mine = torch.tensor(row, dtype=torch.int64)
        self._row = torch.empty_like(mine)
        self._under_way = [(self._gloo.send([mine], self._peer, self._tags[self._mine]), mine)]
        self._answer = self._gloo.recv([self._row], self._peer, self._tags[self._theirs])

    def told(self) -> list[int]:
        """Wait for the peer's row."""
        self._answer.wait()
        return self._row.tolist()

    def send(self, tensor: torch.Tensor) -> None:
        """Begin to send a flat tensor."""
        memory = tensor.view(torch.uint8)
        self._under_way.append((self._gloo.send([memory], self._peer, self._tags["values"]), memory))

    def receive(self, tensor: torch.Tensor) -> None:
        """Begin to receive into a flat tensor."""
        memory = tensor.view(torch.uint8)
        self._under_way.append((self._gloo.recv([memory], self._peer, self._tags["values"]), memory))

    def finish(self) -> None:
        """Wait until everything has left, or arrived."""
        for work, _ in self._under_way:
            work.wait()


@contextmanager
def talking(fail: Callable[[Peers], Exception]) -> Iterator[None]:
    """Around what speaks to other processes: torch sees plain tensors and real time, and what gloo raises
    becomes the exception that `fail` makes of it."""
    try:
        with unobserved(), inside(), torch.no_grad():
            yield
    except RuntimeError as error:
        state = Peers.told(str(error))
        if state is None:
            raise
        if state is Peers.GONE:
            with unobserved():
                time.sleep(_GRACE_SECONDS)
        raise fail(state) from None
