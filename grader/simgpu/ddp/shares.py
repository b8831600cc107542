"""Collectives in which each process has a part of its own: gather, scatter, reduce-scatter, all-to-all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from .. import links
from ..local import inside
from . import reductions
from .base import Group, Part, Tensors
from .tensors import elements, flat, nbytes
from .work import SimulatedWork


class Shares(Group):
    """Each process brings, or ends with, something else than the others."""

    def allgather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> SimulatedWork:
        """Give all processes the tensors of all; those may differ in size."""
        return self._all_gather("ALLGATHER", outputs[0], inputs[0], outputs[0])

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> SimulatedWork:
        """The same into one tensor."""
        if output.dtype is not input.dtype:
            raise TypeError("output tensor must have the same type as input tensor")
        if output.numel() != input.numel() * self.size():
            raise ValueError("output tensor size must be equal to world_size times input tensor size")
        return self._all_gather("_ALLGATHER_BASE", self._chunks(output), input, [output])

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Any:
        """Several of them."""
        return [self.all_gather_single(*pair) for pair in zip(outputs, inputs, strict=True)][-1]

    def allgather_coalesced(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> Any:
        """Give all processes several tensors of all; one list of outputs for each process."""
        ranks = zip(*outputs, strict=True)
        return [
            self._all_gather("ALLGATHER_COALESCED", parts, tensor, parts)
            for parts, tensor in zip(ranks, inputs, strict=True)
        ][-1]

    def _all_gather(self, kind: str, parts: Tensors, tensor: torch.Tensor, results: Tensors) -> SimulatedWork:
        width = tensor.element_size()

        def move(sent: list[int]) -> None:
            for part, values in zip(parts, self.exchange.values(flat(tensor), sent), strict=True):
                flat(part).copy_(values)

        return self.run(
            Part(
                kind, [tensor, *parts], tensor.numel(), elements(parts), lambda sent: sum(sent) * width,
                links.all_gather_seconds, move, uneven=True, results=results,
            )
        )  # fmt: skip

    def gather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any) -> SimulatedWork:
        """Give the root the tensors of all."""
        parts = outputs[0] if self.rank() == opts.rootRank else []
        return self._gather(parts, inputs[0], opts.rootRank, parts)

    def gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any) -> SimulatedWork:
        """The same into one tensor."""
        at_root = self.rank() == opts.rootRank
        return self._gather(self._chunks(output) if at_root else [], input, opts.rootRank, [output])

    def _gather(self, parts: Tensors, tensor: torch.Tensor, root: int, results: Tensors) -> SimulatedWork:
        def move(sent: list[int]) -> None:
            every = self.exchange.values(flat(tensor), sent)
            for part, values in zip(parts, every, strict=False):  # no parts but on the root
                flat(part).copy_(values)

        return self.run(
            Part(
                "GATHER", [tensor, *parts], tensor.numel(), tensor.numel(),
                lambda sent: nbytes([tensor]) * self.size(), links.gather_seconds, move, detail=root,
                results=results,
            )
        )  # fmt: skip

    def scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any) -> SimulatedWork:
        """Give each process one of the root's tensors."""
        made, root, size = outputs[0], opts.rootRank, self.size()
        parts = inputs[0] if self.rank() == root else []

        def move(sent: list[int]) -> None:
            brought = torch.cat([flat(part) for part in parts]) if parts else flat(made)[:0]
            counts = [made.numel() * size if rank == root else 0 for rank in range(size)]
            values = self.exchange.values(brought, counts)[root]
            flat(made).copy_(values.chunk(size)[self.rank()])

        return self.run(
            Part(
                "SCATTER", [made, *parts], made.numel(), made.numel(),
                lambda sent: nbytes([made]) * size, links.gather_seconds, move, detail=root, results=outputs,
            )
        )  # fmt: skip

    def reduce_scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any = None) -> SimulatedWork:
        """Reduce one tensor for each process over all of them."""
        return self._reduce_scatter("REDUCE_SCATTER", outputs[0], inputs[0], opts)

    def reduce_scatter_single(
        self, output: torch.Tensor, input: torch.Tensor, opts: Any = None
    ) -> SimulatedWork:
        """The same from one tensor."""
        if output.dtype is not input.dtype:
            raise TypeError("input tensor must be the same type as the output tensor.")
        if input.numel() != output.numel() * self.size():
            raise ValueError("input tensor must be the same size as output size times world size")
        return self._reduce_scatter("_REDUCE_SCATTER_BASE", output, self._chunks(input), opts)

    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Any:
        """Several of them."""
        pairs = zip(outputs, inputs, strict=True)
        return [self.reduce_scatter_single(output, tensor, opts) for output, tensor in pairs][-1]

    def _reduce_scatter(self, kind: str, output: torch.Tensor, parts: Tensors, opts: Any) -> SimulatedWork:
        op = dist.ReduceOp.SUM if opts is None else opts.reduceOp
        reductions.check(op, output.dtype)
        sizes = [part.numel() for part in parts]

        def move(sent: list[int]) -> None:
            total = torch.cat([flat(part) for part in parts])
            reductions.all_reduce(self.exchange, total, op)
            flat(output).copy_(total.split(sizes)[self.rank()])

        return self.run(
            Part(
                kind, [output, *parts], sum(sizes), sum(sizes), lambda sent: nbytes(parts),
                links.reduce_scatter_seconds, move, detail=reductions.number(op), results=[output],
            )
        )  # fmt: skip

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> SimulatedWork:
        """Give each process one tensor of every process."""
        return self._all_to_all("ALLTOALL", outputs, inputs, outputs)

    def all_to_all_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        received: Sequence[int],
        sent: Sequence[int],
        opts: Any = None,
    ) -> SimulatedWork:
        """The same from and into one tensor, cut along its first dimension as the lists say, or evenly."""
        parts = self._cut(output, received), self._cut(input, sent)
        return self._all_to_all("ALLTOALL_BASE", *parts, [output])

    def _all_to_all(self, kind: str, outputs: Tensors, inputs: Tensors, results: Tensors) -> SimulatedWork:
        width = inputs[0].element_size()

        def move(sent: list[int]) -> None:
            cuts = self.exchange.rows([part.numel() for part in inputs])
            every = self.exchange.values(torch.cat([flat(part) for part in inputs]), sent)
            for part, values, sizes in zip(outputs, every, cuts, strict=True):
                flat(part).copy_(values.split(sizes)[self.rank()])

        return self.run(
            Part(
                kind, [*inputs, *outputs], elements(inputs), elements(outputs),
                lambda sent: max(sent) * width, links.all_to_all_seconds, move, uneven=True, results=results,
            )
        )  # fmt: skip

    def _chunks(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        with inside(), torch.no_grad():
            return list(flat(tensor).chunk(self.size()))

    def _cut(self, tensor: torch.Tensor, sizes: Sequence[int]) -> list[torch.Tensor]:
        if not sizes and tensor.size(0) % self.size():
            raise RuntimeError("Tensor's dim 0 does not divide equally across group size")
        if sizes and (len(sizes) != self.size() or sum(sizes) != tensor.size(0)):
            raise RuntimeError("Split sizes doesn't match total dim 0 size")
        rows = list(sizes) or [tensor.size(0) // self.size()] * self.size()
        with inside(), torch.no_grad():
            return list(tensor.data.split(rows))

    # The same functions under the names that other releases of torch call them by.
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single
