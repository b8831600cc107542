"""What scripts decide by, told between processes with its values even where nothing is computed.

Python objects, and the counts of the join context, travel from host memory to host memory. The host waits
for them, as it does where they pass through a GPU.
"""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode

from ..patches import Patches
from .group import SimulatedNCCL, WithGloo
from .tensors import adoption

if TYPE_CHECKING:
    from ..machine import Machine

_OF_OBJECTS = (
    "all_gather_object", "broadcast_object_list", "gather_object", "scatter_object_list", "send_object_list",
    "recv_object_list",
)  # fmt: skip
_MADE = (torch.ops.aten.zeros, torch.ops.aten.ones)


class _OnHost(TorchDispatchMode):
    """Makes tensors of zeros and ones in host memory, whatever device is asked for."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func.overloadpacket in _MADE:
            kwargs["device"] = torch.device("cpu")
        return func(*args, **kwargs)


def install(machine: Machine, patches: Patches) -> None:
    """Let objects, and the counts of uneven inputs, keep their values."""
    for name in _OF_OBJECTS:
        original = getattr(c10d, name, None)
        if original is not None:
            told = _of_objects(machine, original)
            patches.set(c10d, name, told)
            patches.set(dist, name, told)
    where = c10d._get_object_coll_device

    def object_device(group: Any = None) -> str:
        return where(group) if adoption.device is None else "cpu"

    patches.set(c10d, "_get_object_coll_device", object_device)
    if not machine.math:
        for owner, name, device in (
            (Join, "_get_num_nonjoined_procs", "_device"),
            (Join, "notify_join_context", "join_device"),
            (DistributedDataParallel, "_check_global_requires_backward_grad_sync", "device"),
        ):
            counting = _counting(getattr(owner, name), operator.attrgetter(device))
            static = isinstance(vars(owner)[name], staticmethod)
            patches.set(owner, name, staticmethod(counting) if static else counting)


def _of_objects(machine: Machine, original: Any) -> Any:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        groups = [value for value in (*args, *kwargs.values()) if isinstance(value, dist.ProcessGroup)]
        group = groups[0] if groups else dist.group.WORLD
        if not isinstance(group, SimulatedNCCL) or isinstance(group, WithGloo):
            return original(*args, **kwargs)
        with adoption.on(machine.index(group.bound)):
            return original(*args, **kwargs)

    return call


def _counting(original: Any, device_of: Any) -> Any:
    @functools.wraps(original)
    def call(joined: Any, *args: Any, **kwargs: Any) -> Any:
        device = device_of(joined)
        if device.type != "cuda":
            return original(joined, *args, **kwargs)
        with adoption.on(device.index), _OnHost():
            return original(joined, *args, **kwargs)

    return call
