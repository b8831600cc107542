"""torch.distributed: process groups over simulated GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import ddp
from ..patches import Patches

if TYPE_CHECKING:
    from ..machine import Machine


def install(machine: Machine, patches: Patches) -> None:
    """Let the backend "nccl" work, and with it DistributedDataParallel."""
    ddp.install(machine, patches)
