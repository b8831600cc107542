"""Mixed precision on simulated GPUs: which types autocast computes in, and how gradients are scaled."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from grader import simgpu
from grader.simgpu.surface import autocast_lists

CUDA0, CUDA1 = torch.device("cuda:0"), torch.device("cuda:1")


def single():
    return torch.rand(4, 4, device=CUDA1)


def half():
    return torch.rand(4, 4, device=CUDA1).half()


@pytest.mark.parametrize(
    "act",
    [
        lambda: single() @ single(),
        lambda: torch.addmm(single(), single(), half()),
        lambda: torch.bmm(single()[None], single()[None]),
        lambda: torch.einsum("ij,jk->ik", single(), half()),
        lambda: F.linear(single(), single()),
        lambda: F.conv1d(single()[None], single()[None]),
        lambda: F.conv_transpose2d(single()[None, None], single()[None, None]),
        lambda: F.prelu(single(), torch.ones(1, device=CUDA1)),
        lambda: F.scaled_dot_product_attention(single()[None], single()[None], single()[None]),
        lambda: nn.LSTM(4, 4).to(CUDA1)(single())[0],
        lambda: nn.GRU(4, 4).to(CUDA1)(single())[0],
        lambda: nn.LSTMCell(4, 4).to(CUDA1)(single())[0],
        lambda: nn.MultiheadAttention(4, 2).to(CUDA1)(single(), single(), single())[0],
        # neither list: as the input is
        lambda: torch.relu(half()),
        lambda: F.batch_norm(half(), None, None, training=True),
        lambda: half().mean(),
        lambda: F.max_pool1d(half()[None], 2),
        lambda: F.gelu(half()),
        lambda: half() + half(),
    ],
)
def test_what_autocast_computes_in_half_precision(exact, act):
    with torch.autocast("cuda"):
        assert act().dtype is torch.float16


@pytest.mark.parametrize(
    "act",
    [
        lambda: half().softmax(-1),
        lambda: F.log_softmax(half(), -1),
        lambda: F.layer_norm(half(), [4]),
        lambda: F.group_norm(half()[None], 2),
        lambda: F.cross_entropy(half(), torch.zeros(4, dtype=torch.int64, device=CUDA1)),
        lambda: F.binary_cross_entropy_with_logits(half(), half()),
        lambda: F.mse_loss(half(), half()),
        lambda: F.smooth_l1_loss(half(), half()),
        lambda: F.cosine_similarity(half(), half()),
        lambda: half().sum(),
        lambda: half().prod(0),
        lambda: half().cumsum(0),
        lambda: half().norm(),
        lambda: half().pow(2),
        lambda: half().exp(),
        lambda: half().log(),
        lambda: half().rsqrt(),
        lambda: F.softplus(half()),
        lambda: F.interpolate(half()[None], 2),
        lambda: torch.cdist(half(), half()),
        # the widest of the inputs
        lambda: torch.addcmul(half(), single(), single()),
        lambda: torch.cat([half(), single()]),
        lambda: torch.stack([half(), single()]),
        lambda: half() + single(),
    ],
)
def test_what_autocast_computes_in_single_precision(exact, act):
    with torch.autocast("cuda"):
        assert act().dtype is torch.float32


def test_a_type_that_was_asked_for_stays(exact):
    with torch.autocast("cuda"):
        assert half().sum(dtype=torch.float16).dtype is torch.float16
        assert half().softmax(-1, torch.float16).dtype is torch.float16
        assert (single().double() @ single().double()).dtype is torch.float64


def test_the_loss_that_cannot_be_cast_safely(exact):
    with (
        torch.autocast("cuda"),
        pytest.raises(RuntimeError, match="binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast"),
    ):
        F.binary_cross_entropy(single(), single())


def test_every_operator_that_torch_casts_is_listed():
    cast = {
        name.removeprefix("aten::")
        for name in torch._C._dispatch_get_all_op_names()
        if name.startswith("aten::") and torch._C._dispatch_has_kernel_for_dispatch_key(name, "AutocastCUDA")
    }
    assert cast - {"_cudnn_rnn"} <= autocast_lists.names()


def test_regions_for_the_cpu_and_for_the_gpus_are_separate(exact):
    host = torch.rand(4, 4)
    with torch.autocast("cuda"):
        assert (host @ host).dtype is torch.float32
        assert F.binary_cross_entropy(host, host) > 0
        assert not torch.is_autocast_enabled("cpu")
        with torch.autocast("cpu"):
            assert (host @ host).dtype is torch.bfloat16
            assert (single() @ single()).dtype is torch.float16


def test_nested_regions(exact):
    tensor = single()
    with torch.autocast("cuda"):
        assert torch.is_autocast_enabled("cuda")
        with torch.autocast("cuda", enabled=False):
            assert (tensor @ tensor).dtype is torch.float32
        with torch.autocast("cuda", dtype=torch.bfloat16):
            assert (tensor @ tensor).dtype is torch.bfloat16
        assert (tensor @ tensor).dtype is torch.float16
    assert (tensor @ tensor).dtype is torch.float32
    assert not torch.is_autocast_enabled("cuda")


def test_the_older_spellings(exact):
    @torch.amp.autocast("cuda", dtype=torch.bfloat16)
    def act(tensor):
        return tensor @ tensor

    assert act(single()).dtype is torch.bfloat16
    with pytest.warns(FutureWarning), torch.cuda.amp.autocast():
        assert (single() @ single()).dtype is torch.float16
    torch.set_autocast_enabled("cuda", True)
    try:
        assert (single() @ single()).dtype is torch.float16
    finally:
        torch.set_autocast_enabled("cuda", False)
        torch.clear_autocast_cache()
    assert (single() @ single()).dtype is torch.float32


def test_a_parameter_is_cast_once_in_a_region(machine):
    net = nn.Linear(64, 64, bias=False).cuda()
    images = torch.rand(2, 64, device=CUDA0)
    with torch.autocast("cuda"):
        first = net(images)
        held = torch.cuda.memory_allocated()
        second = net(images)
        assert torch.cuda.memory_allocated() - held == 1024  # the output, and the images cast again
    del first, second
    assert torch.cuda.memory_allocated() < held


def test_gradients_have_the_type_of_the_parameters(machine):
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2)
    ).cuda()
    with torch.autocast("cuda"):
        loss = F.cross_entropy(
            net(torch.rand(2, 3, 8, 8, device=CUDA0)), torch.zeros(2, dtype=torch.int64, device=CUDA0)
        )
    loss.backward()
    assert {p.grad.dtype for p in net.parameters()} == {torch.float32}


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing_computes_again_in_the_same_types(exact, reentrant):
    net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(), nn.Linear(4, 4)).to(CUDA1)
    inputs = torch.rand(3, 4, device=CUDA1, requires_grad=True)
    with torch.autocast("cuda"):
        out = checkpoint(net, inputs, use_reentrant=reentrant)
    assert out.dtype is torch.float16
    out.float().sum().backward()
    assert inputs.grad.device == CUDA1


def test_own_functions_can_leave_autocast(exact):
    class Square(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
        def forward(ctx, tensor):
            assert not torch.is_autocast_enabled("cuda")
            return tensor @ tensor

        @staticmethod
        @torch.amp.custom_bwd(device_type="cuda")
        def backward(ctx, gradient):
            return gradient

    with torch.autocast("cuda"):
        assert Square.apply(half()).dtype is torch.float32


def test_a_step_with_infinite_gradients_is_skipped(exact):
    net = nn.Linear(2, 2).cuda()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cuda")
    before = net.weight.detach().clone()
    inputs = torch.ones(1, 2, device=CUDA0)

    scaler.scale(net(inputs).sum()).backward()
    net.weight.grad[0, 0] = float("inf")
    scaler.step(optimizer)
    scaler.update()
    assert torch.equal(net.weight, before)
    assert scaler.get_scale() == 2.0**15

    optimizer.zero_grad()
    scaler.scale(net(inputs).sum()).backward()
    assert net.weight.grad[0, 0].item() == 2.0**15
    scaler.unscale_(optimizer)
    assert net.weight.grad.tolist() == [[1.0, 1.0], [1.0, 1.0]]
    scaler.step(optimizer)
    scaler.update()
    torch.testing.assert_close(net.weight, before - 0.1)


def test_infinite_gradients_are_found_device_by_device(exact):
    nets = nn.ModuleList([nn.Linear(2, 2).to(CUDA0), nn.Linear(2, 2).to(CUDA1)])
    optimizer = torch.optim.SGD(nets.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cuda")
    scaler.scale(nets[1](nets[0](torch.ones(1, 2, device=CUDA0)).to(CUDA1)).sum()).backward()
    nets[1].weight.grad[0, 0] = float("nan")
    scaler.unscale_(optimizer)
    found = scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"]
    assert {device: value.item() for device, value in found.items()} == {CUDA0: 0.0, CUDA1: 1.0}
    assert {value.device for value in found.values()} == {CUDA0, CUDA1}
    scaler.step(optimizer)
    scaler.update()


def test_the_scale_grows(exact):
    net = nn.Linear(2, 2).cuda()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cuda", init_scale=8.0, growth_interval=2)
    for _ in range(2):
        scaler.scale(net(torch.ones(1, 2, device=CUDA0)).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    assert scaler.get_scale() == 16.0
    assert torch.amp.GradScaler("cuda").state_dict().keys() == scaler.state_dict().keys()


def test_autocast_reaches_replicas_but_not_its_type(exact):
    # parallel_apply hands on whether autocast is enabled, not which type it computes in.
    class Net(nn.Linear):
        def forward(self, inputs):
            out = super().forward(inputs)
            self.seen.append(out.dtype)
            return out

    net = Net(4, 4).cuda()
    net.seen = []
    with torch.autocast("cuda", dtype=torch.bfloat16):
        nn.DataParallel(net)(torch.rand(4, 4))
    assert net.seen == [torch.float16, torch.float16]


def test_nothing_is_left_behind():
    with simgpu.simulate("2xT4"), torch.autocast("cuda"):
        assert (single() @ single()).dtype is torch.float16
    host = torch.rand(2, 2)
    with torch.autocast("cpu"):
        assert (host @ host).dtype is torch.bfloat16
    assert (host @ host).dtype is torch.float32
