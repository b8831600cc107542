"""How long bytes take between the GPUs of a machine, and to its host: one function for each kind of transfer.

Every function is pure: a link profile and sizes in, seconds out. Sizes are bytes; a collective among one rank
takes no time, as nothing has to move. All use the latency-bandwidth model

    seconds = steps * latency + bytes that pass the busiest connection / its rate

- One copy: `latency_us` once, at `peer_gb_s` between GPUs, `host_gb_s` to and from pinned host memory, and
  `pageable_gb_s` to and from ordinary memory, which the driver copies through a pinned buffer of its own.
  Without peer access between two GPUs a copy passes through host memory, there and back; `peer_gb_s` of such
  a link is what remains then.
- Collectives of NCCL, as a ring: with S bytes among n ranks, an all-reduce passes 2(n-1)/n S bytes over each
  connection in 2(n-1) steps, an all-gather and a reduce-scatter half of that. The factors are those by which
  nccl-tests turns times into "bus bandwidth" (NVIDIA/nccl-tests, doc/PERFORMANCE.md), so `bus_gb_s` can be
  compared with what that program prints; the number of steps is that of the ring algorithm (Thakur,
  Rabenseifner and Gropp, Optimization of Collective Communication Operations in MPICH, 2005). NCCL also has
  trees, which need fewer steps among many ranks: for up to eight the ring is what matters here.
- Broadcast and reduce of nn.DataParallel: bytes times a constant fitted on measured steps, which contains
  flattening and the pauses between its buffers of 10 MB. It does not depend on the number of GPUs, since
  a pipelined ring passes every byte once over each connection, however long it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .profiles import Link

_GIGA = 1e9
_MICRO = 1e-6
_US_PER_MB = 1e-12  # 1 us for 10**6 bytes, in seconds for a byte


def transfer_seconds(link: Link, to_or_from_host: bool, nbytes: int, pinned: bool = False) -> float:
    """One copy of `nbytes` between a GPU and the host, pinned or ordinary memory, or between two GPUs."""
    if not to_or_from_host:
        rate = link.peer_gb_s
    elif pinned or link.pageable_gb_s is None:
        rate = link.host_gb_s
    else:
        rate = link.pageable_gb_s
    return link.latency_us.value * _MICRO + nbytes / (rate.value * _GIGA)


def broadcast_seconds(link: Link, nbytes: int, devices: int) -> float:
    """nn.DataParallel's copy of `nbytes` from the first of `devices` to the others."""
    return nbytes * link.broadcast_us_per_mb.value * _US_PER_MB if devices > 1 else 0.0


def reduce_seconds(link: Link, nbytes: int, devices: int) -> float:
    """nn.DataParallel's sum of `nbytes` of gradients of all `devices` on the first."""
    return nbytes * link.reduce_us_per_mb.value * _US_PER_MB if devices > 1 else 0.0


def all_reduce_seconds(link: Link, nbytes: int, ranks: int) -> float:
    """Each rank brings `nbytes` and ends with their sum over all ranks."""
    return _ring(link, nbytes * 2 * (ranks - 1) / ranks, 2 * (ranks - 1))


def all_gather_seconds(link: Link, nbytes: int, ranks: int) -> float:
    """Each rank brings its part and ends with all of it; `nbytes` is the whole."""
    return _ring(link, nbytes * (ranks - 1) / ranks, ranks - 1)


def reduce_scatter_seconds(link: Link, nbytes: int, ranks: int) -> float:
    """Each rank brings `nbytes` and ends with its part of their sum."""
    return all_gather_seconds(link, nbytes, ranks)


def broadcast_ring_seconds(link: Link, nbytes: int, ranks: int) -> float:
    """One rank's `nbytes` reach all others, pipelined around the ring."""
    return _ring(link, nbytes if ranks > 1 else 0, ranks - 1)


def reduce_ring_seconds(link: Link, nbytes: int, ranks: int) -> float:
    """One rank ends with the sum of the `nbytes` that each rank brings."""
    return broadcast_ring_seconds(link, nbytes, ranks)


def all_to_all_seconds(link: Link, nbytes: int, ranks: int) -> float:
    """Each rank sends an equal part of its `nbytes` to every rank; its own part stays."""
    return _ring(link, nbytes * (ranks - 1) / ranks, ranks - 1)


def gather_seconds(link: Link, nbytes: int, ranks: int) -> float:
    """One rank receives the parts of all; `nbytes` is the whole. Also scatter, the other way round."""
    return _ring(link, nbytes * (ranks - 1) / ranks, ranks - 1)


def barrier_seconds(link: Link, ranks: int) -> float:
    """An all-reduce of next to nothing."""
    return all_reduce_seconds(link, 1, ranks)


def send_seconds(link: Link, nbytes: int) -> float:
    """One rank sends `nbytes` to another."""
    return _ring(link, nbytes, 1)


def _ring(link: Link, nbytes: float, steps: int) -> float:
    return steps * link.step_us.value * _MICRO + nbytes / (link.bus_gb_s.value * _GIGA)
