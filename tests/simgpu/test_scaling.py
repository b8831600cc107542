"""Believable scaling: orders that real machines show, and measured steps where they are to be had."""

import csv
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
import torchvision
from torch import nn

from grader import simgpu

BATCH = 12  # images of 224 x 224 for each GPU
MEASURED = Path(__file__).parents[3] / "shared" / "scaling" / "dataparallel_training.csv"
MACHINES = {
    "GeForce RTX 2080 Ti": "RTX2080Ti",
    "TITAN RTX": "TITANRTX",
    "TITAN Xp": "TITANXp",
    "A100-SXM4-40GB": "A100",
}


def step(spec, model, gpus, batch=None, ranges=False):
    """Simulated seconds of a training step: low, expected, high."""
    with torch.device("meta"):
        net = getattr(torchvision.models, model)()
    machine = simgpu.Machine(f"{gpus}x{spec}", math=False, ranges=ranges)
    machine.install()
    try:
        net = net.to_empty(device="cuda")
        net = nn.DataParallel(net) if gpus > 1 else net
        batch = batch or BATCH * gpus
        images, targets = torch.empty(batch, 3, 224, 224), torch.zeros(batch, dtype=torch.long)
        machine.synchronize()
        begin = machine.clocks.now_range()
        F.cross_entropy(net(images.cuda()), targets.cuda()).backward()
        machine.synchronize()
        return [end - start for start, end in zip(begin, machine.clocks.now_range(), strict=True)]
    finally:
        machine.uninstall()


def speedup(spec, model):
    return 2 * step(spec, model, 1)[1] / step(spec, model, 2)[1]


@pytest.mark.parametrize("spec", ["RTX2080Ti", "TITANRTX"])
def test_the_widest_network_gets_slower_on_pcie(spec):
    assert speedup(spec, "vgg11") < 0.8


def test_on_nvswitch_wide_networks_gain_what_many_small_modules_do_not():
    wide, many = speedup("A100", "vgg11"), speedup("A100", "mobilenet_v2")
    assert many < 1.15 < 1.3 < wide < 2


def test_on_pcie_it_is_the_reverse():
    assert speedup("TITANRTX", "vgg11") < speedup("TITANRTX", "mobilenet_v2")


def test_dataparallel_never_reaches_as_many_times_one_gpu():
    one = step("A100", "resnet34", 1, batch=BATCH)[1]
    for gpus in (2, 4):
        assert step("A100", "resnet34", gpus)[1] > one


def test_a_prediction_carries_its_range():
    low, value, high = step("TITANRTX", "squeezenet1_0", 2, ranges=True)
    assert low < value < high
    assert high / low < 2


@pytest.mark.parametrize("machine", MACHINES)
def test_measured_steps(machine):
    if not MEASURED.is_file():
        pytest.skip(f"the measured training steps are not there: {MEASURED.name}")
    with MEASURED.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["machine"] == machine and row["dtype"] == "float"]
    for row in rows:
        if row["model"] in ("vgg11", "squeezenet1_0", "mnasnet1_0"):
            for gpus in (1, 2):
                real = float(row[f"t{gpus}_ms"]) * 1e-3
                assert step(MACHINES[machine], row["model"], gpus)[1] == pytest.approx(real, rel=0.25)
