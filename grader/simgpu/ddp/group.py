"""The process groups that stand in for NCCL's."""

from __future__ import annotations

from .shares import Shares
from .whole import Whole


class SimulatedNCCL(Whole, Shares):
    """Every collective of c10d on tensors of simulated GPUs."""
