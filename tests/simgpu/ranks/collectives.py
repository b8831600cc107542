"""Every collective of torch.distributed on CUDA tensors, values and places."""

from __future__ import annotations

import torch
import torch.distributed as dist

from tests.simgpu.ranks.harness import run

SIZE = 2
OPS = {"SUM": 3.0, "AVG": 1.5, "PRODUCT": 2.0, "MIN": 1.0, "MAX": 2.0}


def full(value: float, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.full(shape or (3,), value, dtype=dtype, device="cuda")


def seen(*tensors: torch.Tensor) -> list:
    """What a test compares: values and devices."""
    return [[tensor.flatten().tolist(), str(tensor.device)] for tensor in tensors]


def all_reduce(rank: int) -> object:
    found = {}
    for dtype in (
        torch.float32,
        torch.float64,
        torch.float16,
        torch.bfloat16,
        torch.int32,
        torch.int64,
        torch.uint8,
    ):
        for name in OPS:
            tensor = full(rank + 1, dtype=dtype)
            dist.all_reduce(tensor, op=getattr(dist.ReduceOp, name))
            found[f"{name} {dtype}"] = tensor.tolist()
    return found


def all_reduce_of_odd_kinds(rank: int) -> object:
    flags = torch.tensor([rank == 0, False, True], device="cuda")
    dist.all_reduce(flags)
    number = torch.tensor([1 + rank * 1j], device="cuda")
    dist.all_reduce(number)
    scaled = full(rank + 1)
    dist.all_reduce(scaled, op=dist._make_nccl_premul_sum(0.5))
    image = torch.arange(8.0, device="cuda").view(1, 2, 2, 2).to(memory_format=torch.channels_last)
    dist.all_reduce(image)
    empty = torch.empty(0, device="cuda")
    dist.all_reduce(empty)
    largest = full(60000.0, dtype=torch.float16)
    dist.all_reduce(largest, op=dist.ReduceOp.AVG)
    return {
        "bool": flags.tolist(),
        "complex": [number[0].item().real, number[0].item().imag],
        "scaled": scaled.tolist(),
        "channels_last": image.flatten().tolist(),
        "averaged half": largest.tolist(),
    }


def broadcast_and_reduce(rank: int) -> object:
    sent = full(rank + 1)
    dist.broadcast(sent, src=1)
    reduced = full(rank + 1)
    dist.reduce(reduced, dst=1)
    leaf = torch.nn.Parameter(full(rank + 1))
    dist.broadcast(leaf, 0)
    return seen(sent, reduced, leaf)


def gathering(rank: int) -> object:
    parts = [full(0.0, 1 + r) for r in range(SIZE)]
    dist.all_gather(parts, full(rank + 1, 1 + rank))
    whole = full(0.0, 4)
    dist.all_gather_into_tensor(whole, full(rank + 1, 2))
    at_root = [full(0.0) for _ in range(SIZE)] if rank == 0 else None
    dist.gather(full(rank + 1), at_root, dst=0)
    mine = full(0.0)
    dist.scatter(mine, [full(7.0), full(8.0)] if rank == 0 else None, src=0)
    return seen(*parts, whole, mine, *(at_root or []))


def scattered_sums(rank: int) -> object:
    mine = full(0.0, 2)
    dist.reduce_scatter(mine, [full(rank + 1, 2), full(10 * (rank + 1), 2)])
    row = full(0.0, 2)
    dist.reduce_scatter_tensor(row, torch.arange(4.0, device="cuda"), op=dist.ReduceOp.AVG)
    return seen(mine, row)


def all_to_all(rank: int) -> object:
    out = [full(0.0, 1 + rank), full(0.0, 1 + rank)]
    dist.all_to_all(out, [full(10 * rank, 1), full(10 * rank + 1, 2)])
    even = full(0.0, 4)
    dist.all_to_all_single(even, torch.arange(4.0, device="cuda") + 10 * rank)
    sizes = [1, 3] if rank == 0 else [2, 2]
    received = [1, 2] if rank == 0 else [3, 2]
    uneven = full(0.0, sum(received), 2)
    dist.all_to_all_single(uneven, full(rank, 4, 2), received, sizes)
    return seen(*out, even, uneven)


def point_to_point(rank: int) -> object:
    tensor = full(5.0) if rank == 0 else full(0.0)
    source = None
    if rank == 0:
        dist.send(tensor, 1)
    else:
        source = dist.recv(tensor, 0)
    answer = full(rank + 1)
    work = dist.isend(answer, 0) if rank == 1 else dist.irecv(answer, 1)
    work.wait()
    left = full(0.0)
    operations = [
        dist.P2POp(dist.isend, full(rank + 20), 1 - rank),
        dist.P2POp(dist.irecv, left, 1 - rank),
    ]
    for request in dist.batch_isend_irecv(operations):
        request.wait()
    return [*seen(tensor, answer, left), source]


def objects(rank: int) -> object:
    everything: list = [None] * SIZE
    dist.all_gather_object(everything, {"rank": rank})
    told = [{"seed": 5}, "x"] if rank == 0 else [None, None]
    dist.broadcast_object_list(told, src=0)
    gathered: list | None = [None] * SIZE if rank == 0 else None
    dist.gather_object(f"from {rank}", gathered, dst=0)
    mine: list = [None]
    dist.scatter_object_list(mine, ["a", "b"] if rank == 0 else None, src=0)
    return [everything, told, gathered, mine]


def asynchronous(rank: int) -> object:
    tensor = full(rank + 1)
    work = dist.all_reduce(tensor, async_op=True)
    work.wait()
    future = dist.all_reduce(tensor, async_op=True).get_future().then(lambda done: done.value()[0] * 2)
    return [*seen(tensor, future.wait()), work.is_completed() in (True, False)]


def groups(rank: int) -> object:
    everyone, alone = dist.new_group([0, 1]), [dist.new_group([0]), dist.new_group([1])]
    tensor = full(rank + 1)
    dist.all_reduce(tensor, group=everyone)
    own = full(rank + 1)
    dist.all_reduce(own, group=alone[rank])
    facts = [dist.get_backend(everyone), dist.get_world_size(alone[rank]), dist.get_rank(alone[1 - rank])]
    dist.destroy_process_group(everyone)
    return [*seen(tensor, own), facts]


def coalesced(rank: int) -> object:
    first, second = full(rank + 1), full(2.0 * rank)
    with dist._coalescing_manager(async_ops=True) as manager:
        dist.all_reduce(first)
        dist.all_reduce(second)
    manager.wait()
    return seen(first, second)


def barrier(rank: int) -> object:
    if rank == 1:
        for _ in range(20):
            full(1.0, 1000, 1000).mm(full(1.0, 1000, 1000))
    dist.barrier()
    import time

    return time.perf_counter() > 0.005


def about_the_group(rank: int) -> object:
    return [
        dist.get_backend(),
        dist.is_nccl_available(),
        dist.get_world_size(),
        len(torch.cuda.nccl.version()),
    ]


def refused(rank: int) -> object:
    """What NCCL refuses is refused before anybody waits for anybody."""
    attempts = {
        "cpu": lambda: dist.all_reduce(torch.ones(2)),
        "mixed": lambda: dist.all_gather([full(1.0), torch.ones(3)], full(1.0)),
        "two devices": lambda: dist.all_gather(
            [full(1.0), torch.ones(3, device=f"cuda:{1 - rank}")], full(1.0)
        ),
        "short": lambda: dist.all_reduce(torch.ones(2, dtype=torch.int16, device="cuda")),
        "gaps": lambda: dist.all_reduce(torch.ones(4, 4, device="cuda")[:, ::2]),
        "band": lambda: dist.all_reduce(
            torch.ones(2, dtype=torch.int32, device="cuda"), op=dist.ReduceOp.BAND
        ),
        "any source": lambda: dist.recv(full(1.0)),
        "size": lambda: dist.all_gather_into_tensor(full(0.0), full(1.0)),
        "sparse": lambda: dist.all_reduce(torch.eye(2).to_sparse().cuda()),
    }
    found = {}
    for name, attempt in attempts.items():
        try:
            attempt()
            found[name] = "nothing"
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}".splitlines()[0]
    return found


CHECKS = [
    about_the_group, all_reduce, all_reduce_of_odd_kinds, broadcast_and_reduce, gathering, scattered_sums,
    all_to_all, point_to_point, objects, asynchronous, groups, coalesced, barrier, refused,
]  # fmt: skip

if __name__ == "__main__":
    run(CHECKS)
