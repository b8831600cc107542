"""Shapes that do not fit are refused in the words of torch's kernels, with arithmetic and without."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from grader import simgpu


def ones(*shape: int) -> torch.Tensor:
    return torch.ones(*shape, device="cuda" if torch.cuda.is_available() else "cpu")


def labels(*shape: int) -> torch.Tensor:
    return ones(*shape).long() * 0


def on_device(module: nn.Module) -> nn.Module:
    return module.to(ones(1).device)


MISFITS = {
    "linear": lambda: on_device(nn.Linear(8, 4))(ones(2, 4)),
    "matmul": lambda: ones(2, 4) @ ones(8, 4),
    "vector": lambda: ones(2, 3) @ ones(4),
    "convolution": lambda: on_device(nn.Conv2d(3, 4, 3))(ones(2, 1, 8, 8)),
    "transposed convolution": lambda: on_device(nn.ConvTranspose2d(3, 4, 3))(ones(2, 1, 8, 8)),
    "layer norm": lambda: on_device(nn.LayerNorm(4))(ones(2, 3)),
    "cat": lambda: torch.cat([ones(2, 3), ones(3, 4)]),
    "add": lambda: ones(2, 3) + ones(4),
    "add in place": lambda: ones(1).add_(ones(5)),
    "copy": lambda: ones(4).copy_(ones(5)),
    "where": lambda: torch.where(ones(4).bool(), ones(3), ones(4)),
    "index": lambda: ones(2, 3)[5],
    "gather": lambda: ones(2, 3).gather(1, labels(5, 5)),
    "index_add": lambda: ones(2, 3).index_add_(0, labels(3), ones(2, 3)),
    "softmax": lambda: ones(2, 3).softmax(5),
    "pad": lambda: F.pad(ones(1, 3, 4, 4), (5, 5, 5, 5), mode="reflect"),
}


@pytest.mark.parametrize("math", [True, False], ids=["math", "no-math"])
@pytest.mark.parametrize("name", MISFITS)
def test_shapes_are_refused_in_the_words_of_the_kernels(name, math):
    with pytest.raises((RuntimeError, IndexError)) as expected:
        MISFITS[name]()
    with simgpu.simulate("2xT4", math=math):
        with pytest.raises(type(expected.value)) as caught:
            MISFITS[name]()
        assert str(caught.value) == str(expected.value)
        assert torch.ones(1, device="cuda").item() in (0, 1)  # the device goes on


def test_without_arithmetic_masks_may_be_assigned_through():
    with simgpu.simulate("2xT4", math=False):
        x = ones(4, 3)
        x[ones(4).bool()] = ones(2, 3)
        x[labels(2)] = ones(2, 3)
        assert F.cross_entropy(x, labels(4).to(torch.uint8)).shape == ()
