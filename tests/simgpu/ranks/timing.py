"""What collectives and DistributedDataParallel take in simulated time, without arithmetic."""

from __future__ import annotations

import os
import random
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

from grader import simgpu
from grader.simgpu.machine import installed
from tests.simgpu.ranks.harness import run

BATCH = 64


class Block(nn.Module):
    """Two convolutions beside a shortcut, as in a ResNet."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.one, self.two = (nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2))
        self.norm, self.norm2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.norm2(self.two(torch.relu(self.norm(self.one(x))))))


def network() -> nn.Module:
    blocks = [Block(128) for _ in range(6)]
    return nn.Sequential(
        nn.Conv2d(3, 128, 3, padding=1), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)
    )


def step_seconds(model: nn.Module, rows: int, steps: int = 3) -> float:
    """Simulated seconds of a training step on `rows` images, the first step left out."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(rows, 3, 32, 32), torch.randint(10, (rows,))
    begun = 0.0
    for step in range(steps + 1):
        if step == 1:
            torch.cuda.synchronize()
            begun = time.perf_counter()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x.cuda()), y.cuda()).backward()
        optimizer.step()
    torch.cuda.synchronize()
    return (time.perf_counter() - begun) / steps


def dawdle() -> None:
    """Real time passes, more or less of it."""
    with simgpu.unobserved():
        time.sleep(random.random() * 0.05)


def data_parallel_step(rank: int) -> object:
    model = DistributedDataParallel(network().cuda(), device_ids=[rank])
    return step_seconds(model, BATCH // 2)


def repeats(rank: int) -> object:
    """Whatever the processes do in real time, simulated time is the same to the last digit."""
    found = []
    for _ in range(2):
        torch.cuda.synchronize()
        dist.barrier()
        begun = installed().now()
        model = DistributedDataParallel(nn.Linear(512, 512).cuda(), device_ids=[rank], bucket_cap_mb=0.5)
        for _ in range(3):
            dawdle()
            model(torch.randn(8, 512).cuda()).sum().backward()
        torch.cuda.synchronize()
        dist.barrier()
        found.append(round((installed().now() - begun) * 1e12))
    return found


def clocks_meet(rank: int) -> object:
    """The slower rank decides when a barrier ends, on both."""
    if rank == 1:
        time.sleep(0.5)
    dist.barrier()
    return round(installed().now() * 1e12)


def overlap(rank: int) -> object:
    """Seconds in which a collective and a kernel of the same GPU ran at once, and of all collectives."""
    model = DistributedDataParallel(network().cuda(), device_ids=[rank], bucket_cap_mb=5)
    step_seconds(model, BATCH // 2, 1)
    torch.cuda.synchronize()
    timeline = installed().timeline
    timeline.start()
    step_seconds(model, BATCH // 2, 1)
    spans = timeline.stop()
    collectives = [s for s in spans if s.track == f"cuda:{rank} collectives" and "allreduce" in s.name]
    kernels = [s for s in spans if s.track == f"cuda:{rank}" and s.kind == "compute"]
    both = sum(max(0.0, min(a.end, b.end) - max(a.start, b.start)) for a in collectives for b in kernels)
    return [len(collectives), both, sum(s.end - s.start for s in collectives)]


def host_runs_ahead(rank: int) -> object:
    """A collective keeps neither the host nor, until it is waited for, the current stream."""
    tensor = torch.ones(25_000_000, device="cuda")
    torch.cuda.synchronize()
    begun = time.perf_counter()
    work = dist.all_reduce(tensor, async_op=True)
    called = time.perf_counter() - begun
    done_at_once = work.is_completed()
    work.wait()
    waited = time.perf_counter() - begun
    torch.cuda.synchronize()
    finished = time.perf_counter() - begun
    return [called, done_at_once, waited, finished, work.is_completed()]


def decisions(rank: int) -> object:
    """What a script decides by arrives though nothing is computed: objects, and the steps of `join`."""
    names: list = [None, None]
    dist.all_gather_object(names, f"rank {rank}")
    model = DistributedDataParallel(nn.Linear(4, 4).cuda(), device_ids=[rank])
    steps = 0
    with Join([model]):
        for _ in range(3 - rank):
            model(torch.ones(2, 4, device="cuda")).sum().backward()
            steps += 1
    dist.barrier()
    return [names, steps + rank]


CHECKS = [decisions, clocks_meet, host_runs_ahead, data_parallel_step, overlap, repeats]

if __name__ == "__main__":
    wanted = os.environ.get("ONLY", "").split()
    run([check for check in CHECKS if not wanted or check.__name__ in wanted])
