"""Functions that torch composes of operators: they see the simulated devices as they see real ones."""

from __future__ import annotations

import pytest
import torch

from grader import simgpu


@pytest.fixture
def machine():
    with simgpu.simulate("2xT4") as machine:
        yield machine


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputing_draws_the_same_dropout_again(machine, reentrant):
    x = torch.ones(200, device="cuda", requires_grad=True)
    y = torch.utils.checkpoint.checkpoint(
        lambda t: torch.nn.functional.dropout(t, 0.5), x, use_reentrant=reentrant
    )
    y.sum().backward()
    assert torch.equal(y, x.grad)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("form", ["lists", "on the CPU", "on the GPU", "of cuDNN"])
def test_ctc_loss_takes_lengths_from_wherever_they_are(machine, reduction, form):
    scores = torch.randn(10, 2, 5)
    targets = torch.tensor([[1, 2, 3], [4, 1, 2]])
    lengths = [10, 8], [3, 2]
    loss = torch.nn.functional.ctc_loss
    with simgpu.unobserved():
        expected = loss(scores.log_softmax(2), targets, *lengths, reduction=reduction)
    on_gpu = scores.cuda().requires_grad_()
    where = "cuda" if form == "on the GPU" else "cpu"
    given = lengths if form == "lists" else [torch.tensor(length, device=where) for length in lengths]
    targets = torch.tensor([1, 2, 3, 4, 1], dtype=torch.int32) if form == "of cuDNN" else targets.cuda()
    got = loss(on_gpu.log_softmax(2), targets, *given, reduction=reduction)
    got.sum().backward()
    assert got.device == on_gpu.grad.device == torch.device("cuda:0")
    torch.testing.assert_close(got.cpu(), expected)


@pytest.mark.parametrize("level", [torch.quantile, torch.nanquantile], ids=lambda level: level.__name__)
def test_quantiles_in_inference_mode(machine, level):
    with torch.inference_mode():
        assert level(torch.arange(5.0, device="cuda"), 0.5).item() == 2.0
