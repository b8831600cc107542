"""Training in several processes: torch.distributed with the backend "nccl" on simulated GPUs.

Every process has a machine of its own with all GPUs, and works on one of them. What NCCL would move between
GPUs moves between the processes over gloo (`exchange`), and beside each collective the processes tell each
other when, in virtual time, they are ready for it: it begins when the last one is (`meeting`).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import torch.distributed

from ..patches import Patches

if TYPE_CHECKING:
    from ..machine import Machine


def install(machine: Machine, patches: Patches) -> None:
    """Let process groups of the backend "nccl" span simulated GPUs."""
    if not torch.distributed.is_available():
        return
    from . import backend, batchnorm, control, reducer, refused

    backend.install(machine, patches)
    control.install(machine, patches)
    reducer.install(patches)
    batchnorm.install(patches)
    refused.install(patches)


def summary_facts() -> dict[str, Any]:
    """Which process of how many this is, by the launcher's environment or the first process group; empty for
    a single one."""
    if "RANK" not in os.environ:
        return _facts.copy()
    names = {"rank": "RANK", "local_rank": "LOCAL_RANK", "world_size": "WORLD_SIZE"}
    return {fact: int(os.environ[name]) for fact, name in names.items() if name in os.environ}


_facts: dict[str, int] = {}


def remember(rank: int, size: int) -> None:
    """Note who this process is, when its first process group is made: the group may be gone at its end."""
    if not _facts:
        _facts.update(rank=rank, world_size=size)
