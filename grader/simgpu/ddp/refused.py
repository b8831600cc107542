"""What else of torch.distributed spreads a model over GPUs: refused by name, as it is not simulated."""

from __future__ import annotations

import functools
from typing import Any

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FullyShardedDataParallel

from ..errors import NotSimulated
from ..patches import Patches
from .group import SimulatedNCCL

_MESH = "torch.distributed.device_mesh.DeviceMesh (FSDP2's fully_shard, DTensor, tensor parallelism)"
_FSDP = "torch.distributed.fsdp.FullyShardedDataParallel"


def install(patches: Patches) -> None:
    """Refuse sharded models over simulated GPUs; over gloo on the CPU they work as ever."""

    def of_gpus(self: Any, device_type: str, *args: Any, **kwargs: Any) -> bool:
        return device_type == "cuda"

    def over_gpus(self: Any, module: Any, process_group: Any = None, *args: Any, **kwargs: Any) -> bool:
        group = process_group
        if group is None and dist.is_initialized():
            group = dist.group.WORLD
        return isinstance(group, SimulatedNCCL)

    for refused, name, applies in (
        (DeviceMesh, _MESH, of_gpus),
        (FullyShardedDataParallel, _FSDP, over_gpus),
    ):
        patches.set(refused, "__init__", _refusing(refused.__init__, name, applies))


def _refusing(construct: Any, name: str, applies: Any) -> Any:
    @functools.wraps(construct)
    def init(*args: Any, **kwargs: Any) -> None:
        if applies(*args, **kwargs):
            raise NotSimulated(name)
        construct(*args, **kwargs)

    return init
