"""What the simulation adds to training: the same step plain, under a mode that does nothing, and simulated.

Each workload is measured in turns in one process, so that all see the same machine: a ResNet-18 at batch 32
and 64 x 64 pixels, a 50-layer MLP of tiny matrices (nothing but dispatch), a single add, and the exercise's
network, which is also run under nn.DataParallel on two simulated GPUs. Beside each stand torch's own
FlopCounterMode and an empty TorchDispatchMode: what any tool of this kind costs at least. Prints the median
of the times, and the median of the ratios of neighbouring runs with their middle half.

    python benchmarks/overhead.py [repeats]
"""

from __future__ import annotations

import importlib.util
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode
from torchvision.models import resnet18

from grader import simgpu

EXERCISE = Path(__file__).resolve().parents[1] / "exercises" / "dataparallel"
ROWS = 512

Step = Callable[[], None]


class Empty(TorchDispatchMode):
    """Does nothing but be there."""

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def main() -> None:
    """Measure and print."""
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    compare("ResNet-18, batch 32, 64x64", resnet_step, 1, repeats)
    compare("50-layer MLP, tiny matrices", mlp_step, 20, repeats)
    compare("one add", add_step, 5000, repeats)
    compare("the exercise's network", lambda device: training_step(device, lambda model: model), 1, repeats)
    compare(
        "the same, two simulated T4, nn.DataParallel",
        lambda device: training_step(device, nn.DataParallel if device != "cpu" else lambda model: model),
        1,
        repeats,
    )


def compare(title: str, make: Callable[[str], Step], times: int, repeats: int) -> None:
    """Alternate the ways to run `times` steps and print what each costs beside the plain one."""
    plain = make("cpu")
    machine = simgpu.Machine("2xT4")
    machine.install()
    simulated = make("cuda:0")
    machine.uninstall()

    ways: dict[str, Callable[[], float]] = {
        "plain": lambda: seconds(plain, times),
        "empty mode": lambda: under(Empty(), plain, times),
        "FlopCounterMode": lambda: under(FlopCounterMode(display=False), plain, times),
        "simulated": lambda: observed(machine, simulated, times),
    }
    taken: dict[str, list[float]] = {way: [] for way in ways}
    for repeat in range(repeats + 2):  # two warm-ups
        for way, run in ways.items():
            duration = run()
            if repeat >= 2:
                taken[way].append(duration / times)
    print(f"{title}: plain {readable(statistics.median(taken['plain']))}")
    for way in list(ways)[1:]:
        ratios = sorted(s / p for s, p in zip(taken[way], taken["plain"], strict=True))
        quarter = len(ratios) // 4
        print(
            f"  {way:16} {readable(statistics.median(taken[way])):>9}, "
            f"{statistics.median(ratios):6.2f} times plain "
            f"(middle half {ratios[quarter]:.2f} to {ratios[-1 - quarter]:.2f})",
            flush=True,
        )


def under(mode: Any, step: Step, times: int) -> float:
    """Seconds of the plain steps under a dispatch mode."""
    with mode:
        return seconds(step, times)


def observed(machine: simgpu.Machine, step: Step, times: int) -> float:
    """Real seconds of the simulated steps; installing and removing the machine is not counted."""
    machine.install()
    try:
        with simgpu.unobserved():
            start = time.perf_counter()
        for _ in range(times):
            step()
        with simgpu.unobserved():
            return time.perf_counter() - start
    finally:
        machine.uninstall()


def readable(duration: float) -> str:
    """Seconds with a fitting unit."""
    return f"{duration * 1e6:.1f} us" if duration < 1e-3 else f"{duration * 1e3:.1f} ms"


def resnet_step(device: str) -> Step:
    """A training step of a ResNet-18."""
    model = resnet18(num_classes=10).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    images, targets = torch.randn(32, 3, 64, 64).to(device), torch.randint(10, (32,)).to(device)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(images), targets).backward()
        optimizer.step()

    return step


def mlp_step(device: str) -> Step:
    """A training step of 50 layers that have next to nothing to compute."""
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(50))).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.ones(4, 8).to(device)

    def step() -> None:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    return step


def add_step(device: str) -> Step:
    """One addition."""
    x = torch.ones(4).to(device)

    def step() -> None:
        x + x  # noqa: B018

    return step


def training_step(device: str, wrap: Callable[[nn.Module], nn.Module]) -> Step:
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


def seconds(step: Step, times: int) -> float:
    """Real seconds of so many steps."""
    start = time.perf_counter()
    for _ in range(times):
        step()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
