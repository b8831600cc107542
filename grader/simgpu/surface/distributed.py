"""Training in several processes is not simulated: what starts it says so by name."""

from __future__ import annotations

import functools
from typing import Any

import torch.distributed
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ..errors import NotSimulated
from ..patches import Patches
from ..tags import device_index


def install(patches: Patches) -> None:
    """Refuse DistributedDataParallel over simulated GPUs, and a process group that needs NCCL."""
    patches.set(DistributedDataParallel, "__init__", _wrapper(DistributedDataParallel.__init__))
    if torch.distributed.is_available():
        patches.set(torch.distributed, "init_process_group", _group(torch.distributed.init_process_group))


def _wrapper(construct: Any) -> Any:
    @functools.wraps(construct)
    def init(self: Any, module: nn.Module, *args: Any, **kwargs: Any) -> None:
        if any(device_index(parameter) is not None for parameter in module.parameters()):
            raise NotSimulated("torch.nn.parallel.DistributedDataParallel")
        construct(self, module, *args, **kwargs)

    return init


def _group(start: Any) -> Any:
    @functools.wraps(start)
    def init_process_group(backend: Any = None, *args: Any, **kwargs: Any) -> Any:
        if backend is not None and "nccl" in str(backend).lower():
            raise NotSimulated("torch.distributed with the backend nccl (DistributedDataParallel)")
        return start(backend, *args, **kwargs)

    return init_process_group
