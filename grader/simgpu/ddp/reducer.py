"""The reducer of DistributedDataParallel: its buckets live on the GPU of the parameters.

The reducer is C++ and makes its buckets where the parameters physically are: in host memory. So what it makes
is put on their simulated GPU, where it also takes memory, and counted as being there where only C++ sees it.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

from ..patches import Patches
from ..tags import device_index
from .tensors import HOME, adoption

aten = torch.ops.aten


class _OnDevice(TorchDispatchMode):
    """Puts the buckets that C++ makes on a GPU.

    The reducer's map of the parameters in use, whole numbers that the host reads again, keeps its values in
    host memory and is only remembered to belong to the GPU.
    """

    def __init__(self, device: int) -> None:
        super().__init__()
        self.device = device

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        makes = func.overloadpacket in (aten.empty, aten.zeros)
        dtype = kwargs.get("dtype")
        if makes and dtype is not None and dtype.is_floating_point:
            kwargs["device"] = torch.device("cuda", self.device)
            kwargs.pop("pin_memory", None)
        out = func(*args, **kwargs)
        if func.overloadpacket is aten.empty and dtype is torch.int32:
            setattr(out.untyped_storage(), HOME, self.device)
        return out


class Reducer(dist.Reducer):
    """The reducer of parameters on a simulated GPU."""

    def __init__(self, parameters: list[torch.Tensor], *args: Any, **kwargs: Any) -> None:
        device = device_index(parameters[0])
        assert device is not None
        self._on_device = _OnDevice(device)
        with self._on_device:
            super().__init__(parameters, *args, **kwargs)

    def _rebuild_buckets(self) -> bool:
        with self._on_device:
            return super()._rebuild_buckets()

    def _set_static_graph(self) -> None:
        with self._on_device:
            super()._set_static_graph()

    def _get_zeros_like_grad_buckets(self) -> Any:
        with self._on_device:
            return super()._get_zeros_like_grad_buckets()


def install(patches: Patches) -> None:
    """Let DistributedDataParallel make such reducers, and c10d compare models on simulated GPUs."""
    original, verify = dist.Reducer, dist._verify_params_across_processes

    def reducer(parameters: list[torch.Tensor], *args: Any, **kwargs: Any) -> Any:
        made = original if device_index(parameters[0]) is None else Reducer
        return made(parameters, *args, **kwargs)

    def verified(group: Any, parameters: list[torch.Tensor], logger: Any = None) -> Any:
        device = device_index(parameters[0]) if parameters else None
        if device is None:
            return verify(group, parameters, logger)
        with adoption.on(device):
            return verify(group, parameters, logger)

    patches.set(dist, "Reducer", reducer)
    patches.set(dist, "_verify_params_across_processes", verified)
