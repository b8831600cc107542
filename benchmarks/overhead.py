"""What the simulation adds to a training step: the exercise's network with it and without it, in turns.

Each repeat takes one plain step and one step under the simulation (one simulated GPU, arithmetic on the CPU),
in one process, so that both see the same machine. Prints medians, and the median and spread of the ratios
of neighbouring steps. A second line repeats it for two simulated GPUs under nn.DataParallel.

    python benchmarks/overhead.py [repeats]
"""

from __future__ import annotations

import importlib.util
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from grader import simgpu

EXERCISE = Path(__file__).resolve().parents[1] / "exercises" / "dataparallel"
ROWS = 512


def main() -> None:
    """Measure and print."""
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    compare("one simulated T4", "1xT4", lambda model: model, repeats)
    compare("two simulated T4, nn.DataParallel", "2xT4", nn.DataParallel, repeats)


def compare(title: str, gpus: str, wrap: Callable[[nn.Module], nn.Module], repeats: int) -> None:
    """Alternate plain and simulated steps and print what the simulation costs."""
    plain_step = training_step("cpu", lambda model: model)
    machine = simgpu.Machine(gpus)
    machine.install()
    simulated_step = training_step("cuda:0", wrap)
    machine.uninstall()
    plain, simulated = [], []
    for repeat in range(repeats + 2):  # two warm-ups
        plain.append(seconds(plain_step))
        machine.install()
        with simgpu.unobserved():
            start = time.perf_counter()
        simulated_step()
        with simgpu.unobserved():
            simulated.append(time.perf_counter() - start)
        machine.uninstall()
        if repeat == 1:
            plain.clear()
            simulated.clear()
    ratios = sorted(s / p for s, p in zip(simulated, plain, strict=True))
    quarter = len(ratios) // 4
    print(
        f"{title}: plain {1e3 * statistics.median(plain):.0f} ms, "
        f"simulated {1e3 * statistics.median(simulated):.0f} ms, "
        f"median ratio of {len(ratios)} pairs {statistics.median(ratios):.3f} "
        f"(middle half {ratios[quarter]:.3f} to {ratios[-1 - quarter]:.3f})",
        flush=True,
    )


def training_step(device: str, wrap: Callable[[nn.Module], nn.Module]) -> Callable[[], None]:
    """Return one training step of the exercise's network, as its baseline takes it."""
    model = wrap(network().to(device))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    images = torch.randn(ROWS, 1, 28, 28)
    targets = torch.randint(10, (ROWS,))

    def step() -> None:
        x, y = images.to(device), targets.to(device)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        loss.item()

    return step


def network() -> nn.Module:
    """The network of the baseline."""
    sys.path.insert(0, str(EXERCISE))
    specification = importlib.util.spec_from_file_location("baseline", EXERCISE / "baseline.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module.Net()


def seconds(step: Callable[[], None]) -> float:
    """Seconds of one plain step."""
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
