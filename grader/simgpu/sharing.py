"""Tensors of a simulated GPU on their way to another process (torch.multiprocessing's queues and arguments).

As with CUDA, the receiver sees the sender's memory. Beneath, that is memory of the host which both map.
"""

from __future__ import annotations

import functools
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any

import torch
import torch.multiprocessing.reductions as reductions

from . import received
from .local import inside, unobserved
from .patches import Patches
from .tags import device_index

if TYPE_CHECKING:
    from .machine import Machine


def install(machine: Machine, patches: Patches) -> None:
    """Let tensors be sent with their device."""
    reducers = ForkingPickler._extra_reducers  # type: ignore[attr-defined]
    original = reductions.reduce_tensor
    for kind in [kind for kind, reducer in reducers.items() if reducer is original]:
        reducers[kind] = functools.partial(_reduce, machine, original)
        patches.finally_do(functools.partial(reducers.__setitem__, kind, original))


def _reduce(machine: Machine, original: Any, tensor: torch.Tensor) -> Any:
    device = device_index(tensor)
    # Not what torch refuses to send, and what it sends part by part.
    if device is None or (tensor.requires_grad and not tensor.is_leaf) or tensor.layout is not torch.strided:
        return original(tensor)
    kind = received.Kind(
        type(tensor), tuple(tensor.size()), tensor.stride(), tensor.dtype, tensor.requires_grad, device
    )
    if not machine.math:
        return received.shape, (kind,)
    with unobserved(), inside():
        rebuild, storage = reductions.reduce_storage(tensor.untyped_storage())
    return received.values, (kind, tensor.storage_offset(), rebuild, storage)
