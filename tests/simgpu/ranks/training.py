"""DistributedDataParallel in two ranks, compared with one process that sees the batches of both."""

from __future__ import annotations

import gc
import io
import os
import warnings
from collections.abc import Callable
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from tests.simgpu.ranks.harness import run

BATCH = 8


class Net(nn.Module):
    """Two convolutions and a head; `unused` has parameters that no forward touches."""

    def __init__(self, unused: bool = False, norm: type[nn.Module] = nn.Identity) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3), norm(4), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.Flatten())
        self.head = nn.Linear(4 * 4 * 4, 3)
        if unused:
            self.spare = nn.Linear(5, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


def data(steps: int = 3) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(3)
    return [
        (torch.randn(BATCH, 1, 8, 8, generator=generator), torch.randint(3, (BATCH,), generator=generator))
        for _ in range(steps)
    ]


def train(model: nn.Module, rank: int | None, steps: int = 3) -> list[torch.Tensor]:
    """The weights after some steps; on a rank's half of each batch, or with None on all of it on the CPU."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for x, y in data(steps):
        if rank is not None:
            x, y = x.chunk(2)[rank].cuda(), y.chunk(2)[rank].cuda()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return [parameter.detach().cpu() for parameter in model.parameters()]


def fresh(**how: object) -> Net:
    torch.manual_seed(1)
    return Net(**how)


def difference(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> float:
    return max((a - b).abs().max().item() for a, b in zip(ours, theirs, strict=True))


def against_one_process(rank: int, net: dict | None = None, **how: object) -> float:
    expected = train(fresh(**(net or {})), None)
    model = DistributedDataParallel(fresh(**(net or {})).cuda(), device_ids=[rank], **how)
    return difference(train(model, rank), expected)


def plain(rank: int) -> object:
    return against_one_process(rank)


def gradient_as_bucket_view(rank: int) -> object:
    return against_one_process(rank, gradient_as_bucket_view=True)


def static_graph(rank: int) -> object:
    return against_one_process(rank, static_graph=True)


def many_buckets(rank: int) -> object:
    return against_one_process(rank, bucket_cap_mb=0.0005)


def find_unused_parameters(rank: int) -> object:
    return against_one_process(rank, {"unused": True}, find_unused_parameters=True)


def no_device_ids(rank: int) -> object:
    expected = train(fresh(), None)
    return difference(train(DistributedDataParallel(fresh().cuda()), rank), expected)


def synchronized_norm(rank: int) -> object:
    expected_model = fresh(norm=nn.BatchNorm2d)
    expected = train(expected_model, None)
    model = nn.SyncBatchNorm.convert_sync_batchnorm(fresh(norm=nn.BatchNorm2d)).cuda()
    found = train(DistributedDataParallel(model, device_ids=[rank]), rank)
    buffers = [[b.detach().cpu().float() for b in m.buffers()] for m in (model, expected_model)]
    return max(difference(found, expected), difference(*buffers))


def starts_from_rank_0(rank: int) -> object:
    torch.manual_seed(100 + rank)
    model = DistributedDataParallel(nn.Linear(3, 3).cuda(), device_ids=[rank])
    weights = [torch.empty_like(model.module.weight) for _ in range(2)]
    dist.all_gather(weights, model.module.weight.detach())
    return torch.equal(*weights)


def no_sync(rank: int) -> object:
    expected = fresh()
    for x, y in data(2):
        nn.functional.cross_entropy(expected(x), y).backward()
    model = DistributedDataParallel(fresh().cuda(), device_ids=[rank])
    apart = []
    for step, (x, y) in enumerate(data(2)):
        with model.no_sync() if step == 0 else nullcontext():
            loss = nn.functional.cross_entropy(model(x.chunk(2)[rank].cuda()), y.chunk(2)[rank].cuda())
            loss.backward()
        first = next(model.parameters()).grad
        both = [torch.empty_like(first) for _ in range(2)]
        dist.all_gather(both, first)
        apart.append(not torch.equal(*both))
    grads = [[p.grad.cpu() for p in m.parameters()] for m in (model, expected)]
    return [apart, difference(*grads)]


def hooks(rank: int) -> object:
    expected = train(fresh(), None)
    found: dict[str, float] = {}
    kinds: dict[str, tuple[object, Callable]] = {
        "allreduce": (None, default_hooks.allreduce_hook),
        "fp16": (None, default_hooks.fp16_compress_hook),
        "bf16": (None, default_hooks.bf16_compress_hook),
    }
    for name, (state, hook) in kinds.items():
        model = DistributedDataParallel(fresh().cuda(), device_ids=[rank])
        model.register_comm_hook(state, hook)
        found[name] = difference(train(model, rank), expected)
    model = DistributedDataParallel(fresh().cuda(), device_ids=[rank])
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    found["powerSGD"] = difference(train(model, rank), expected)
    return found


def mixed_precision(rank: int) -> object:
    model = DistributedDataParallel(fresh().cuda(), device_ids=[rank])
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cuda")
    for x, y in data():
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = nn.functional.cross_entropy(model(x.chunk(2)[rank].cuda()), y.chunk(2)[rank].cuda())
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return difference([p.detach().cpu() for p in model.parameters()], sgd(data()))


def sgd(batches: list) -> list[torch.Tensor]:
    model = fresh()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in batches:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return [p.detach() for p in model.parameters()]


def sampler(rank: int) -> object:
    rows = TensorDataset(torch.arange(10))
    shares = DistributedSampler(rows, shuffle=True, seed=1)
    orders = []
    for epoch in range(2):
        shares.set_epoch(epoch)
        orders.append([int(i) for (batch,) in DataLoader(rows, batch_size=2, sampler=shares) for i in batch])
    everything: list = [None, None]
    dist.all_gather_object(everything, orders)
    return [orders[0] != orders[1], sorted(everything[0][0] + everything[1][0])]


def uneven_inputs(rank: int) -> object:
    """Rank 1 has one batch less: `join` answers for it."""
    model = DistributedDataParallel(fresh().cuda(), device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Join([model]):
        for x, y in data(3 - rank):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x.cuda()), y.cuda()).backward()
            optimizer.step()
    both = [torch.empty_like(model.module.head.weight) for _ in range(2)]
    dist.all_gather(both, model.module.head.weight.detach())
    return torch.allclose(*both)


def unused_parameters(rank: int) -> object:
    model = DistributedDataParallel(fresh(unused=True).cuda(), device_ids=[rank])
    try:
        train(model, rank)
    except RuntimeError as error:
        return str(error)
    return None


def unequal_models(rank: int) -> object:
    torch.manual_seed(0)
    try:
        DistributedDataParallel(nn.Sequential(*(nn.Linear(2, 2) for _ in range(1 + rank))).cuda())
    except RuntimeError as error:
        return str(error)
    return None


def wrong_ids(rank: int) -> object:
    def message(make: Callable[[], object]) -> str:
        try:
            make()
        except (RuntimeError, ValueError) as error:
            return str(error)
        return ""

    frozen = nn.Linear(2, 2).cuda().requires_grad_(False)
    spread = nn.Sequential(nn.Linear(2, 2).to("cuda:0"), nn.Linear(2, 2).to("cuda:1"))
    return [
        message(lambda: DistributedDataParallel(nn.Linear(2, 2), device_ids=[rank])),
        message(lambda: DistributedDataParallel(spread, device_ids=[rank])),
        message(lambda: DistributedDataParallel(frozen, device_ids=[rank])),
        message(lambda: DistributedDataParallel(nn.Linear(2, 2).cuda(), device_ids=[0, 1])),
    ]


def memory(rank: int) -> object:
    """The buckets are as large as the gradients, and live on the device."""
    module = nn.Linear(1000, 1000).cuda()
    gc.collect()  # of what other checks left behind
    before = torch.cuda.memory_allocated()
    model = DistributedDataParallel(module, device_ids=[rank])
    gc.collect()
    taken = torch.cuda.memory_allocated() - before
    del model
    return taken


def checkpoint(rank: int) -> object:
    model = DistributedDataParallel(fresh().cuda(), device_ids=[rank])
    file = io.BytesIO()
    if rank == 0:
        torch.save(model.state_dict(), file)
    told = [file.getvalue()]
    dist.broadcast_object_list(told, src=0)
    dist.barrier()
    state = torch.load(io.BytesIO(told[0]), map_location=f"cuda:{rank}")
    model.load_state_dict(state)
    return sorted({str(value.device) for value in state.values()}), list(state)[0]


def zero_redundancy(rank: int) -> object:
    expected = sgd(data())
    model = DistributedDataParallel(fresh().cuda(), device_ids=[rank])
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.SGD, lr=0.1)
    for x, y in data():
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x.chunk(2)[rank].cuda()), y.chunk(2)[rank].cuda()).backward()
        optimizer.step()
    return difference([p.detach().cpu() for p in model.parameters()], expected)


def refused(rank: int) -> object:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

    messages = []
    for attempt in (
        lambda: FullyShardedDataParallel(nn.Linear(2, 2).cuda()),
        lambda: fully_shard(nn.Linear(2, 2).cuda()),
        lambda: init_device_mesh("cuda", (2,)),
    ):
        try:
            attempt()
            messages.append("nothing")
        except NotImplementedError as error:
            messages.append(str(error))
    return messages


CHECKS = [
    plain, gradient_as_bucket_view, static_graph, many_buckets, find_unused_parameters, no_device_ids,
    synchronized_norm, starts_from_rank_0, no_sync, hooks, mixed_precision, sampler, uneven_inputs,
    unused_parameters, unequal_models, wrong_ids, memory, checkpoint,
    zero_redundancy, refused,
]  # fmt: skip

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    wanted = os.environ.get("ONLY", "").split()
    run([check for check in CHECKS if not wanted or check.__name__ in wanted])
