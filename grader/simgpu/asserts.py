"""Failures that only CUDA has: a value that a kernel finds impossible.

The CPU raises at once where an index or a label is out of range. A CUDA kernel asserts instead: it prints
a line for each thread that failed, and the process hears of it at the next thing that it asks of that
device, which may be far from the mistake. From then on the device is lost to the process: everything asked
of it ends in the same error. Other devices, and the CPU, go on.

Kernels, and what they assert, are those of torch's aten/src/ATen/native/cuda; numbers of lines are those
that some release from 2.7 to 2.9 printed, and change with every release.
"""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from . import unreal
from .errors import NotSimulated, device_side_assert
from .operators import Operator, tensors_in

if TYPE_CHECKING:
    from .machine import Machine

_MOST_LINES = 8  # a kernel prints one for each thread that fails


class Assertion(NamedTuple):
    """An assertion of a kernel, and what the CPU says of the same mistake."""

    cpu: str  # regular expression for the CPU's message; its group is the value that was wrong
    file: str  # below aten/src/ATen/native/cuda, with the line
    kernel: str
    condition: str
    threads: int = 128  # of a block

    def line(self, position: int) -> str:
        """What the thread that works on the element at this position prints."""
        block, thread = divmod(position, self.threads)
        return (
            f"/pytorch/aten/src/ATen/native/cuda/{self.file}: {self.kernel}: block: [{block},0,0], "
            f"thread: [{thread},0,0] Assertion `{self.condition}` failed."
        )


_OUT_OF_BOUNDS = r"index (-?\d+) is out of bounds|index out of range|INDICES element is out of DATA bounds"
_INDEX = Assertion(
    _OUT_OF_BOUNDS,
    "IndexKernel.cu:111",
    "operator()",
    '-sizes[i] <= index && index < sizes[i] && "index out of bounds"',
)
_SELECT = Assertion(
    _OUT_OF_BOUNDS, "Indexing.cu:1553", "indexSelectSmallIndex", "srcIndex < srcSelectDimSize"
)
_SCATTER = Assertion(
    _OUT_OF_BOUNDS,
    "ScatterGatherKernel.cu:163",
    "operator()",
    'idx_dim >= 0 && idx_dim < index_size && "index out of bounds"',
)
_ADD = Assertion(_OUT_OF_BOUNDS, "Indexing.cu:1040", "indexFuncSmallIndex", "dstIndex < dstAddDimSize")
_LABEL = Assertion(
    r"Target (-?\d+) is out of bounds",
    "Loss.cu:245",
    "nll_loss_forward_reduce_cuda_kernel_2d",
    "t >= 0 && t < n_classes",
    32,
)
_PIXEL_LABEL = Assertion(
    r"Target (-?\d+) is out of bounds",
    "NLLLoss2d.cu:103",
    "nll_loss2d_forward_kernel",
    "t >= 0 && t < n_classes",
)
_PROBABILITY = (
    Assertion(
        "elements of input should be between 0 and 1",
        "Loss.cu:94",
        "operator()",
        "input_val >= zero && input_val <= one",
    ),
    Assertion(
        "elements of target should be between 0 and 1",
        "Loss.cu:95",
        "operator()",
        "target_val >= zero && target_val <= one",
    ),
)
_WEIGHTS = "probability tensor contains either `inf`, `nan` or element < 0"
_MULTINOMIAL = Assertion(re.escape(_WEIGHTS), "TensorCompare.cu:109", "_assert_async_cuda_kernel", _WEIGHTS)
_BAG = Assertion(
    r"but found idx to be (-?\d+)|" + _OUT_OF_BOUNDS,
    "EmbeddingBag.cu:141",
    "EmbeddingBag_updateOutputKernel_sum_mean",
    "0 <= input_idx && input_idx < numRows",
)
_TAKE = Assertion(
    r"tried to access index (-?\d+)|" + _OUT_OF_BOUNDS,
    "IndexKernel.cu:304",
    "operator()",
    'idx < numel && idx >= -numel && "cuda_take_put_kernel() index out of bounds"',
)
_MARGIN = Assertion(
    "target out of range",
    "MultiMarginLoss.cu:49",
    "MultiMarginLoss_forward_kernel",
    'target_k >= 0 && target_k < dim && "target index is out of bounds"',
)
_ASSERTIONS: dict[str, tuple[Assertion, ...]] = {
    **dict.fromkeys(("index", "_unsafe_index", "index_put", "index_put_", "_index_put_impl_"), (_INDEX,)),
    **dict.fromkeys(("index_fill", "index_fill_", "index_copy", "index_copy_"), (_INDEX,)),
    **dict.fromkeys(("index_select", "embedding"), (_SELECT,)),
    **dict.fromkeys(("index_add", "index_add_", "index_reduce", "index_reduce_"), (_ADD,)),
    **dict.fromkeys(("gather", "scatter", "scatter_", "scatter_add", "scatter_add_"), (_SCATTER,)),
    **dict.fromkeys(("scatter_reduce", "scatter_reduce_"), (_SCATTER,)),
    **dict.fromkeys(("nll_loss_forward", "nll_loss_backward"), (_LABEL,)),
    **dict.fromkeys(("nll_loss2d_forward", "nll_loss2d_backward"), (_PIXEL_LABEL,)),
    **dict.fromkeys(("binary_cross_entropy", "binary_cross_entropy_backward"), _PROBABILITY),
    "multinomial": (_MULTINOMIAL,),
    **dict.fromkeys(("_embedding_bag", "_embedding_bag_forward_only"), (_BAG,)),
    **dict.fromkeys(("take", "put", "put_"), (_TAKE,)),
    "multi_margin_loss": (_MARGIN,),
}


def translate(
    machine: Machine, operator: Operator, args: tuple, kwargs: dict[str, Any], error: Exception, device: int
) -> Any:
    """The result of a launch whose kernel is going to fail, for a mistake that CUDA finds in the kernel.

    Its values mean nothing. Raises `error` where CUDA, too, finds the mistake before it launches anything.
    With CUDA_LAUNCH_BLOCKING=1 the launch waits for the kernel, and raises.
    """
    for assertion in _ASSERTIONS.get(operator.name, ()):
        found = re.search(assertion.cpu, str(error))
        if found is not None:
            break
    else:
        raise error
    try:
        known, out = unreal.at_once(operator, args, kwargs)
        if not known:
            out = unreal.make(unreal.shapes(operator, args, kwargs))
    except (NotSimulated, RuntimeError):
        raise error from None
    value = next((group for group in found.groups() if group is not None), None)
    for position in _positions(value, tensors_in(args, kwargs)):
        print(assertion.line(position), file=sys.stderr)
    machine.poison(device, device_side_assert())
    if os.environ.get("CUDA_LAUNCH_BLOCKING") == "1":
        machine.raise_poison(device)
    return out


def _positions(value: str | None, tensors: list[torch.Tensor]) -> list[int]:
    """Where in a tensor of indices or labels the wrong value is; [0] if the CPU did not say which it was."""
    for tensor in tensors if value is not None else ():
        if not tensor.dtype.is_floating_point and tensor.dtype is not torch.bool:
            places = (tensor.reshape(-1) == int(value or 0)).nonzero().reshape(-1)
            if len(places):
                return places[:_MOST_LINES].tolist()
    return [0]
