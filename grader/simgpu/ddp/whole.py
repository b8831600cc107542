"""Collectives on one tensor that all processes have: all-reduce, reduce, broadcast, barrier."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from .. import links
from . import reductions
from .base import Group, Part, Tensors
from .tensors import elements, flat, nbytes
from .work import SimulatedWork

_BARRIER_BYTES = 4  # NCCL's barrier is an all-reduce of one number


class Whole(Group):
    """Each process ends with one result, the same on all or on the root."""

    def allreduce(self, tensors: Tensors | torch.Tensor, opts: Any = None) -> SimulatedWork:
        """Reduce a tensor over all processes, on all of them."""
        return self._all_reduce("ALLREDUCE", tensors, opts)

    def allreduce_coalesced(self, tensors: Tensors | torch.Tensor, opts: Any = None) -> SimulatedWork:
        """Reduce several tensors as one collective."""
        return self._all_reduce("ALLREDUCE_COALESCED", tensors, opts)

    def _all_reduce(self, kind: str, tensors: Tensors | torch.Tensor, opts: Any) -> SimulatedWork:
        if isinstance(tensors, torch.Tensor):
            tensors = [tensors]
        op = dist.ReduceOp.SUM if opts is None else opts.reduceOp
        for tensor in tensors:
            reductions.check(op, tensor.dtype)

        def move(sent: list[int]) -> None:
            for tensor in tensors:
                reductions.all_reduce(self.exchange, flat(tensor), op)

        total = elements(tensors)
        return self.run(
            Part(
                kind, tensors, total, total, lambda sent: nbytes(tensors), links.all_reduce_seconds, move,
                detail=reductions.number(op), results=tensors,
            )
        )  # fmt: skip

    def broadcast(self, tensors: Tensors, opts: Any) -> SimulatedWork:
        """Give all processes the tensor of the root."""

        def move(sent: list[int]) -> None:
            for tensor in tensors:
                self.exchange.broadcast(flat(tensor), opts.rootRank)

        total = elements(tensors)
        return self.run(
            Part(
                "BROADCAST", tensors, total, total, lambda sent: nbytes(tensors),
                links.broadcast_ring_seconds, move, detail=opts.rootRank, results=tensors,
            )
        )  # fmt: skip

    def reduce(self, tensors: Tensors, opts: Any) -> SimulatedWork:
        """Reduce a tensor over all processes, on the root; the others keep theirs."""
        op = opts.reduceOp
        reductions.check(op, tensors[0].dtype)

        def move(sent: list[int]) -> None:
            memory = flat(tensors[0])
            result = memory.clone()
            reductions.all_reduce(self.exchange, result, op)
            if self.rank() == opts.rootRank:
                memory.copy_(result)

        total = elements(tensors)
        return self.run(
            Part(
                "REDUCE", tensors, total, total, lambda sent: nbytes(tensors), links.reduce_ring_seconds,
                move, detail=self.size() * reductions.number(op) + opts.rootRank, results=tensors,
            )
        )  # fmt: skip

    def barrier(self, opts: Any = None) -> SimulatedWork:
        """Keep the host until every process is here, and its device has done what it was given."""
        wanted = getattr(opts, "device", None)
        if wanted is None or wanted.type != "cuda":
            wanted = self.bound
        index = self.machine.index(wanted)
        token = torch.zeros(1, device=torch.device("cuda", index))
        work = self.run(
            Part(
                "BARRIER", [token], 1, 1, lambda sent: _BARRIER_BYTES,
                lambda link, nbytes, ranks: links.barrier_seconds(link, ranks), lambda sent: None,
            )
        )  # fmt: skip
        work.host_waits = True
        return work
