"""How long a simulated ResNet-50 training step takes without arithmetic, beside the real step on this CPU.

And how much memory it needs as the batch grows.

    python benchmarks/no_math.py                # the real step at batch 4, scaled to 128 images
    python benchmarks/no_math.py --real 128     # the whole real step; it takes minutes and gigabytes

Images have 224 x 224 pixels. Each figure of memory is the peak of a process of its own.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # simulated GPUs only, whatever this computer has
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH")])
)
BATCH, BATCHES = 128, (8, 128, 512)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--real", type=int, default=4, help="images of the real step (4)")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        worker(*arguments.worker)
        return
    real, _ = run("real", arguments.real)
    scaled = real * BATCH / arguments.real
    how = "" if arguments.real == BATCH else f", scaled from the {real:.1f} s of {arguments.real} images"
    simulated, _ = run("simulated", BATCH)
    print(f"real step of {BATCH} images on this CPU: {scaled:.1f} s{how}")
    print(f"simulated without arithmetic: {simulated:.2f} s, {scaled / simulated:.0f} times faster")
    for batch in BATCHES:
        print(f"peak memory of the process at batch {batch:3}: {run('simulated', batch)[1]:.0f} MB")


def run(kind: str, batch: int) -> tuple[float, float]:
    """Median seconds of a step, and the peak memory in megabytes, of a fresh process."""
    command = [sys.executable, __file__, "--worker", kind, str(batch)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds, megabytes = done.stdout.split()[-2:]
    return float(seconds), float(megabytes)


def worker(kind: str, batch: str) -> None:
    """Take a few steps and print their median time and the peak memory."""
    import torch
    import torch.nn.functional as F
    import torchvision

    from grader import simgpu

    def steps(device: str, count: int) -> list[float]:
        net = torchvision.models.resnet50().to(device)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        took = []
        for _ in range(count):
            with simgpu.unobserved():
                start = time.perf_counter()
            images = torch.empty(int(batch), 3, 224, 224, device=device)
            targets = torch.zeros(int(batch), dtype=torch.long, device=device)
            optimizer.zero_grad()
            F.cross_entropy(net(images), targets).backward()
            optimizer.step()
            with simgpu.unobserved():
                took.append(time.perf_counter() - start)
        return took

    if kind == "real":
        took = steps("cpu", 2)
    else:
        with simgpu.simulate("1xA100-80GB", math=False):
            took = steps("cuda", 6)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(statistics.median(took[1:]), peak)


if __name__ == "__main__":
    main()
