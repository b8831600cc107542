"""What an operator costs a simulated GPU, by its shapes alone."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from grader import simgpu
from grader.simgpu import cost, profiles

T4 = profiles.load("T4").profile.gpu
FLOPS, BANDWIDTH, KERNEL = 4.5e12, 240e9, 5e-6
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
    table, rows = empty(1_000_000, 64), empty(100_000, dtype=torch.long)
    assert seconds(F.embedding, rows, table) == pytest.approx((2 * 64 * 4 + 8) * 100_000 / BANDWIDTH)


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


@pytest.mark.parametrize(("groups", "family"), [(32, "grouped"), (256, "depthwise")])
def test_convolutions_in_groups_have_rates_of_their_own(groups, family):
    layer, _ = convolution(256, groups)
    x = empty(128, 256, 64, 64)
    rate = T4.family_tflops[family]["float32"].value * 1e12
    work = 2 * x.numel() * 256 // groups * 9
    assert seconds(layer, x) == pytest.approx(max(work / rate, 2 * 4 * x.numel() / BANDWIDTH), rel=1e-3)
    assert rate < FLOPS / 4


def test_a_bias_is_added_in_a_pass_of_its_own():
    x = empty(64, 8, 64, 64)
    bare, biased = (torch.nn.Conv2d(8, 32, 1, bias=bias).to("meta") for bias in (False, True))
    more = seconds(biased, x) - seconds(bare, x)
    assert more == pytest.approx(2 * 64 * 32 * 64 * 64 * 4 / BANDWIDTH, rel=1e-3)


def test_a_kernel_takes_its_time_however_little_there_is_to_do():
    assert seconds(torch.add, empty(4), empty(4)) == pytest.approx(KERNEL)
    assert seconds(torch.mm, empty(4, 4), empty(4, 4)) == pytest.approx(KERNEL)
    many = [empty(4) for _ in range(100)]
    (call,) = [c for c in calls(torch._foreach_add_, many, 1.0) if not cost.is_free(c[0])]
    assert cost.seconds(*call, T4) == pytest.approx(3 * KERNEL)


def test_few_results_leave_multiprocessors_idle():
    def reached(rows):
        a, b = empty(rows, 1024), empty(1024, 1024)
        return 2 * rows * 1024 * 1024 / seconds(torch.mm, a, b)

    assert reached(4096) == pytest.approx(FLOPS)
    assert reached(64) == pytest.approx(FLOPS * 16 / 40)  # 16 tiles of 64 x 64 for 40 multiprocessors


def test_half_precision_has_a_rate_of_its_own():
    a, b = empty(4096, 4096, dtype=torch.float16), empty(4096, 4096, dtype=torch.float16)
    assert seconds(torch.mm, a, b) == pytest.approx(
        2 * 4096**3 / (T4.achieved_tflops["float16"].value * 1e12)
    )


def test_bfloat16_is_computed_as_float32_where_the_gpu_lacks_it():
    a, b = empty(4096, 4096, dtype=torch.bfloat16), empty(4096, 4096, dtype=torch.bfloat16)
    assert seconds(torch.mm, a, b) == pytest.approx(2 * 4096**3 / FLOPS)
    assert seconds(torch.mm, a, b, gpu=profiles.load("A100").profile.gpu) < 2 * 4096**3 / 50e12


@pytest.mark.parametrize("name", ["P100", "TITANXp", "RTX2080Ti", "TITANRTX", "RTX8000"])
def test_multiplications_stay_below_the_peak_where_convolutions_do_not(name):
    gpu = profiles.load(name).profile.gpu
    peak = gpu.peak_tflops["float32"].value * 1e12
    layer, _ = convolution(512, 1)
    call = one(layer, empty(64, 512, 64, 64))
    assert peak < cost.flops(*call) / cost.seconds(*call, gpu) < 2.25 * peak
    assert 2 * 4096**3 / seconds(torch.mm, empty(4096, 4096), empty(4096, 4096), gpu=gpu) < 0.9 * peak


def test_a_type_without_a_rate_in_a_family_goes_no_faster_than_the_gpu_can():
    a = empty(4096, 4096, dtype=torch.float64)
    gpu = profiles.load("RTX3090").profile.gpu  # its multiplications have rates of their own, not in float64
    peak = gpu.peak_tflops["float64"].value * 1e12
    assert seconds(torch.mm, a, a, gpu=gpu) >= 2 * 4096**3 / peak


A100 = profiles.load("A100").profile.gpu


@pytest.fixture
def flags():
    """torch's flags for TF32, put back afterwards."""
    convolutions, multiplications = torch.backends.cudnn.conv, torch.backends.cuda.matmul
    before = convolutions.fp32_precision, multiplications.fp32_precision
    yield convolutions, multiplications
    convolutions.fp32_precision, multiplications.fp32_precision = before


def test_tf32_serves_convolutions_unless_told_otherwise(flags):
    layer, _ = convolution(512, 1)
    call = one(layer, empty(64, 512, 32, 32))
    assert cost.seconds(*call, A100) < cost.flops(*call) / 50e12
    flags[0].fp32_precision = "ieee"
    assert cost.seconds(*call, A100) > cost.flops(*call) / 19.5e12


def test_multiplications_use_tf32_only_when_told_to(flags):
    multiplied = 2 * 4096**3
    assert seconds(torch.mm, empty(4096, 4096), empty(4096, 4096), gpu=A100) > multiplied / 19.5e12
    flags[1].fp32_precision = "tf32"
    assert seconds(torch.mm, empty(4096, 4096), empty(4096, 4096), gpu=A100) < multiplied / 50e12


def test_a_flag_set_in_the_middle_of_a_run_counts_at_once(flags):
    def timed(machine):
        start = machine.synchronize()
        a @ a
        return machine.synchronize() - start

    with simgpu.simulate("1xA100", math=False) as machine:
        a = torch.empty(4096, 4096, device="cuda")
        slow = timed(machine)
        flags[1].fp32_precision = "tf32"
        assert timed(machine) < slow / 3


def test_half_precision_is_faster_under_autocast_and_in_a_half_model():
    def timed(machine, layer, x, enabled=False):
        with torch.autocast("cuda", enabled=enabled):
            layer(x)
            start = machine.synchronize()
            layer(x)
            return machine.synchronize() - start

    with simgpu.simulate("1xT4", math=False) as machine, torch.no_grad():
        layer, x = torch.nn.Linear(4096, 4096).cuda(), torch.empty(4096, 4096, device="cuda")
        single = timed(machine, layer, x)
        assert timed(machine, layer, x, enabled=True) < single / 2.5
        assert timed(machine, layer.half(), x.half()) < single / 2.5


def test_attention_counts_under_the_names_of_both_devices():
    q = torch.zeros(2, 4, 128, 32)
    call = next(c for c in calls(F.scaled_dot_product_attention, q, q, q) if cost.flops(*c))
    assert cost.flops(*call) == 2 * 2 * 2 * 4 * 128 * 128 * 32


def test_values_and_their_device_do_not_matter():
    shapes = (64, 32), (32, 16)
    assert seconds(torch.mm, *(torch.ones(s) for s in shapes)) == seconds(
        torch.mm, *(empty(*s) for s in shapes)
    )
