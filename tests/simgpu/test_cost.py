"""What an operator costs a simulated GPU, by its shapes alone, and how that compares with measurements."""

import csv
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
import torchvision
from torch.utils._python_dispatch import TorchDispatchMode

from grader.simgpu import cost, profiles
from grader.simgpu.clock import Clocks

T4 = profiles.load("T4").profile.gpu
FLOPS, BANDWIDTH = 4.5e12, 240e9
aten = torch.ops.aten


def empty(*shape, dtype=torch.float32):
    return torch.empty(shape, dtype=dtype, device="meta")


class Calls(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, out))
        return out


def calls(function, *args):
    with Calls() as mode:
        function(*args)
    return mode.calls


def one(function, *args):
    """The only call that is not free."""
    (call,) = [call for call in calls(function, *args) if not cost.is_free(call[0])]
    return call


def seconds(function, *args, gpu=T4):
    return cost.seconds(*one(function, *args), gpu)


def test_a_large_multiplication_is_bound_by_arithmetic():
    assert seconds(torch.mm, empty(4096, 4096), empty(4096, 4096)) == pytest.approx(2 * 4096**3 / FLOPS)


def test_an_addition_is_bound_by_bytes():
    assert seconds(torch.add, empty(1000, 1000), empty(1000, 1000)) == pytest.approx(3 * 4e6 / BANDWIDTH)


@pytest.mark.parametrize(
    ("function", "reads_and_writes"),
    [
        (lambda x: x.relu_(), 2),
        (lambda x: x.zero_(), 1),
        (lambda x: torch.zeros_like(x), 1),
        (lambda x: x.copy_(x.detach().clone()), None),
        (lambda x: torch._foreach_mul_([x, x], 2.0), 4),
        (lambda x: x.sum(), 1),
    ],
    ids=["in place", "fill", "like", "copy", "foreach", "sum"],
)
def test_bytes_read_and_written(function, reads_and_writes):
    x = empty(1000, 1000)
    call = [call for call in calls(function, x) if not cost.is_free(call[0])][-1]
    assert cost.seconds(*call, T4) == pytest.approx((reads_and_writes or 2) * 4e6 / BANDWIDTH, rel=1e-5)


def test_picking_rows_reads_only_those():
    table, rows = empty(1_000_000, 64), empty(10, dtype=torch.long)
    assert seconds(F.embedding, rows, table) == pytest.approx((2 * 10 * 64 * 4 + 80) / BANDWIDTH)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.view(-1),
        lambda x: x.t(),
        lambda x: x.detach(),
        lambda x: x.split(2),
        lambda x: x.expand(3, 4, 4),
        lambda x: torch.empty_like(x),
    ],
)
def test_views_and_allocations_are_free(function):
    x = empty(4, 4)
    assert all(cost.seconds(*call, T4) == 0.0 for call in calls(function, x))


def convolution(channels, groups, transposed=False):
    kind = torch.nn.ConvTranspose2d if transposed else torch.nn.Conv2d
    layer = kind(channels, channels, 3, padding=1, groups=groups, bias=False).to("meta")
    x = empty(8, channels, 16, 16).requires_grad_()
    return layer, x


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("groups", [1, 4, 64])
def test_the_backward_of_a_convolution_does_twice_the_forward_whatever_the_groups(groups, transposed):
    layer, x = convolution(64, groups, transposed)
    forward = one(layer, x)
    out = layer(x)
    with Calls() as mode:
        out.backward(empty(*out.shape))
    backward = next(call for call in mode.calls if call[0] is aten.convolution_backward.default)
    expected = 2 * 8 * 16 * 16 * 64 * (64 // groups) * 9
    assert cost.flops(*forward) == expected
    assert cost.flops(*backward) == 2 * expected


def test_a_frozen_input_halves_the_backward():
    layer, x = convolution(64, 1)
    out = layer(x.detach())
    with Calls() as mode:
        out.backward(empty(*out.shape))
    backward = next(call for call in mode.calls if call[0] is aten.convolution_backward.default)
    assert cost.flops(*backward) == cost.flops(*one(layer, x))


def test_convolutions_in_groups_use_the_device_less_well():
    whole, x = convolution(256, 1)
    grouped, _ = convolution(256, 32)
    ratio = seconds(grouped, x) / seconds(whole, x)
    assert ratio == pytest.approx(1 / 32 / T4.grouped_share.value)


def test_half_precision_has_a_rate_of_its_own():
    a, b = empty(4096, 4096, dtype=torch.float16), empty(4096, 4096, dtype=torch.float16)
    assert seconds(torch.mm, a, b) == pytest.approx(
        2 * 4096**3 / (T4.achieved_tflops["float16"].value * 1e12)
    )


def test_bfloat16_is_computed_as_float32_where_the_gpu_lacks_it():
    a, b = empty(4096, 4096, dtype=torch.bfloat16), empty(4096, 4096, dtype=torch.bfloat16)
    assert seconds(torch.mm, a, b) == pytest.approx(2 * 4096**3 / FLOPS)
    assert seconds(torch.mm, a, b, gpu=profiles.load("A100").profile.gpu) < 2 * 4096**3 / 50e12


def test_tf32_serves_convolutions_only():
    a100 = profiles.load("A100").profile.gpu
    layer, x = convolution(512, 1)
    call = one(layer, x)
    assert cost.seconds(*call, a100) < cost.flops(*call) / 50e12
    assert seconds(torch.mm, empty(4096, 4096), empty(4096, 4096), gpu=a100) > 2 * 4096**3 / 19.5e12


def test_attention_counts_under_the_names_of_both_devices():
    q = torch.zeros(2, 4, 128, 32)
    call = next(c for c in calls(F.scaled_dot_product_attention, q, q, q) if cost.flops(*c))
    assert cost.flops(*call) == 2 * 2 * 2 * 4 * 128 * 128 * 32


def test_values_and_their_device_do_not_matter():
    shapes = (64, 32), (32, 16)
    assert seconds(torch.mm, *(torch.ones(s) for s in shapes)) == seconds(
        torch.mm, *(empty(*s) for s in shapes)
    )


# ---- measured training steps, which lie beside the project where they are to be had ----

MEASURED = Path(__file__).parents[3] / "shared" / "scaling" / "dataparallel_training.csv"
MACHINES = {
    "GeForce RTX 2080 Ti": "RTX2080Ti",
    "TITAN RTX": "TITANRTX",
    "TITAN Xp": "TITANXp",
    "A100-SXM4-40GB": "A100",
}
NETWORKS = ("vgg11", "resnet34", "mnasnet1_0")
BATCH = 12  # images of 224 x 224 for each GPU


def measured():
    if not MEASURED.is_file():
        pytest.skip(f"the measured training steps are not there: {MEASURED.name}")
    with MEASURED.open(encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if row["dtype"] == "float" and row["model"] in NETWORKS]


@pytest.fixture(scope="module")
def steps():
    """Of each network: its calls (forward, backward), its modules, its parameters in bytes."""
    found = {}
    for name in NETWORKS:
        with torch.device("meta"):
            network = getattr(torchvision.models, name)()
        images, targets = empty(BATCH, 3, 224, 224), empty(BATCH, dtype=torch.long)
        with Calls() as forward:
            loss = F.cross_entropy(network(images), targets)
        backward = calls(loss.backward)
        parameters = sum(p.numel() * 4 for p in network.parameters())
        found[name] = (forward.calls, backward, len(list(network.modules())), parameters)
    return found


def simulated(profile, count, forward, backward, modules, parameters):
    """Seconds of one nn.DataParallel step at BATCH images for each of `count` devices."""
    clocks = Clocks(profile, count)
    if count > 1:
        clocks.broadcast(range(count), parameters)
        clocks.replica(modules * count)
    for phase, step in (("forward", forward), ("backward", backward)):
        workers = [clocks.fork() for _ in range(count)]
        for device, worker in enumerate(workers):
            with clocks.worker(worker):
                for call in step:
                    if not cost.is_free(call[0]):
                        clocks.launch(device, cost.seconds(*call, profile.gpu), "", phase)
        for worker in workers:
            clocks.join(worker)
    if count > 1:
        clocks.reduce(range(count), parameters)
    return clocks.wait()


@pytest.mark.parametrize("machine", MACHINES)
def test_measured_steps(machine, steps):
    profile = profiles.load(MACHINES[machine]).profile
    rows = [row for row in measured() if row["machine"] == machine]
    for row in rows:
        # Three 2080 Ti and four TITAN Xp stand apart in the measurements, as their profiles say.
        for count in (1, 2, 3 if machine == "TITAN Xp" else 4):
            real = float(row[f"t{count}_ms"]) * 1e-3
            assert simulated(profile, count, *steps[row["model"]]) == pytest.approx(real, rel=0.25)


@pytest.mark.parametrize(("machine", "gains"), [("RTX2080Ti", False), ("TITANRTX", False), ("A100", True)])
def test_the_widest_network_gets_slower_on_pcie_and_faster_on_nvswitch(machine, gains, steps):
    profile = profiles.load(machine).profile
    speedup = 2 * simulated(profile, 1, *steps["vgg11"]) / simulated(profile, 2, *steps["vgg11"])
    assert (speedup > 1.3) if gains else (speedup < 0.8)


def test_many_small_modules_lose_what_wide_ones_gain_on_nvswitch(steps):
    profile = profiles.load("A100").profile
    speedup = {
        name: 2 * simulated(profile, 1, *steps[name]) / simulated(profile, 2, *steps[name])
        for name in ("vgg11", "mnasnet1_0")
    }
    assert speedup["mnasnet1_0"] < 1.1 < speedup["vgg11"]
