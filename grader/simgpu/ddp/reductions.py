"""The values of reductions over processes, as NCCL computes them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce as fold
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed import ReduceOp

if TYPE_CHECKING:
    from .exchange import Exchange

# What ProcessGroupNCCL has a type of NCCL for.
TYPES = (
    torch.int8, torch.uint8, torch.int32, torch.int64, torch.bool,
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn, torch.float8_e5m2,
)  # fmt: skip
_OF_GLOO = (torch.uint8, torch.int8, torch.int32, torch.int64, torch.float32, torch.float64)
_REFUSED = {ReduceOp.BAND: "BAND", ReduceOp.BOR: "BOR", ReduceOp.BXOR: "BXOR"}
NAMES = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM")


def name(op: Any) -> str:
    """The name of a ReduceOp."""
    return next(known for known in NAMES if op == getattr(ReduceOp, known))


def number(op: Any) -> int:
    """A number that tells reductions apart."""
    return NAMES.index(name(op))


def check(op: Any, dtype: torch.dtype) -> None:
    """Raise what ProcessGroupNCCL raises for a reduction that NCCL does not have."""
    check_type(dtype)
    for refused, called in _REFUSED.items():
        if op == refused:
            raise ValueError(f"Cannot use ReduceOp.{called} with NCCL")
    if op == ReduceOp.AVG and dtype is torch.bool:
        raise TypeError("Cannot use ReduceOp.AVG with boolean inputs")


def check_type(dtype: torch.dtype) -> None:
    """Raise what ProcessGroupNCCL raises for a type that NCCL does not have."""
    if dtype not in TYPES:
        called = torch.empty(0, dtype=dtype).type().rpartition(".")[2].removesuffix("Tensor")
        raise TypeError(f"Input tensor data type is not supported for NCCL process group: {called}")


def all_reduce(exchange: Exchange, flat: torch.Tensor, op: Any) -> None:
    """Reduce the flat tensors of all processes in place."""
    if flat.dtype in _OF_GLOO:
        averaged = _prepare(flat, op, exchange.size)
        exchange.all_reduce(flat, op if _plain(op) else ReduceOp.SUM)
        if averaged:
            flat.div_(exchange.size, rounding_mode="trunc")
        return
    rows = exchange.values(flat, [flat.numel()] * exchange.size)
    flat.copy_(combine(rows, op))


def combine(rows: Sequence[torch.Tensor], op: Any) -> torch.Tensor:
    """The reduction of tensors of one shape, in the order of the ranks. Changes the rows."""
    dtype = rows[0].dtype
    if dtype is torch.bool:
        everywhere = op == ReduceOp.MIN or op == ReduceOp.PRODUCT
        return fold(torch.logical_and if everywhere else torch.logical_or, rows)
    if dtype.itemsize == 1 and dtype.is_floating_point:
        return combine([row.float() for row in rows], op).to(dtype)
    averaged = [_prepare(row, op, len(rows)) for row in rows][0]
    if op == ReduceOp.PRODUCT:
        return fold(torch.mul, rows)
    if op == ReduceOp.MIN:
        return fold(torch.minimum, rows)
    if op == ReduceOp.MAX:
        return fold(torch.maximum, rows)
    total = fold(torch.add, rows)
    return total.div(len(rows), rounding_mode="trunc") if averaged else total


def _plain(op: Any) -> bool:
    return not (op == ReduceOp.AVG or op == ReduceOp.PREMUL_SUM)


def _prepare(row: torch.Tensor, op: Any, size: int) -> bool:
    """What comes before a sum; whether a division comes after it.

    NCCL's average multiplies floating-point numbers by 1/n first, which keeps half precision from
    overflowing, and divides the sum of integers.
    """
    if op == ReduceOp.AVG:
        if not row.dtype.is_floating_point:
            return True
        row.mul_(1 / size)
    elif op == ReduceOp.PREMUL_SUM:
        row.mul_(op.__getstate__()[1])
    return False
