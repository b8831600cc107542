"""Starts processes in every way that Python has; says what each of them sees, as JSON."""

import json
import os
import subprocess
import sys
import time

import torch
import torch.multiprocessing as multiprocessing
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    """Eight rows, made on the CPU or, which forked workers cannot do, on a GPU."""

    def __init__(self, device="cpu"):
        self.device = device

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.full((2,), float(index), device=self.device)


def compute(queue, device):
    """Compute on a GPU, if this process may."""
    try:
        answer = torch.ones(2, device=device).add(1).tolist()
    except RuntimeError as error:
        answer = str(error)
    queue.put([answer, torch.cuda._is_in_bad_fork()])


def started(method, device):
    """What a process that multiprocessing starts answers."""
    context = multiprocessing.get_context(method)
    queue = context.SimpleQueue()
    process = context.Process(target=compute, args=(queue, device))
    process.start()
    answer = queue.get()
    process.join(60)
    return [*answer, process.exitcode]


def rank(index, queue, shared):
    """Say what is here, and change a tensor that the parent sees, too."""
    shared.data.add_(index + 1)
    queue.put([str(shared.device), type(shared).__name__, torch.cuda.device_count()])


def spawned():
    """What a process of mp.spawn answers."""
    queue = multiprocessing.get_context("spawn").SimpleQueue()
    shared = torch.nn.Parameter(torch.zeros(3, device="cuda:1"))
    multiprocessing.spawn(rank, (queue, shared), nprocs=1)
    return [*queue.get(), shared.tolist()]


def python(code, **variables):
    """What another Python prints."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **variables} if variables else None,
        capture_output=True,
    )
    return done.stdout.decode().split()


def loaded(method, workers=2):
    """The first column of a DataLoader's batches, and whether they are pinned."""
    loader = DataLoader(Rows(), 4, num_workers=workers, pin_memory=True, multiprocessing_context=method)
    return [[batch[:, 0].cuda(non_blocking=True).tolist(), batch.is_pinned()] for batch in loader]


def refused():
    """What becomes of a data set that uses a GPU in a forked worker."""
    try:
        return len(list(DataLoader(Rows("cuda"), num_workers=1, multiprocessing_context="fork")))
    except RuntimeError as error:
        return str(error)


IDLE = (
    "import sys; print('torch' in sys.modules, 'pydantic' in sys.modules, sys.own_sitecustomize, *sys.path)"
)
COUNT = """
from time import perf_counter, sleep
import torch
sleep(500)
print(torch.cuda.device_count(), perf_counter() > 500)
"""


def main():
    """All of it."""
    seen = {"fork before CUDA is initialized": started("fork", "cuda:1")}
    before = time.time()
    torch.ones(1, device="cuda:1")
    seen |= {
        "fork after CUDA is initialized": started("fork", "cuda:1"),
        "fork, loaded": loaded("fork"),
        "fork, refused": refused(),
        "spawn, loaded": loaded("spawn", 1),
        "spawned": spawned(),
        "subprocess": python(COUNT),
        "subprocess with one visible": python(COUNT, CUDA_VISIBLE_DEVICES="1"),
        "without torch": python(IDLE),
        "seconds": time.time() - before,
    }
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
