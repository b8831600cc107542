"""Tensors on simulated GPUs: where they are, how they get there and back, and what is refused."""

import copy
import io

import numpy
import pytest
import torch
from torch import nn

from grader import simgpu

CUDA0, CUDA1 = torch.device("cuda:0"), torch.device("cuda:1")


@pytest.mark.parametrize(
    "make",
    [
        lambda d: torch.tensor([1.0], device=d),
        lambda d: torch.zeros(2, device=d),
        lambda d: torch.empty(2, 3, device=d),
        lambda d: torch.randn(2, device=d),
        lambda d: torch.arange(4, device=d),
        lambda d: torch.randperm(4, device=d),
        lambda d: torch.eye(3, device=d),
        lambda d: torch.full((2,), 3.0, device=d),
        lambda d: torch.as_tensor([1, 2], device=d),
        lambda d: torch.as_tensor(torch.ones(2), device=d),
        lambda d: torch.from_numpy(numpy.ones(2)).to(d),
        lambda d: torch.zeros_like(torch.ones(2), device=d),
        lambda d: torch.ones(2).new_zeros(3, device=d),
        lambda d: torch.ones(2).to(d),
        lambda d: torch.ones(2).to(d, torch.float64),
        lambda d: torch.ones(2).to(device=d, non_blocking=True),
        lambda d: torch.ones(2).to(torch.ones(1, device=d)),
        lambda d: torch.ones(2).type_as(torch.ones(1, device=d)),
        lambda d: torch.ones(2).cuda(d),
        lambda d: nn.Linear(2, 2, device=d).weight,
        lambda d: nn.Linear(2, 2).to(d).bias,
        lambda d: nn.Linear(2, 2).cuda(d)(torch.ones(1, 2, device=d)),
        lambda d: torch.nn.functional.one_hot(torch.tensor([1, 2], device=d)),
    ],
)
def test_every_way_to_a_device(machine, make):
    made = make(CUDA1)
    assert made.device == CUDA1
    assert made.is_cuda and not made.is_cpu
    assert made.get_device() == 1
    assert made.cpu().device.type == "cpu"
    assert made.detach().device == made.data.device == made[:1].device == CUDA1
    assert (made + made).device == CUDA1
    assert "device='cuda:1'" in repr(made.detach())


def test_no_index_means_the_current_device(machine):
    assert torch.zeros(1, device="cuda").device == CUDA0
    with torch.cuda.device(1):
        assert torch.zeros(1, device="cuda").device == CUDA1
        assert torch.zeros(1).cuda().device == CUDA1
    torch.cuda.set_device(1)
    assert torch.ones(1).to("cuda").device == CUDA1
    assert torch.cuda.current_device() == 1
    with torch.device("cuda:0"):
        assert torch.ones(1).device == CUDA0


def test_a_number_is_a_gpu(machine):
    assert torch.ones(1).to(1).device == CUDA1
    assert torch.ones(1).cuda(1).device == CUDA1
    assert nn.Linear(2, 2).to(1).weight.device == CUDA1


def test_parameters_keep_their_identity(machine):
    net = nn.Linear(2, 2)
    weight = net.weight
    assert net.cuda().weight is weight
    assert weight.device == CUDA0
    assert net.cpu().weight.device.type == "cpu"


def test_copies_that_change_nothing_are_the_tensor_itself(machine):
    tensor = torch.ones(2, device="cuda")
    assert tensor.to("cuda:0") is tensor
    assert tensor.cuda() is tensor
    assert tensor.to("cuda:0", copy=True) is not tensor


def test_values_survive_the_way(exact):
    tensor = torch.arange(6.0).reshape(2, 3).t()
    away = tensor.to(CUDA1)
    assert away.stride() == tensor.stride()
    assert torch.equal(away.cuda(0).cpu(), tensor)
    assert away.tolist() == tensor.tolist()
    assert torch.equal(simgpu.physical(away), tensor)
    assert simgpu.physical(away).device.type == "cpu"


def test_without_arithmetic_values_are_zeros():
    with simgpu.simulate("2xT4", math=False):
        tensor = torch.full((2, 2), 3.0, device="cuda")
        assert tensor.sum().item() == 0.0
        assert tensor.cpu().tolist() == [[0.0, 0.0], [0.0, 0.0]]
        assert (tensor > 1).any().item() is False
        assert tensor.argmax().item() == 0
        assert torch.ones(2).sum().item() == 2.0  # the CPU is real
        host = torch.ones(2)
        host.copy_(tensor[0])
        assert host.tolist() == [0.0, 0.0]


def test_without_arithmetic_shapes_that_depend_on_values_are_the_largest():
    with simgpu.simulate("2xT4", math=False):
        tensor = torch.ones(3, 4, device="cuda")
        assert tensor[tensor > 0].shape == (12,)
        assert (tensor > 0).nonzero().shape == (12, 2)
        assert tensor.masked_select(tensor > 0).shape == (12,)
        tensor[tensor > 0] = 1.0
        with pytest.raises(NotImplementedError, match="repeat_interleave.*not simulated"):
            torch.repeat_interleave(torch.tensor([1, 2], device="cuda"))


def test_numpy_needs_the_host_first(machine):
    with pytest.raises(TypeError, match="can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu()"):
        torch.ones(2, device="cuda").numpy()
    with pytest.raises(TypeError, match="can't convert cuda:0"):
        numpy.asarray(torch.ones(2, device="cuda"))
    assert torch.ones(2, device="cuda").cpu().numpy().shape == (2,)


def test_gradients_cross_devices(exact):
    leaf = torch.ones(2, requires_grad=True)
    (leaf.to(CUDA0) * 2).to(CUDA1).pow(2).sum().backward()
    assert leaf.grad.tolist() == [8.0, 8.0]
    assert leaf.grad.device.type == "cpu"


def argument(odd: str, others: str, wrapper: str) -> str:
    """A pattern for what the wrapper of a kernel says of one argument."""
    return (
        rf"Expected all tensors to be on the same device, but got {odd}, "
        rf"different from other tensors on {others} "
        rf"\(when checking argument in method wrapper_CUDA{wrapper}\)"
    )


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda g, h: g + h, "found at least two devices, cuda:0 and cpu!"),
        (lambda g, h: h + g, "found at least two devices, cuda:0 and cpu!"),
        (lambda g, h: g.add_(h), "found at least two devices, cuda:0 and cpu!"),
        (lambda g, h: g + g.to(CUDA1), "found at least two devices, cuda:0 and cuda:1!"),
        (lambda g, h: torch.where(h > 0, g, g), "found at least two devices, cuda:0 and cpu!"),
        (lambda g, h: g @ h, argument("mat2 is on cpu", "cuda:0", "_mm")),
        (lambda g, h: torch.cat([g, h]), argument("tensors is on cpu", "cuda:0", "_cat")),
        (lambda g, h: nn.Linear(2, 2)(g), argument("mat1 is on cuda:0", "cpu", "_addmm")),
        (lambda g, h: nn.Linear(2, 2).cuda()(h), argument("mat1 is on cpu", "cuda:0", "_addmm")),
        (
            lambda g, h: nn.Embedding(3, 2).cuda()(h.long()),
            argument("index is on cpu", "cuda:0", "__index_select"),
        ),
        (
            lambda g, h: nn.functional.nll_loss(g, torch.tensor([0, 1])),
            argument("target is on cpu", "cuda:0", "_nll_loss_forward"),
        ),
        (
            lambda g, h: g[torch.tensor([0], device=CUDA1)],
            r"indices should be either on cpu or on the same device as the indexed tensor \(cuda:0\)",
        ),
        (
            lambda g, h: h[torch.tensor([0], device=CUDA1)],
            r"indices should be either on cpu or on the same device as the indexed tensor \(cpu\)",
        ),
        (
            lambda g, h: nn.Conv2d(1, 1, 1).cuda()(torch.ones(1, 1, 2, 2)),
            r"Input type \(torch.FloatTensor\) and weight type \(torch.cuda.FloatTensor\) should be the same",
        ),
        (
            lambda g, h: nn.Conv2d(1, 1, 1)(torch.ones(1, 1, 2, 2).cuda()),
            r"Input type \(torch.cuda.FloatTensor\) and weight type \(torch.FloatTensor\) should be the same",
        ),
        (
            lambda g, h: nn.Conv2d(1, 1, 1).cuda(1)(torch.ones(1, 1, 2, 2).cuda()),
            argument("weight is on cuda:1", "cuda:0", "__cudnn_convolution"),
        ),
        (lambda g, h: g.to("cuda:7"), "CUDA error: invalid device ordinal"),
        (lambda g, h: torch.ones(1, device="cuda:7"), "CUDA error: invalid device ordinal"),
        (lambda g, h: torch.cuda.set_device(7), "CUDA error: invalid device ordinal"),
        (lambda g, h: g.cuda("cpu"), "must be cuda device"),
        (lambda g, h: g.pin_memory(), "only dense CPU tensors can be pinned"),
    ],
)  # fmt: skip
def test_mixing_devices_ends_in_the_words_of_cuda(machine, act, message):
    with pytest.raises(RuntimeError, match=message):
        act(torch.ones(2, 2, device=CUDA0), torch.ones(2, 2))


def test_a_number_on_the_cpu_mixes_with_everything(machine):
    tensor = torch.ones(2, device=CUDA1)
    assert (tensor * torch.tensor(2.0)).device == CUDA1
    assert tensor[torch.tensor([0])].device == CUDA1
    tensor[0] = torch.tensor(5.0)
    assert (2 * tensor).device == CUDA1


def test_pinned_memory_is_the_hosts(machine):
    pinned = torch.ones(4).pin_memory()
    assert pinned.is_pinned() and pinned.device.type == "cpu"
    assert not torch.ones(4).is_pinned()
    assert torch.empty(3, pin_memory=True).is_pinned()
    assert pinned.to("cuda", non_blocking=True).device == CUDA0


def test_loaders_with_and_without_pinned_memory(exact):
    data = torch.utils.data.TensorDataset(torch.arange(10.0), torch.arange(10))
    for pin in (False, True):
        loader = torch.utils.data.DataLoader(data, batch_size=4, pin_memory=pin)
        batches = [(x.is_pinned(), x.cuda().sum().item()) for x, _ in loader]
        assert batches == [(pin, 6.0), (pin, 22.0), (pin, 17.0)]


def test_saved_tensors_come_back_to_their_device(exact):
    buffer = io.BytesIO()
    net = nn.Linear(2, 2).to(CUDA1)
    torch.save(net.state_dict(), buffer)
    buffer.seek(0)
    assert torch.load(buffer)["weight"].device == CUDA1
    buffer.seek(0)
    loaded = torch.load(buffer, map_location="cpu")["weight"]
    assert loaded.device.type == "cpu" and torch.equal(loaded, net.weight.cpu())
    buffer.seek(0)
    assert torch.load(buffer, map_location={"cuda:1": "cuda:0"})["weight"].device == CUDA0


def test_a_file_from_more_gpus_is_refused():
    buffer = io.BytesIO()
    with simgpu.simulate("4xT4"):
        torch.save(torch.ones(2, device="cuda:3"), buffer)
    buffer.seek(0)
    message = r"Attempting to deserialize object on CUDA device 3 but torch.cuda.device_count\(\) is 2"
    with simgpu.simulate("2xT4"), pytest.raises(RuntimeError, match=message):
        torch.load(buffer)


def test_copies_of_modules_and_tensors(machine):
    net = nn.Linear(2, 2).to(CUDA1)
    assert copy.deepcopy(net).weight.device == CUDA1
    assert net.weight.clone().device == CUDA1
    assert net.state_dict()["bias"].device == CUDA1


def test_types_have_their_cuda_names(machine):
    assert torch.ones(1, device="cuda").type() == "torch.cuda.FloatTensor"
    assert torch.ones(1).type() == "torch.FloatTensor"


def test_each_device_has_random_numbers_of_its_own(exact):
    torch.manual_seed(5)
    first = torch.randn(3, device=CUDA0)
    torch.manual_seed(5)
    torch.randn(3)  # the CPU's generator is another one
    assert torch.equal(torch.randn(3, device=CUDA0), first)
    state = torch.cuda.get_rng_state()
    second = torch.rand(3, device=CUDA0)
    torch.cuda.set_rng_state(state)
    assert torch.equal(torch.rand(3, device=CUDA0), second)
    torch.cuda.manual_seed_all(1)
    assert torch.equal(torch.rand(2, device=CUDA0).cpu(), torch.rand(2, device=CUDA1).cpu())


def test_generators_for_a_gpu(exact):
    generator = torch.Generator(device="cuda").manual_seed(3)
    assert generator.device == CUDA0
    assert torch.rand(2, device="cuda", generator=generator).device == CUDA0
    with pytest.raises(RuntimeError, match="Expected a 'cuda' device type for generator but found 'cpu'"):
        torch.rand(2, device="cuda", generator=torch.Generator())


def test_gradient_clipping_and_optimizers_over_two_devices(machine):
    nets = nn.ModuleList([nn.Linear(2, 2).to(CUDA0), nn.Linear(2, 2).to(CUDA1)])
    optimizer = torch.optim.AdamW(nets.parameters())
    nets[1](nets[0](torch.ones(2, 2, device=CUDA0)).to(CUDA1)).sum().backward()
    nn.utils.clip_grad_norm_(nets.parameters(), 1.0)
    optimizer.step()
    assert [p.device.index for p in nets.parameters()] == [0, 0, 1, 1]
