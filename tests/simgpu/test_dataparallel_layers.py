"""Layers, numerics and tools under nn.DataParallel."""

import threading
import warnings

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.checkpoint import checkpoint

from grader import simgpu

CUDA0, CUDA1 = torch.device("cuda:0"), torch.device("cuda:1")


@pytest.fixture
def machine():
    with simgpu.simulate("2xT4") as machine:
        yield machine


def on_one_and_on_two(build, *inputs, loss=lambda out: out.pow(2).sum()):
    """Outputs and gradients of the same model without and with nn.DataParallel."""
    found = []
    for wrap in (lambda net: net, nn.DataParallel):
        torch.manual_seed(0)
        model = wrap(build().cuda())
        out = model(*(tensor.cuda() for tensor in inputs))
        loss(out).backward()
        found.append([out, *(p.grad for p in model.parameters())])
    return [[tensor.detach().cpu() for tensor in tensors] for tensors in found]


def assert_the_same(build, *inputs, **options):
    one, two = on_one_and_on_two(build, *inputs, **options)
    for expected, tensor in zip(one, two, strict=True):
        torch.testing.assert_close(tensor, expected, rtol=1e-4, atol=1e-5)


class Recurrent(nn.Module):
    """A recurrent layer that keeps its weights together, as DataParallel asks for."""

    def __init__(self, kind):
        super().__init__()
        self.layer = kind(3, 4, num_layers=2, batch_first=True, bidirectional=True)

    def forward(self, sequence):
        self.layer.flatten_parameters()
        return self.layer(sequence)[0]


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers(machine, kind):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_the_same(lambda: Recurrent(kind), torch.rand(5, 6, 3))


def test_the_warning_of_scattered_weights_and_its_cure(machine):
    layer = nn.LSTM(3, 4, batch_first=True).cuda()
    sequence = torch.rand(4, 5, 3, device=CUDA0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer(sequence)  # moving it has put its weights together
    for weight in layer.parameters():
        weight.data = weight.data.clone()
    with pytest.warns(
        UserWarning, match="RNN module weights are not part of single contiguous chunk of memory"
    ):
        layer(sequence)
    layer.flatten_parameters()
    assert len({weight.untyped_storage().data_ptr() for weight in layer.parameters()}) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer(sequence)


def test_packed_sequences_inside_forward(machine):
    class Packed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.GRU(3, 4, batch_first=True)

        def forward(self, sequence, lengths):
            packed = pack_padded_sequence(sequence, lengths.cpu(), batch_first=True, enforce_sorted=False)
            assert packed.data.device == sequence.device
            out, _ = self.layer(packed)
            return pad_packed_sequence(out, batch_first=True, total_length=sequence.size(1))[0]

    assert_the_same(Packed, torch.rand(5, 6, 3), torch.tensor([6, 2, 4, 1, 3]))


def test_lengths_on_a_gpu_are_refused(machine):
    with pytest.raises(RuntimeError, match="'lengths' argument should be a 1D CPU int64 tensor"):
        pack_padded_sequence(torch.rand(2, 3, 1, device=CUDA0), torch.tensor([3, 2], device=CUDA0), True)


def test_sparse_gradients(machine):
    one, two = on_one_and_on_two(
        lambda: nn.Embedding(10, 3, sparse=True), torch.tensor([[1, 2], [1, 5], [7, 1]])
    )
    assert two[1].is_sparse
    torch.testing.assert_close(one[1].to_dense(), two[1].to_dense())
    net = nn.Embedding(10, 3, sparse=True).cuda()
    nn.DataParallel(net)(torch.tensor([[1], [2]])).sum().backward()
    assert net.weight.grad.device == CUDA0
    torch.optim.SGD(net.parameters(), 0.1).step()


def test_an_embedding_that_shrinks_its_rows(machine):
    net = nn.Embedding(4, 2, max_norm=1.0).cuda()
    net.weight.data.fill_(5.0)
    model = nn.DataParallel(net)
    with pytest.raises(RuntimeError, match="Output 0 of Broadcast.*is a view and its base"):
        model(torch.tensor([[0], [3]]))
    with torch.no_grad():
        model(torch.tensor([[1], [3]]))
    assert net.weight[1].norm().item() <= 1.0
    assert net.weight[3].tolist() == [5.0, 5.0]  # only the second replica's copy was shrunk


def test_channels_last_survives(machine):
    net = nn.Conv2d(8, 8, 3).cuda().to(memory_format=torch.channels_last)
    model = nn.DataParallel(net)
    images = torch.rand(4, 8, 6, 6).to(memory_format=torch.channels_last)
    for _ in range(2):
        net.zero_grad()
        model(images).sum().backward()
        assert net.weight.grad.is_contiguous(memory_format=torch.channels_last)


def test_double_backward(machine):
    def build():
        return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))

    def gradients(wrap):
        torch.manual_seed(0)
        net = build().cuda()
        inputs = torch.rand(5, 3, device=CUDA0, requires_grad=True)
        model = wrap(net)
        (slope,) = torch.autograd.grad(model(inputs).sum(), inputs, create_graph=True)
        del model
        (slope.norm(2, dim=1) - 1).pow(2).sum().backward()
        return [torch.zeros_like(p.cpu()) if p.grad is None else p.grad.cpu() for p in net.parameters()]

    for one, two in zip(gradients(lambda net: net), gradients(nn.DataParallel), strict=True):
        torch.testing.assert_close(one, two)


def test_normalized_weights(machine):
    for normalize in (parametrizations.weight_norm, parametrizations.spectral_norm):
        assert_the_same(lambda normalize=normalize: normalize(nn.Linear(3, 4)).eval(), torch.rand(4, 3))


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_the_older_normalizations(machine):
    assert_the_same(lambda: nn.utils.weight_norm(nn.Linear(3, 4)), torch.rand(4, 3))
    net = nn.utils.spectral_norm(nn.Linear(3, 4)).cuda()
    before = net.weight_u.clone()
    nn.DataParallel(net)(torch.rand(4, 3)).sum().backward()
    assert net.weight_orig.grad.device == CUDA0
    assert not torch.equal(net.weight_u, before)  # the first replica iterates in place


def test_batch_norm_counts_on_the_first_share_alone(machine):
    norm = nn.BatchNorm1d(2).cuda()
    rows = torch.cat([torch.zeros(4, 2), torch.full((4, 2), 8.0)])
    out = nn.DataParallel(norm)(rows)
    assert norm.num_batches_tracked.item() == 1
    assert norm.running_mean.tolist() == [0.0, 0.0]
    assert not torch.allclose(out.cpu(), nn.BatchNorm1d(2)(rows), atol=1e-3)
    norm.eval()
    torch.testing.assert_close(nn.DataParallel(norm)(rows), norm(rows.cuda()))


def test_dropout_differs_between_replicas(machine):
    torch.manual_seed(0)
    out = nn.DataParallel(nn.Dropout().cuda())(torch.ones(64, 8)).cpu()
    assert set(out.unique().tolist()) == {0.0, 2.0}


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing_inside(machine, reentrant):
    class Saving(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 3))

        def forward(self, inputs):
            return checkpoint(self.inner, inputs.requires_grad_(), use_reentrant=reentrant)

    assert_the_same(Saving, torch.rand(4, 3))


def test_attention_and_transformers(machine):
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    assert_the_same(lambda: nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), torch.rand(4, 5, 8))


def test_convolutions(machine):
    def build():
        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 2))

    assert_the_same(build, torch.rand(5, 3, 8, 8))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_types(machine, dtype):
    net = nn.Linear(3, 2).cuda().to(dtype)
    out = nn.DataParallel(net)(torch.rand(4, 3, dtype=dtype))
    out.sum().backward()
    assert out.dtype is net.weight.grad.dtype is dtype


def test_complex_layers(machine):
    net = nn.Linear(3, 2, dtype=torch.complex64).cuda()
    values = torch.randn(4, 3, dtype=torch.complex64)
    out = nn.DataParallel(net)(values)
    torch.testing.assert_close(out, net(values.cuda()))
    out.abs().sum().backward()
    assert net.weight.grad.dtype is torch.complex64


def test_autocast_in_a_decorated_forward(machine):
    class Mixed(nn.Linear):
        @torch.autocast("cuda")
        def forward(self, inputs):
            return super().forward(inputs)

    assert nn.DataParallel(Mixed(3, 2).cuda())(torch.rand(4, 3)).dtype is torch.float16


def test_inference_mode_does_not_reach_the_workers(machine):
    seen = []

    class Looking(nn.Linear):
        def forward(self, inputs):
            seen.append(torch.is_inference_mode_enabled())
            return super().forward(inputs)

    model = nn.DataParallel(Looking(2, 2).cuda())
    with torch.inference_mode():
        assert torch.is_inference_mode_enabled()
        model(torch.rand(4, 2))
        assert nn.Linear(2, 2).cuda().weight.device == CUDA0
    assert seen == [False, False]


def test_compiled_models(machine):
    inputs = torch.rand(4, 2)
    with pytest.warns(UserWarning, match="torch.compile compiles nothing for simulated GPUs"):
        model = torch.compile(nn.DataParallel(nn.Linear(2, 2).cuda()))
    assert model(inputs).shape == (4, 2)
    assert list(model.state_dict()) == ["_orig_mod.module.weight", "_orig_mod.module.bias"]


def test_double_wrapping_on_one_device(machine):
    inner = nn.DataParallel(nn.Linear(2, 2).cuda(), device_ids=[0])
    assert inner(torch.rand(4, 2)).shape == (4, 2)
    with pytest.raises(RuntimeError, match="Caught RuntimeError in replica 1 on device 1"):
        nn.DataParallel(inner, device_ids=[0, 1])(torch.rand(4, 2))


def test_workers_see_their_own_current_device(machine):
    seen = {}

    class Looking(nn.Linear):
        def forward(self, inputs):
            seen[threading.current_thread().name] = (
                torch.cuda.current_device(),
                torch.zeros(1, device="cuda").device,
                torch.cuda.current_stream().device,
            )
            return super().forward(inputs)

    nn.DataParallel(Looking(2, 2).cuda())(torch.rand(4, 2))
    assert sorted(seen.values(), key=str) == [(0, CUDA0, CUDA0), (1, CUDA1, CUDA1)]
