"""Operators on simulated GPUs: a random slice of torch's own list, and what that list does not reach."""

import datetime
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import rnn

from grader import simgpu

ROOT = Path(__file__).resolve().parents[2]
G = "cuda:1"


def test_a_slice_of_torchs_operators():
    """Another one each day; the command that the failure shows repeats it."""
    seed = datetime.date.today().toordinal()
    command = [
        sys.executable,
        "benchmarks/operators.py",
        "--sample",
        "30",
        "--inputs",
        "2",
        "--seed",
        str(seed),
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    print(done.stdout)
    assert done.returncode == 0, " ".join(command[1:]) + "\n" + done.stdout + done.stderr


def rows() -> torch.Tensor:
    return torch.linspace(0.1, 1.2, 12, device=G).reshape(3, 4)


COMPOSED = {
    "quantile": lambda: torch.quantile(rows(), 0.5),
    "matrix_rank": lambda: torch.linalg.matrix_rank(rows(), rtol=0.1),
    "matrix_rank of nothing": lambda: torch.linalg.matrix_rank(torch.ones(2, 0, 3, device=G)),
    "vander": lambda: torch.vander(rows()[0]),
    "combinations": lambda: torch.combinations(rows()[0]),
    "cosine_similarity": lambda: F.cosine_similarity(rows(), rows()),
    "stft": lambda: torch.stft(rows().reshape(-1), 4, return_complex=True),
    "istft": lambda: torch.istft(torch.stft(rows().reshape(-1), 4, return_complex=True), 4),
    "ctc_loss": lambda: F.ctc_loss(
        rows()[:, None].log_softmax(-1), torch.tensor([[1]], device=G), (3,), (1,)
    ),
    "attention": lambda: F.scaled_dot_product_attention(*[rows()[None]] * 3, dropout_p=0.1, is_causal=True),
    "pad_sequence": lambda: rnn.pad_sequence([rows(), rows()[:2]]),
    "pack_sequence": lambda: rnn.pack_sequence([rows(), rows()[:2]]).data,
    "pad_packed_sequence": lambda: rnn.pad_packed_sequence(rnn.pack_sequence([rows(), rows()[:2]]))[0],
    "unpad_sequence": lambda: rnn.unpad_sequence(rnn.pad_sequence([rows()] * 2), torch.tensor([3, 2]))[1],
    "one_hot": lambda: F.one_hot(torch.tensor([0, 2], device=G), 3),
    "one_hot of nothing": lambda: F.one_hot(torch.empty(0, dtype=torch.int64, device=G), 3),
    "sample of a distribution": lambda: torch.distributions.Normal(rows(), rows()).sample(),
}


@pytest.mark.parametrize("name", COMPOSED)
def test_what_cpp_composes_stays_on_the_gpu(machine, name):
    made = COMPOSED[name]()
    assert made.device == torch.device(G)
    assert (made + torch.ones((), device=G)).device == torch.device(G)


def test_lengths_of_packed_sequences_are_the_hosts(machine):
    packed = rnn.pack_sequence([rows(), rows()[:2]])
    assert packed.batch_sizes.device.type == "cpu"
    assert packed.batch_sizes.tolist() == [2, 2, 1]
    padded, lengths = rnn.pad_packed_sequence(nn.GRU(4, 2).to(G)(packed)[0])
    assert padded.shape == (3, 2, 2)
    assert lengths.device.type == "cpu" and lengths.tolist() == [3, 2]


def test_a_cpu_tensor_that_cpp_made_stays_on_the_cpu(exact):
    labels = F.one_hot(torch.tensor([0, 2]), 3)
    assert labels.device.type == "cpu"
    with pytest.raises(RuntimeError, match="found at least two devices, cuda:1 and cpu!"):
        torch.ones(2, 3, device=G) * labels
    with pytest.raises(RuntimeError, match="found at least two devices, cuda:1 and cpu!"):
        torch.ones(3, 4, device=G) - rnn.pad_sequence([torch.ones(3, 4)])


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (torch.tensor([3]), "Class values must be smaller than num_classes"),
        (torch.tensor([-1]), "Class values must be non-negative"),
        (torch.tensor([1.0]), "only applicable to index tensor"),
    ],
)
def test_labels_on_the_cpu_are_judged_as_without_simulation(exact, labels, message):
    with pytest.raises(RuntimeError, match=message):
        F.one_hot(labels, 3)


@pytest.mark.parametrize(
    "act",
    [
        lambda x: torch.sgn(x),
        lambda x: torch.tile(x, (0,)),
        lambda x: torch.copysign(torch.ones(4, device=G), x),
        lambda x: x.as_strided((2, 2), (1, 2)),
        lambda x: F.max_pool1d(x[None], 2),
    ],
)
def test_gradients_that_cpp_makes_of_nothing_are_on_the_leafs_device(machine, act):
    leaf = rows().requires_grad_()
    act(leaf).sum().backward()
    assert leaf.grad.device == torch.device(G)
    assert leaf.grad.shape == leaf.shape
    assert (leaf.grad + 1).device == torch.device(G)
    assert simgpu.physical(leaf.grad).shape == leaf.shape


def test_lists_of_an_optimizer_are_split_by_device(machine):
    from torch.utils._foreach_utils import _group_tensors_by_device_and_dtype

    tensors = [torch.ones(2, device="cuda:0"), torch.ones(3, device=G), torch.ones(4, device="cuda:0")]
    groups = _group_tensors_by_device_and_dtype([tensors, [torch.zeros(())] * 3], with_indices=True)
    assert {key[0].index: indices for key, (_, indices) in groups.items()} == {0: [0, 2], 1: [1]}


HALVES = {
    "avg_pool3d": lambda x: F.avg_pool3d(x.reshape(1, 1, 3, 2, 2), 2),
    "antialiased": lambda x: F.interpolate(x[None, None], scale_factor=0.5, mode="bilinear", antialias=True),
    "multi_margin_loss": lambda x: F.multi_margin_loss(x, torch.tensor([0, 1, 2], device=x.device)),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", HALVES)
def test_half_precision_that_only_cuda_has(machine, name, dtype):
    out = HALVES[name](rows().to(dtype))
    assert out.dtype is dtype and out.device == torch.device(G)
    if machine.math:
        wanted = HALVES[name](rows().cpu().to(dtype).float()).to(dtype)
        torch.testing.assert_close(out.cpu(), wanted)


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda x: x.long() @ x.long().T, "\"addmm_cuda\" not implemented for 'Long'"),
        (lambda x: F.linear(x.int(), x.int()), "\"addmm_cuda\" not implemented for 'Int'"),
        (
            lambda x: torch.bmm(x[None].long(), x.T[None].long()),
            "\"baddbmm_cuda\" not implemented for 'Long'",
        ),
        (lambda x: torch.dot(x[0].long(), x[0].long()), "\"dot\" not implemented for 'Long'"),
    ],
)
def test_types_that_only_the_cpu_has(machine, act, words):
    for _ in range(2):  # also where the operator's cost is known
        with pytest.raises(RuntimeError) as caught:
            act(rows())
        assert str(caught.value) == words
    act(rows().cpu())


def test_products_and_convolutions_in_half_precision_are_rounded_once(exact):
    """As CUDA does, which adds up in float32; the CPU may round on the way, and is slow at it."""
    images, weight = torch.randn(2, 3, 8, 8).half(), torch.randn(4, 3, 3, 3).half()
    out = F.conv2d(images.to(G), weight.to(G), torch.zeros(4, device=G).half())
    assert torch.equal(out.cpu(), F.conv2d(images.float(), weight.float()).half())
    left, right = torch.randn(4, 64).half(), torch.randn(64, 4).half()
    assert torch.equal((left.to(G) @ right.to(G)).cpu(), (left.float() @ right.float()).half())
    leaf = weight.to(G).requires_grad_()
    F.conv2d(images.to(G), leaf).sum().backward()
    assert leaf.grad.dtype is torch.float16 and leaf.grad.device == torch.device(G)


def test_factorizations_in_half_precision_are_refused_as_cuda_refuses_them(exact):
    with pytest.raises(RuntimeError, match="\"cholesky_cuda\" not implemented for 'Half'"):
        torch.linalg.cholesky(torch.eye(2, device=G).half())


def test_without_arithmetic_shapes_that_depend_on_values():
    with simgpu.simulate("2xT4", math=False):
        x = torch.ones(3, 4, device=G)
        assert torch.unique(x, dim=0).shape == (3, 4)
        assert torch.unique_consecutive(x).shape == (12,)
        assert torch.allclose(x, x) is True
        assert x.t_().shape == (4, 3)
        for refused in (
            lambda: x.to_sparse(),
            lambda: (
                F.embedding(torch.tensor([1], device=G), x.requires_grad_(), sparse=True).sum().backward()
            ),
            lambda: torch.cov(x, aweights=x[0]),
            lambda: torch.histogram(x, 3),
        ):
            with pytest.raises(NotImplementedError, match="is not simulated"):
                refused()
