"""Types of numbers that CUDA's kernels do not take, alone or together: refused in CUDA's words."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from grader import simgpu

G = "cuda:0"


@pytest.fixture(params=[True, False], ids=["math", "no-math"])
def machine(request):
    with simgpu.simulate("2xT4", math=request.param) as machine:
        yield machine


def square(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(2, 2, device=G, dtype=dtype)


HALF, FLOAT = torch.float16, torch.float32
FOUND = "expected scalar type {} but found {}"
TYPES = "Input type (torch.cuda.{}Tensor) and weight type (torch.cuda.{}Tensor) should be the same"
MIXTURES = {
    "half linear": (
        lambda: nn.Linear(2, 2).to(G).half()(square()),
        "mat1 and mat2 must have the same dtype, but got Float and Half",
    ),
    "half batch": (
        lambda: nn.Linear(2, 2).to(G)(square(HALF)),
        "mat1 and mat2 must have the same dtype, but got Half and Float",
    ),
    "added": (
        lambda: torch.addmm(square(), square(HALF), square(HALF)),
        "self and mat2 must have the same dtype, but got Float and Half",
    ),
    "half @ float": (
        lambda: square(HALF) @ square(),
        "expected mat1 and mat2 to have the same dtype, but got: c10::Half != float",
    ),
    "double @ float": (
        lambda: square(torch.float64) @ square(),
        "expected mat1 and mat2 to have the same dtype, but got: double != float",
    ),
    "mv": (
        lambda: square(HALF) @ square()[0],
        "addmv input tensors must have the same dtype, but got Float, Half, and Float",
    ),
    "bmm": (lambda: square(HALF)[None] @ square()[None], FOUND.format("Half", "Float")),
    "half images": (
        lambda: F.conv2d(square(HALF)[None, None], square()[None, None]),
        TYPES.format("Half", "Float"),
    ),
    "half filters": (
        lambda: F.conv2d(square()[None, None], square(HALF)[None, None]),
        TYPES.format("Float", "Half"),
    ),
    "layer norm": (lambda: nn.LayerNorm(2).to(G)(square(HALF)), FOUND.format("Half", "Float")),
    "half layer norm": (lambda: nn.LayerNorm(2).to(G).half()(square()), FOUND.format("Float", "Half")),
    "group norm": (lambda: nn.GroupNorm(1, 2).to(G)(square(HALF)), FOUND.format("Half", "Float")),
    "half batch norm": (
        lambda: F.batch_norm(square(), None, None, square(HALF)[0], square(HALF)[0], True),
        FOUND.format("Float", "Half"),
    ),
    "assignment": (
        lambda: square().index_put_((torch.tensor([0], device=G),), square(HALF)[:1]),
        "Index put requires the source and destination dtypes match, got Float for the destination and "
        "Half for the source.",
    ),
    "labels": (
        lambda: F.binary_cross_entropy(square(), square(torch.float64)),
        "Found dtype Double but expected Float",
    ),
    "indices": (
        lambda: nn.Embedding(2, 2).to(G)(square()),
        "Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but "
        "got torch.cuda.FloatTensor instead (while checking arguments for embedding)",
    ),
    "int32 labels": (
        lambda: F.cross_entropy(square(), torch.zeros(2, dtype=torch.int32, device=G)),
        "expected target dtype to be Long or Byte, but got Int",
    ),
    "float labels": (
        lambda: F.cross_entropy(square(), torch.zeros(2, device=G)),
        "expected target dtype to be Long or Byte, but got Float",
    ),
    "softmax of integers": (
        lambda: F.cross_entropy(square(torch.int64), torch.zeros(2, dtype=torch.int64, device=G)),
        "\"host_softmax\" not implemented for 'Long'",
    ),
}


@pytest.mark.parametrize("name", MIXTURES)
def test_types_are_refused_in_cudas_words(machine, name):
    compute, words = MIXTURES[name]
    with pytest.raises(RuntimeError) as caught:
        compute()
    assert str(caught.value) == words


def test_half_precision_is_normalized_with_parameters_in_float32(machine):
    images = torch.ones(2, 3, 2, 2, device=G, dtype=HALF)
    assert nn.BatchNorm2d(3).to(G)(images).dtype is HALF


def test_layers_in_half_precision_take_half_precision(machine):
    layers = (
        nn.Sequential(nn.Conv2d(3, 4, 1), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(16, 2)).to(G).half()
    )
    assert layers(torch.ones(2, 3, 2, 2, device=G, dtype=HALF)).dtype is HALF


def test_what_torch_refuses_everywhere_is_refused_in_its_words(machine):
    if machine.math:
        with pytest.raises(RuntimeError, match="^Boolean inputs not supported for relu$"):
            square(torch.bool).relu()
