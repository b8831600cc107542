"""Predict the steps of nn.DataParallel that were measured on four machines, and print both side by side.

    python benchmarks/scaling.py                          # 16 networks, both types, 1 to 4 GPUs; minutes
    python benchmarks/scaling.py --models vgg11,resnet34  # some of them, with the same constants
    python benchmarks/scaling.py --svg docs/simgpu-scaling.svg

Every prediction is a run of the unmodified torchvision network under the simulator, without arithmetic: 12
images of 224 x 224 for each GPU, copied to the device, forward, loss, backward, as it was measured. Its
constants are those of the machine's profile, one set for all networks. The range comes from the profile's
ranges for the host. The measurements are looked for in ../shared/scaling, or in the folder that
SIMGPU_MEASURED names.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import NamedTuple

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # simulated GPUs only, whatever this computer has

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from steps import BATCH, SIZE, Row, measured, vision  # noqa: E402
from tables import coverage, facts, medians, plot  # noqa: E402
from torch import nn  # noqa: E402

from grader import simgpu  # noqa: E402


class Predicted(NamedTuple):
    """Simulated seconds of a step, with the low and the high ends of the host's figures around them."""

    low: float
    seconds: float
    high: float


def simulate(
    profile: str, model: str, dtype: str, gpus: int, batch: int = BATCH, size: int = SIZE
) -> Predicted:
    """Run one training step on `gpus` simulated GPUs, `batch` images for each."""
    with torch.device("meta"):  # values of weights take long to draw, and nothing follows from them
        net: nn.Module = vision(model).to(getattr(torch, dtype))
    machine = simgpu.Machine(f"{gpus}x{profile}", math=False, ranges=True)
    machine.install()
    try:
        net = net.to_empty(device="cuda")
        if gpus > 1:
            net = nn.DataParallel(net)
        images = torch.empty(batch * gpus, 3, size, size, dtype=getattr(torch, dtype))
        targets = torch.zeros(batch * gpus, dtype=torch.long)
        machine.synchronize()
        begin = machine.clocks.now_range()
        F.cross_entropy(net(images.cuda()), targets.cuda()).backward()
        machine.synchronize()
        return Predicted(*(end - start for start, end in zip(begin, machine.clocks.now_range(), strict=True)))
    finally:
        machine.uninstall()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--models", help="names of networks, with commas between (all that were measured)")
    parser.add_argument("--machines", help="names of profiles, with commas between (all four)")
    parser.add_argument("--svg", type=Path, help="write a plot of predicted over measured times to this file")
    arguments = parser.parse_args()
    rows = [
        row
        for row in measured()
        if (arguments.models is None or row.model in arguments.models.split(","))
        and (arguments.machines is None or row.profile in arguments.machines.split(","))
    ]
    print("Milliseconds of a step, measured and simulated, with the range of plausible hosts:\n")
    predicted: dict[Row, Predicted] = {}
    for row in rows:
        found = predicted[row] = simulate(*row[:4])
        low, value, high = (1e3 * seconds for seconds in found)
        apart = "  not in the fit" if row.apart else ""
        error = value / (1e3 * row.seconds) - 1
        print(
            f"{row.gpus} {row.profile:10}{row.dtype:6}{row.model:20} measured {1e3 * row.seconds:7.1f}  "
            f"simulated {value:7.1f} ({low:5.1f} to {high:6.1f})  {error:+5.0%}{apart}",
            flush=True,
        )
    values = {row: found.seconds for row, found in predicted.items()}
    medians("Simulated steps", values)
    coverage({row: (found.low, found.high) for row, found in predicted.items()})
    facts(values)
    if arguments.svg is not None:
        arguments.svg.write_text(plot(values), encoding="utf-8")


if __name__ == "__main__":
    main()
