"""Gradients that Python hands to autograd must be on the device where CUDA wants them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from grader import simgpu


@pytest.fixture(params=[True, False], ids=["math", "no-math"], autouse=True)
def machine(request):
    with simgpu.simulate("2xT4", math=request.param) as machine:
        yield machine


class Double(torch.autograd.Function):
    """Doubles on the CPU; `give` is what its backward makes of the gradient."""

    @staticmethod
    def forward(ctx, x, give, y=None):
        ctx.give = give
        return x.cpu() * 2

    @staticmethod
    def backward(ctx, gradient):
        return ctx.give(gradient), None, None


def leaf(device="cuda"):
    return torch.ones(3, device=device, requires_grad=True)


def test_a_function_must_give_gradients_where_its_inputs_are():
    with pytest.raises(
        RuntimeError,
        match="^Function DoubleBackward returned an invalid gradient at index 0 - "
        "expected device cuda:0 but got cpu$",
    ):
        Double.apply(leaf(), lambda g: g * 2).sum().backward()


def test_a_function_s_gradient_where_its_input_is():
    x = leaf("cuda:1")
    Double.apply(x, lambda g: (g * 2).to("cuda:1")).sum().backward()
    assert x.grad.device == torch.device("cuda:1")


def test_a_number_is_moved_to_the_input():
    x = torch.tensor(1.0, device="cuda", requires_grad=True)
    Double.apply(x, lambda g: g * 2).backward()
    assert x.grad.device == torch.device("cuda:0")


def test_a_hook_may_not_move_a_gradient():
    y = leaf() * 2
    y.register_hook(lambda g: torch.zeros(3))
    with pytest.raises(
        RuntimeError,
        match=r"^hook '<lambda>' has changed the type of value "
        r"\(was torch\.cuda\.FloatTensor got torch\.FloatTensor\)$",
    ):
        y.sum().backward()


@pytest.mark.parametrize("make", [torch.arange, torch.zeros, torch.rand], ids=lambda make: make.__name__)
def test_a_tensor_that_a_hook_makes_on_the_cpu_stays_there(make):
    y = leaf() * 2
    y.register_hook(lambda g: g * make(3))
    with pytest.raises(RuntimeError, match="at least two devices, cuda:0 and cpu!"):
        y.sum().backward()


def test_hooks_that_stay_on_the_gpu_work_and_can_be_removed():
    x = leaf()
    handle = x.register_hook(lambda g: g * torch.full((3,), 5.0, device="cuda"))
    (x * 2).sum().backward()
    handle.remove()
    (x * 2).sum().backward()
    assert x.grad.device == torch.device("cuda:0")


def test_the_gradient_of_a_leaf_on_the_cpu_stays_there():
    parameter = nn.Parameter(torch.ones(3))
    parameter.sum().backward()
    with pytest.raises(RuntimeError, match="at least two devices"):
        parameter.grad + torch.ones(3, device="cuda")
    assert parameter.grad.device == torch.device("cpu")


def test_gradients_that_backward_begins_with_must_be_on_the_gpu():
    words = "^invalid gradient at index 0 - expected device cuda:0 but got cpu$"
    x = leaf()
    with pytest.raises(RuntimeError, match=words):
        (x * 2).backward(torch.ones(3))
    with pytest.raises(RuntimeError, match=words):
        torch.autograd.grad(x * 2, x, grad_outputs=torch.ones(3))
    (x * 2).sum().backward(torch.tensor(2.0))  # a number may be anywhere
    assert x.grad.tolist() == [4.0, 4.0, 4.0]


def test_a_leaf_moved_by_its_data_keeps_the_gradient_that_it_had_on_the_cpu():
    parameter = nn.Parameter(torch.ones(3))
    parameter.sum().backward()
    parameter.data = parameter.data.cuda()
    with pytest.raises(RuntimeError, match="at least two devices, cuda:0 and cpu!"):
        (parameter * torch.ones(3, device="cuda")).sum().backward()
