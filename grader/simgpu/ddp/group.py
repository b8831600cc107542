"""The process groups that stand in for NCCL's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from .exchange import Exchange
from .peers import PointToPoint
from .shares import Shares
from .tensors import home
from .whole import Whole

if TYPE_CHECKING:
    from ..machine import Machine

_COLLECTIVES = (
    "allreduce", "allreduce_coalesced", "broadcast", "reduce", "allgather", "all_gather_single",
    "_allgather_base", "allgather_coalesced", "gather", "scatter", "reduce_scatter", "reduce_scatter_single",
    "_reduce_scatter_base", "alltoall", "all_to_all_single", "alltoall_base", "send", "recv",
    "recv_anysource",
)  # fmt: skip


class SimulatedNCCL(Whole, Shares, PointToPoint):
    """Every collective of c10d on tensors of simulated GPUs."""


class WithGloo(SimulatedNCCL):
    """The same, and gloo for tensors in host memory: "cpu:gloo,cuda:nccl"."""

    def __init__(self, machine: Machine, exchange: Exchange) -> None:
        super().__init__(machine, exchange)
        store = dist.PrefixStore("cpu", exchange.store)
        self._host = Exchange(store, exchange.rank, exchange.size, exchange.timeout)

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device("cpu"), torch.device("cuda")]

    def _get_backend(self, device: torch.device) -> Any:
        return self._host.connect() if device.type == "cpu" else super()._get_backend(device)

    def shutdown(self) -> None:
        """Leave both groups."""
        self._host.close()
        super().shutdown()


def _either(name: str) -> Any:
    on_gpus = getattr(SimulatedNCCL, name)

    def collective(self: WithGloo, *args: Any, **kwargs: Any) -> Any:
        first = _first_tensor([*args, *kwargs.values()])
        if first is not None and home(first) is None:
            return getattr(self._host.connect(), name)(*args, **kwargs)
        return on_gpus(self, *args, **kwargs)

    collective.__doc__ = on_gpus.__doc__
    return collective


def _first_tensor(values: Any) -> torch.Tensor | None:
    for value in values:
        found = _first_tensor(value) if isinstance(value, list | tuple) else value
        if isinstance(found, torch.Tensor):
            return found
    return None


for _name in _COLLECTIVES:
    setattr(WithGloo, _name, _either(_name))
