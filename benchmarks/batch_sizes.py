"""Print how long an epoch takes on one simulated GPU and with nn.DataParallel on two, over batch sizes.

    python benchmarks/batch_sizes.py [--gpus 2xT4] [--rows 60000]

The network is that of the DataParallel exercise, at batch sizes 16 to 1024, and a small one, for which
DataParallel does not pay. All figures are simulated. The range is that of the profile: every cost of the
host at the low and at the high end of what is plausible. Batches of one size all take the same simulated
time, so short epochs are run, with the same last batch, and extended to the full number of rows.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # simulated GPUs only, whatever this computer has
ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "exercises" / "dataparallel")]

import baseline  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from ruamel.yaml import YAML  # noqa: E402
from torch import nn  # noqa: E402

from data import initial_weights, load_data  # noqa: E402
from grader import simgpu  # noqa: E402
from grader.simgpu import profiles  # noqa: E402

BATCH_SIZES = (16, 32, 64, 128, 256, 512, 1024)
SMALL_BATCH_SIZE = 64
SHORT = 3  # full batches of the longer of the two epochs that are run


class Small(nn.Module):
    """One 5x5 convolution with 10 channels and a linear layer: the usual first network for digits."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 10, kernel_size=5)
        self.classifier = nn.Linear(10 * 12 * 12, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.classifier(F.max_pool2d(F.relu(self.conv(images)), 2).flatten(1))


class Epochs(NamedTuple):
    """Simulated seconds of one epoch."""

    one: float
    parallel: float

    @property
    def saving(self) -> float:
        """How much less time the epoch takes on all GPUs; negative where it takes more."""
        return 1 - self.parallel / self.one


def hosts(profile: profiles.MachineProfile) -> dict[str, profiles.MachineProfile]:
    """The profile as it is, and with each cost of the host at the low and at the high end of its range."""
    found = {"default": profile}
    for end in ("low", "high"):
        figures = {
            name: value
            for name in type(profile.host).model_fields
            if (value := getattr(getattr(profile.host, name), end)) is not None
        }
        found[end] = profile.with_figures(host=figures)
    return found


@contextmanager
def as_file(profile: profiles.MachineProfile) -> Iterator[str]:
    """The path of a temporary YAML file with this profile."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "profile.yaml"
        YAML().dump(profile.model_dump(mode="json", exclude_none=True), path)
        yield str(path)


def short_epoch(
    network: Callable[[], nn.Module], batch_size: int, rows: int, spec: str, parallel: bool
) -> float:
    """Simulated seconds of the second epoch of the exercise's own training loop."""
    os.environ["EXERCISE_DATA"] = f"synthetic:{rows}"
    with simgpu.simulate(spec, math=False) as machine:
        train_loader, _ = load_data(batch_size)
        device = torch.device("cuda:0")
        model = initial_weights(network()).to(device)
        trained = nn.DataParallel(model) if parallel else model
        optimizer = torch.optim.Adam(model.parameters(), lr=baseline.LEARNING_RATE)
        for _ in range(2):
            start = machine.synchronize()
            baseline.train_one_epoch(trained, train_loader, optimizer, device)
            seconds = machine.synchronize() - start
        return seconds


def epoch(network: Callable[[], nn.Module], batch_size: int, rows: int, spec: str, parallel: bool) -> float:
    """Simulated seconds of an epoch of `rows` images, extended from two short ones."""
    full, rest = divmod(rows, batch_size)
    if full <= SHORT:
        return short_epoch(network, batch_size, rows, spec, parallel)
    shorter, longer = (
        short_epoch(network, batch_size, batches * batch_size + rest, spec, parallel)
        for batches in (SHORT - 1, SHORT)
    )
    return longer + (full - SHORT) * (longer - shorter)


def measure(network: Callable[[], nn.Module], batch_size: int, rows: int, spec: str) -> dict[str, Epochs]:
    """Epochs on the first GPU and on all of `spec`, for the three hosts."""
    count, profile = profiles.load(spec)
    found = {}
    for name, variant in hosts(profile).items():
        with as_file(variant) as path:
            found[name] = Epochs(
                epoch(network, batch_size, rows, f"1x{path}", parallel=False),
                epoch(network, batch_size, rows, f"{count}x{path}", parallel=True),
            )
    return found


def row(label: str, batch_size: int, found: dict[str, Epochs]) -> str:
    """One line of the Markdown table."""
    here = found["default"]
    savings = sorted(epochs.saving for epochs in found.values())
    return (
        f"| {label} | {batch_size} | {here.one:.2f} | {here.parallel:.2f} | {here.one / here.parallel:.2f} | "
        f"{here.saving:.1%} | {savings[0]:.1%} to {savings[-1]:.1%} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--gpus", default="2xT4", help="count and profile of the simulated GPUs (2xT4)")
    parser.add_argument("--rows", type=int, default=60000, help="training images in an epoch (60000)")
    arguments = parser.parse_args()
    count, profile = profiles.load(arguments.gpus)
    print(f"Seconds per epoch of {arguments.rows:,} images, simulated with the profile {profile.name}:\n")
    gpu = profile.name
    print(f"| network | batch | one {gpu} | {count} {gpu} | speed-up | less time | host's range |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for batch_size in BATCH_SIZES:
        found = measure(baseline.Net, batch_size, arguments.rows, arguments.gpus)
        print(row("the exercise's", batch_size, found), flush=True)
    found = measure(Small, SMALL_BATCH_SIZE, arguments.rows, arguments.gpus)
    print(row("small", SMALL_BATCH_SIZE, found))


if __name__ == "__main__":
    main()
