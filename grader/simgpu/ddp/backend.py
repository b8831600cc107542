"""torch.distributed's backend "nccl", on simulated GPUs."""

from __future__ import annotations

import copy
import functools
import inspect
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from ..patches import Patches
from . import remember
from .exchange import Exchange
from .group import SimulatedNCCL, WithGloo

if TYPE_CHECKING:
    from ..machine import Machine

_PLUGIN = "simulated_nccl"  # as torch.distributed knows the creator of the groups, for the length of a call
_TIMEOUT = timedelta(minutes=10)  # kProcessGroupNCCLDefaultTimeout
_TABLES = ("_plugins", "backend_list", "backend_capability", "backend_type_map", "default_device_backend_map")


class _Options:
    """What ProcessGroupNCCL.Options holds."""

    def __init__(self, is_high_priority_stream: bool = False) -> None:
        self.is_high_priority_stream = is_high_priority_stream


class _ProcessGroupNCCL:
    """Stands in for the class that a build of torch without NCCL does not have."""

    Options = _Options


def install(machine: Machine, patches: Patches) -> None:
    """Let every process group that asks for NCCL span simulated GPUs."""
    creator = _Creator(machine)
    _register(creator, patches)
    original = c10d._new_process_group_helper
    signature = inspect.signature(original)

    @functools.wraps(original)
    def new_process_group(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        asked = given.arguments["backend"]
        devices = _devices(str(asked))
        if devices.get("cuda") != "nccl":
            return original(*args, **kwargs)
        given.arguments["backend"] = f"cuda:{_PLUGIN}"
        creator.kind = WithGloo if "cpu" in devices else SimulatedNCCL
        group, store = original(*given.args, **given.kwargs)
        if isinstance(group, SimulatedNCCL):  # and this process is in it
            group.bound = given.arguments.get("device_id")
            _call_it(group, asked, devices)
        return group, store

    patches.set(c10d, "_new_process_group_helper", new_process_group)
    patches.set(c10d, "_NCCL_AVAILABLE", True)
    if not hasattr(c10d, "ProcessGroupNCCL"):
        patches.set(c10d, "ProcessGroupNCCL", _ProcessGroupNCCL)
        patches.set(dist, "ProcessGroupNCCL", _ProcessGroupNCCL)
    if not isinstance(c10d.default_pg_nccl_timeout, timedelta):
        patches.set(c10d, "default_pg_nccl_timeout", _TIMEOUT)


def _call_it(group: SimulatedNCCL, asked: Any, devices: dict[str, str]) -> None:
    """Let torch.distributed know the group by the backend that was asked for."""
    world: Any = c10d._world
    world.pg_map[group] = (asked, world.pg_map[group][1])
    world.pg_backend_config[group] = ",".join(f"{device}:{name}" for device, name in devices.items())


class _Creator:
    """Makes the groups that torch.distributed asks for."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.kind: type[SimulatedNCCL] = SimulatedNCCL

    def __call__(self, options: Any, given: Any = None) -> SimulatedNCCL:
        remember(options.group_rank, options.group_size)
        exchange = Exchange(options.store, options.group_rank, options.group_size, options.timeout)
        return self.kind(self.machine, exchange)


def _register(creator: _Creator, patches: Patches) -> None:
    for name in _TABLES:
        table = getattr(c10d.Backend, name)
        patches.finally_do(functools.partial(_restore, table, copy.copy(table)))
    c10d.Backend.register_backend(_PLUGIN, creator, extended_api=True, devices=["cuda"])
    patches.finally_do(lambda: delattr(c10d.Backend, _PLUGIN.upper()))
    c10d.Backend.default_device_backend_map["cuda"] = "nccl"


def _restore(table: Any, before: Any) -> None:
    table.clear()
    table.extend(before) if isinstance(table, list) else table.update(before)


def _devices(backend: str) -> dict[str, str]:
    """Which backend serves which type of device."""
    backend = backend.lower()
    if ":" in backend:
        return dict(pair.split(":", 1) for pair in backend.split(",") if ":" in pair)
    if backend == "nccl":
        return {"cuda": "nccl"}
    if backend == "undefined":
        config = c10d.BackendConfig(c10d.Backend(backend)).get_device_backend_map()
        return {device: str(name) for device, name in config.items()}
    return {}
