"""Groups that fail, one after another in the same two ranks: what each rank is told."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from grader import simgpu
from grader.simgpu.ddp import exchange


def duplicate_gpu(rank: int) -> None:
    dist.all_reduce(torch.ones(2, device="cuda:0"))


def only_rank_0(rank: int) -> None:
    """A collective behind `if rank == 0:`; rank 1 reaches the end of its script."""
    dist.barrier()
    if rank == 0:
        dist.all_reduce(torch.ones(2, device="cuda"))


def different_collectives(rank: int) -> None:
    if rank == 0:
        dist.all_reduce(torch.ones(2, device="cuda"))
    else:
        dist.broadcast(torch.ones(2, device="cuda"), 0)


def different_sizes(rank: int) -> None:
    dist.all_reduce(torch.ones(2 + rank, device="cuda"))


def missing_rank(rank: int) -> None:
    if rank == 0:
        dist.all_reduce(torch.ones(2, device="cuda"))
    else:
        with simgpu.unobserved():
            time.sleep(1)


def late_rank(rank: int) -> None:
    dist.barrier()
    missing_rank(rank)


def uneven_inputs(rank: int) -> None:
    model = DistributedDataParallel(nn.Linear(4, 4).cuda(), device_ids=[rank])
    for _ in range(3 - rank):
        model(torch.ones(2, 4, device="cuda")).sum().backward()


def other_device_than_bound(rank: int) -> None:
    dist.all_reduce(torch.ones(2, device=f"cuda:{1 - rank}"))


def send_to_nobody(rank: int) -> None:
    dist.barrier()
    if rank == 0:
        dist.send(torch.ones(2, device="cuda"), 1)


def received_in_another_size(rank: int) -> None:
    if rank == 0:
        dist.send(torch.ones(2, device="cuda"), 1)
    else:
        dist.recv(torch.ones(3, device="cuda"), 0)


def port_in_use(rank: int) -> None:
    if rank == 1:
        return
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        dist.TCPStore("127.0.0.1", port, 2, is_master=True, wait_for_workers=False)


def invalid_ordinal(rank: int) -> None:
    torch.cuda.set_device(2)


CASES: dict[Callable[[int], None], dict] = {
    duplicate_gpu: {},
    only_rank_0: {},
    different_collectives: {},
    different_sizes: {},
    missing_rank: {"timeout": timedelta(seconds=0.5)},
    late_rank: {"timeout": timedelta(seconds=0.5)},
    uneven_inputs: {},
    other_device_than_bound: {"bound": True},
    send_to_nobody: {},
    received_in_another_size: {},
    port_in_use: {},
    invalid_ordinal: {},
}


@contextmanager
def group(
    rank: int, folder: Path, name: str, timeout: timedelta = timedelta(minutes=10), bound: bool = False
):
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    dist.init_process_group(
        "nccl", init_method=f"file://{folder / name}", rank=rank, world_size=2, timeout=timeout,
        device_id=device if bound else None,
    )  # fmt: skip
    try:
        yield
    finally:
        dist.destroy_process_group()


def both_backends(rank: int, folder: Path) -> object:
    """A group that gloo serves for host memory, and one that only a device was named for."""
    device = torch.device("cuda", rank)
    found: list = []
    for name, how in (("cpu:gloo,cuda:nccl", {}), (None, {"device_id": device})):
        path = folder / f"backend {name}"
        dist.init_process_group(name, init_method=f"file://{path}", rank=rank, world_size=2, **how)
        on_gpu, on_host = torch.ones(2, device=device), torch.ones(2)
        dist.all_reduce(on_gpu)
        if name is not None:
            dist.all_reduce(on_host)
        found.append([dist.get_backend(), on_gpu.tolist(), str(on_gpu.device), on_host.tolist()])
        dist.destroy_process_group()
    return found


def together(steps: dist.Store, name: str) -> None:
    """Let both ranks go on at the same real time."""
    steps.add(name, 1)
    while steps.add(name, 0) < 2:
        with simgpu.unobserved():
            time.sleep(0.01)


def main() -> None:
    exchange._GRACE_SECONDS = 0.0  # there is no launcher whose word would come first
    rank, folder = int(os.environ["RANK"]), Path(os.environ["FOLDER"])
    results: dict[str, object] = {}
    steps = dist.FileStore(str(folder / "steps"), 2)
    with simgpu.simulate("2xT4"):
        for case, how in CASES.items():
            if os.environ.get("ONLY", case.__name__) != case.__name__:
                continue
            together(steps, case.__name__)
            begun = time.clock_gettime(time.CLOCK_MONOTONIC)
            try:
                with group(rank, folder, case.__name__, **how):
                    case(rank)
                results[case.__name__] = ["", ""]
            except Exception as error:
                if os.environ.get("ONLY"):
                    traceback.print_exc()
                results[case.__name__] = [type(error).__name__, str(error)]
            results[case.__name__].append(time.clock_gettime(time.CLOCK_MONOTONIC) - begun)
        together(steps, "backends")
        results["both_backends"] = both_backends(rank, folder)
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
