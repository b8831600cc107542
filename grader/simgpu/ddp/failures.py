"""What goes wrong between processes, in NCCL's and c10d's words."""

from __future__ import annotations

import enum
import re
from datetime import timedelta

import torch
import torch.distributed as dist

_GONE = re.compile(
    r"closed by peer|reset by peer|Broken pipe|Socket closed|Connection refused|likely closed", re.IGNORECASE
)
_LATE = re.compile(r"timed out|timeout", re.IGNORECASE)


class Peers(enum.Enum):
    """Why another process did not answer."""

    GONE = "{} has ended, or left the group, without taking part in this call"
    LATE = "not every process of the group took part in this call in that time"

    @classmethod
    def told(cls, text: str) -> Peers | None:
        """What gloo's error says; None for an error of another kind."""
        if _GONE.search(text):
            return cls.GONE
        return cls.LATE if _LATE.search(text) else None


def milliseconds(timeout: timedelta) -> int:
    """A timeout as NCCL's messages print it."""
    return round(timeout / timedelta(milliseconds=1))


def watchdog(
    rank: int, sequence: int, kind: str, counts: tuple[int, int], timeout: timedelta, reason: str
) -> Exception:
    """The end of a collective that can never finish. With real GPUs it comes after the timeout; here as soon
    as it is certain."""
    late = milliseconds(timeout)
    return dist.DistBackendError(
        f"[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={sequence}, "
        f"OpType={kind}, NumelIn={counts[0]}, NumelOut={counts[1]}, Timeout(ms)={late}) ran for {late} "
        f"milliseconds before timing out.\n"
        f"On simulated GPUs the reason is known: {reason}."
    )


def no_communicator(rank: int, timeout: timedelta, reason: str) -> Exception:
    """A process did not come to the first collective of a group."""
    return dist.DistBackendError(
        f"[{rank}] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value "
        f"store by key '0', but got error: wait timeout after {milliseconds(timeout)}ms.\n"
        f"On simulated GPUs the reason is known: {reason}."
    )


def duplicate(first: int, second: int, device: int) -> Exception:
    """Two processes of a group work on the same GPU."""
    version = ".".join(map(str, torch.cuda.nccl.version()))
    return dist.DistBackendError(
        f"NCCL error in: ProcessGroupNCCL.cpp, invalid usage (run with NCCL_DEBUG=WARN for details), "
        f"NCCL version {version}\n"
        "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\n"
        "Last error:\n"
        f"Duplicate GPU detected : rank {first} and rank {second} both on CUDA device {device + 1:x}000"
    )
