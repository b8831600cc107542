"""What scripts use around their training: profilers, compilers, transforms, defaults, older spellings."""

import warnings

import pytest
import torch
import torch.utils.benchmark
from torch import nn
from torch.func import functional_call, grad, hessian, jacrev, jvp, vmap
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from torch.utils._pytree import tree_map_only
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from grader import simgpu

CUDA0, CUDA1 = torch.device("cuda:0"), torch.device("cuda:1")


@pytest.fixture
def machine():
    with simgpu.simulate("2xT4") as machine:
        yield machine


def told(record, words):
    return [str(warning.message) for warning in record if words in str(warning.message)]


# ----------------------------------------------------------------------------- profilers and compilers


def test_the_profiler_goes_on_without_cuda_and_says_so_once(machine):
    tensor = torch.ones(4, 4, device=CUDA1)
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        for _ in range(2):
            both = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
            with profile(activities=both, record_shapes=True) as seen, record_function("multiply"):
                tensor @ tensor
        with profile(activities=[ProfilerActivity.CUDA]):
            tensor + 1
    assert "multiply" in seen.key_averages().table(sort_by="cuda_time_total", row_limit=20)
    assert len(told(record, "records no CUDA activity of simulated GPUs (T4)")) == 1
    with profile(schedule=schedule(wait=1, warmup=1, active=1), on_trace_ready=lambda _: None) as stepping:
        for _ in range(4):
            tensor + 1
            stepping.step()
    assert torch.profiler.supported_activities() == {ProfilerActivity.CPU}
    with pytest.raises(NotImplementedError, match=r"torch\.autograd\.profiler\.emit_nvtx is not simulated"):
        torch.autograd.profiler.emit_nvtx()


def test_the_older_profiler(machine):
    with (
        pytest.warns(UserWarning, match="records no CUDA activity"),
        torch.autograd.profiler.profile(use_device="cuda") as seen,
    ):
        torch.ones(2, device=CUDA1) + 1
    assert "aten::add" in seen.key_averages().table()


def test_timing_a_statement(machine):
    timer = torch.utils.benchmark.Timer("x @ x", globals={"x": torch.ones(4, 4, device=CUDA1)})
    assert timer.timeit(3).mean > 0


def test_compiling_runs_eagerly_and_says_so_once(machine):
    net = nn.Linear(4, 4).to(CUDA1)
    inputs = torch.rand(2, 4, device=CUDA1)
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        compiled = torch.compile(net, mode="max-autotune")
        double = torch.compile(fullgraph=True)(lambda tensor: tensor * 2)
        net.compile()

        @torch.compile
        def halve(tensor):
            return tensor / 2

    assert len(told(record, "torch.compile compiles nothing for simulated GPUs (T4)")) == 1
    torch.testing.assert_close(compiled(inputs), net(inputs))
    compiled(inputs).sum().backward()
    assert net.weight.grad.device == CUDA1
    assert list(compiled.state_dict()) == ["_orig_mod.weight", "_orig_mod.bias"]
    assert torch.equal(halve(double(inputs)), inputs)
    with pytest.raises(RuntimeError, match="Either mode or options can be specified"):
        torch.compile(net, mode="default", options={})


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_scripts_and_traces(machine):
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).to(CUDA1)
    inputs = torch.rand(2, 4, device=CUDA1)
    for made in (torch.jit.script(net), torch.jit.trace(net, inputs)):
        out = made(inputs)
        assert out.device == CUDA1 and torch.equal(out, net(inputs))
        out.sum().backward()


def test_function_transforms(machine):
    inputs = torch.rand(3, 4, device=CUDA1)
    net = nn.Linear(4, 2).to(CUDA1)
    parameters = dict(net.named_parameters())

    def loss(parameters, row):
        return functional_call(net, parameters, (row,)).sum() + torch.ones(2, device=row.device).sum()

    assert vmap(lambda row: (row * row).sum())(inputs).device == CUDA1
    each = vmap(grad(loss), in_dims=(None, 0))(parameters, inputs)
    assert each["weight"].shape == (3, 2, 4) and each["weight"].device == CUDA1
    assert jacrev(net)(inputs[0]).device == hessian(lambda row: (row**3).sum())(inputs[0]).device == CUDA1
    assert jvp(torch.sin, (inputs,), (inputs,))[1].device == CUDA1


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing(machine, reentrant):
    net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(), nn.Linear(4, 4)).to(CUDA1)
    inputs = torch.rand(3, 4, device=CUDA1, requires_grad=True)
    checkpoint(net, inputs, use_reentrant=reentrant).sum().backward()
    checkpoint_sequential(net, 2, inputs, use_reentrant=reentrant).sum().backward()
    assert inputs.grad.device == CUDA1


def test_saving_activations_on_the_host(machine):
    inputs = torch.rand(3, device=CUDA1, requires_grad=True)
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        out = (inputs * inputs).sum()
    out.backward()
    assert torch.allclose(inputs.grad, inputs * 2)


def test_zeros_for_missing_gradients_are_where_the_outputs_were(machine):
    seen = []

    class Split(torch.autograd.Function):
        @staticmethod
        def forward(ctx, tensor):
            return tensor * 1, tensor.to(CUDA1), tensor.cpu()

        @staticmethod
        def backward(ctx, *gradients):
            seen.extend(gradient.device for gradient in gradients)
            return gradients[0]

    Split.apply(torch.ones(2, device=CUDA0, requires_grad=True))[0].sum().backward()
    assert seen == [CUDA0, CUDA1, torch.device("cpu")]


def test_a_gradient_from_another_device_is_refused(machine):
    weight = nn.Parameter(torch.ones(2, device=CUDA1))
    with pytest.raises(RuntimeError, match="assigned grad has data located on a different device"):
        weight.grad = torch.ones(2)
    weight.grad = torch.ones(2, device=CUDA1)
    weight.grad = None


# ----------------------------------------------------------------------------- where tensors are made


def test_a_default_device():
    with simgpu.simulate("2xT4"):
        torch.set_default_device("cuda")
        made = torch.zeros(2), torch.tensor([1]), nn.Linear(2, 2).weight, torch.arange(3), torch.randperm(4)
        assert {tensor.device for tensor in made} == {CUDA0}
        torch.cuda.set_device(1)
        assert torch.get_default_device() == torch.ones(1).device == torch.tensor([1.0]).device == CUDA1
        with torch.device("cuda:0"):
            assert torch.rand(2).device == torch.get_default_device() == CUDA0
    assert torch.get_default_device().type == torch.ones(1).device.type == "cpu"


def test_a_number_names_a_gpu_everywhere(machine):
    assert torch.device(1) == torch.device("cuda", 1) == CUDA1
    made = (
        torch.zeros(1, device=1), torch.tensor([1.0], device=1), torch.randn(2, device=1),
        torch.ones_like(torch.ones(2), device=1), torch.ones(2).new_zeros(2, device=1),
        nn.Linear(2, 2, device=1).weight, torch.empty(2, device=1),
    )  # fmt: skip
    assert {tensor.device for tensor in made} == {CUDA1}


def test_new_tensors_are_made_where_the_old_one_is(machine):
    tensor = torch.ones(2, device=CUDA1)
    made = (
        tensor.new_zeros(2), tensor.new_tensor([1.0]), tensor.new_full((2,), 1.0), tensor.new_empty(2),
        tensor.new(3), tensor.new([1.0, 2.0]), tensor.new(),
    )  # fmt: skip
    assert {new.device for new in made} == {CUDA1}
    assert tensor.new_tensor([1.0], device="cpu").device.type == "cpu"


def test_sparse_and_nested_tensors(machine):
    indices, values = torch.tensor([[0, 1], [1, 0]]), torch.ones(2)
    for made in (
        torch.sparse_coo_tensor(indices, values, (2, 2), device=CUDA1),
        torch.sparse_coo_tensor(indices.to(CUDA1), values.to(CUDA1), (2, 2)),
        torch.sparse_csr_tensor(
            torch.tensor([0, 1, 2]), torch.tensor([1, 0]), values, (2, 2), device="cuda:1"
        ),
    ):
        assert made.device == CUDA1
        assert made.to_dense().tolist() == [[0.0, 1.0], [1.0, 0.0]]
    with pytest.raises(NotImplementedError, match=r"torch\.nested\.nested_tensor is not simulated"):
        torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], device=CUDA1)


def test_types_that_name_a_device(machine):
    made = torch.cuda.FloatTensor(2, 3)
    assert (made.device, made.dtype, made.shape) == (CUDA0, torch.float32, (2, 3))
    assert torch.cuda.LongTensor([1, 2]).tolist() == [1, 2]
    assert isinstance(made, torch.cuda.FloatTensor) and not isinstance(made, torch.FloatTensor)
    assert isinstance(torch.ones(1), torch.FloatTensor) and not isinstance(
        torch.ones(1), torch.cuda.FloatTensor
    )
    assert torch.ones(2).type(torch.cuda.LongTensor).device == CUDA0
    assert torch.ones(2, device=CUDA1).type("torch.cuda.DoubleTensor").device == CUDA1
    assert torch.ones(2, device=CUDA1).type(torch.FloatTensor).device.type == "cpu"
    assert made.type() == "torch.cuda.FloatTensor" and torch.FloatTensor([1.0]).device.type == "cpu"


@pytest.mark.filterwarnings("ignore:torch.set_default_tensor_type")
def test_a_default_type_that_names_a_device(machine):
    torch.set_default_tensor_type("torch.cuda.FloatTensor")
    assert torch.zeros(2).device == CUDA0
    torch.set_default_tensor_type("torch.FloatTensor")
    assert torch.zeros(2).device.type == "cpu"


# ----------------------------------------------------------------------------- layers


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_on_the_second_gpu(machine, kind):
    layer = kind(4, 5, num_layers=2, batch_first=True, bidirectional=True, dropout=0.1).to(CUDA1)
    out, hidden = layer(torch.rand(3, 6, 4, device=CUDA1))
    out.sum().backward()
    assert out.device == CUDA1 and all(p.grad.device == CUDA1 for p in layer.parameters())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_recurrent_layers_in_half_precision(machine, dtype):
    layer = nn.LSTM(4, 5, batch_first=True).to(CUDA1, dtype)
    out = layer(torch.rand(3, 6, 4, device=CUDA1, dtype=dtype))[0]
    out.sum().backward()
    for made in (out, *(parameter.grad for parameter in layer.parameters())):
        assert made.device == CUDA1 and made.dtype is dtype and made.isfinite().all()


def test_transformers_on_the_second_gpu(machine):
    model = nn.Transformer(8, 2, 1, 1, 16, batch_first=True).to(CUDA1)
    mask = nn.Transformer.generate_square_subsequent_mask(3, device=CUDA1)
    model(
        torch.rand(2, 5, 8, device=CUDA1), torch.rand(2, 3, 8, device=CUDA1), tgt_mask=mask
    ).sum().backward()
    encoder = model.encoder.eval()
    padding = torch.tensor([[False] * 3 + [True] * 2, [False] * 5], device=CUDA1)
    with torch.no_grad():
        out = encoder(torch.rand(2, 5, 8, device=CUDA1), src_key_padding_mask=padding)
    assert out.device == CUDA1 and out.shape == (2, 5, 8)


@pytest.mark.parametrize("options", [{}, {"fused": True}, {"foreach": True}, {"capturable": True}], ids=str)
def test_optimizers(machine, options):
    net = nn.Linear(4, 4).to(CUDA1)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1, **options)
    for _ in range(2):
        optimizer.zero_grad()
        net(torch.ones(2, 4, device=CUDA1)).sum().backward()
        optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())
    assert {state["exp_avg"].device for state in optimizer.state.values()} == {CUDA1}


def test_everything_is_put_back():
    names = {
        torch: ("compile", "tensor", "Generator", "FloatTensor", "set_autocast_enabled", "sparse_coo_tensor"),
        torch.Tensor: ("to", "cuda", "grad", "device", "new", "new_tensor"),
        torch.UntypedStorage: ("device", "cpu", "clone", "is_cuda"),
        torch.cuda: ("is_available", "FloatTensor", "memory_stats", "set_sync_debug_mode", "CUDAGraph"),
        torch.profiler.profiler._KinetoProfile: ("__init__",),
        nn.RNNBase: ("flatten_parameters",),
    }
    before = {(owner, name): getattr(owner, name) for owner, each in names.items() for name in each}
    with simgpu.simulate("2xT4"):
        assert any(getattr(owner, name) is not thing for (owner, name), thing in before.items())
    assert {key: getattr(*key) for key in before} == before


# ----------------------------------------------------------------------------- export and classes of tensors


def test_models_on_the_cpu_are_exported_and_others_refused_by_name(machine):
    net, x = nn.Linear(3, 3), torch.ones(1, 3)
    exported = torch.export.export(net, (x,))
    assert torch.equal(exported.module()(x), net(x))
    with pytest.raises(NotImplementedError, match="^torch.export of a model on a GPU is not simulated"):
        torch.export.export(net.cuda(), (x.cuda(),))


class Wrapped(torch.Tensor):
    """Holds another tensor, and takes every operator apart."""

    @staticmethod
    def __new__(cls, held):
        return torch.Tensor._make_wrapper_subclass(cls, held.shape, dtype=held.dtype, device=held.device)

    def __init__(self, held):
        self.held = held

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        opened = tree_map_only(Wrapped, lambda wrapped: wrapped.held, (args, kwargs or {}))
        return tree_map_only(torch.Tensor, Wrapped, func(*opened[0], **opened[1]))


def test_a_class_that_takes_operators_apart_leaves_its_tensors_on_the_gpu(machine):
    for made in (
        Wrapped(torch.ones(2, device=CUDA1)) + 1,
        torch.ones(2, device=CUDA1) * Wrapped(torch.ones(2).to(CUDA1)),
    ):
        assert (made.device, made.held.device) == (CUDA1, CUDA1)
    with pytest.raises(RuntimeError, match="at least two devices, cuda:1 and cpu!"):
        Wrapped(torch.ones(2, device=CUDA1)) + torch.ones(2)
