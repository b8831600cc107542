"""What CUDA says of inputs of different types of numbers, where its kernels want one.

The CPU's kernels say it in other words or compute it all the same, and shapes alone do not show it. Each
rule stands for a comparison in torch's aten/src/ATen/native, in the file that it names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .mismatch import LEGACY_NAMES

_C_NAMES = {
    torch.float32: "float", torch.float64: "double", torch.float16: "c10::Half",
    torch.bfloat16: "c10::BFloat16", torch.int64: "long", torch.int32: "int", torch.uint8: "unsigned char",
    torch.bool: "bool",
}  # fmt: skip
Rule = Callable[..., str | None]


def refusal(name: str, args: tuple) -> str | None:
    """What CUDA's kernel of the operator says of the types of these arguments; None if it takes them."""
    rule = _RULES.get(name)
    return rule(*args) if rule is not None else None


def legacy(dtype: torch.dtype) -> str:
    """A type as torch's older messages name it: "Half"."""
    return LEGACY_NAMES.get(dtype, str(dtype).removeprefix("torch.").title())


def _c(dtype: torch.dtype) -> str:
    return _C_NAMES.get(dtype, str(dtype).removeprefix("torch."))


def _mm(first: torch.Tensor, second: torch.Tensor, *_: Any) -> str | None:
    """`addmm_out_cuda_impl` in cuda/Blas.cpp."""
    if first.dtype is second.dtype:
        return None
    names = f"{_c(first.dtype)} != {_c(second.dtype)}"
    return f"expected mat1 and mat2 to have the same dtype, but got: {names}"


def _addmm(added: torch.Tensor, first: torch.Tensor, second: torch.Tensor, *_: Any) -> str | None:
    """`ADDMM_META` in LinearAlgebra.cpp."""
    for name, tensor in (("self", added), ("mat1", first)):
        if tensor.dtype is not second.dtype:
            names = f"{legacy(tensor.dtype)} and {legacy(second.dtype)}"
            return f"{name} and mat2 must have the same dtype, but got {names}"
    return None


def _addmv(added: torch.Tensor, matrix: torch.Tensor, vector: torch.Tensor, *_: Any) -> str | None:
    """`addmv` in LinearAlgebra.cpp, or its successor there."""
    if added.dtype is matrix.dtype is vector.dtype:
        return None
    names = [legacy(tensor.dtype) for tensor in (added, matrix, vector)]
    return "addmv input tensors must have the same dtype, but got {}, {}, and {}".format(*names)


def _dot(first: torch.Tensor, second: torch.Tensor) -> str | None:
    """`dot_check` in cuda/Blas.cpp."""
    if first.dtype is second.dtype:
        return None
    names = f"{legacy(first.dtype)} and {legacy(second.dtype)}"
    return f"dot : expected both vectors to have same dtype, but found {names}"


def _expected(first: torch.Tensor, *others: Any) -> str | None:
    """`data_ptr` of a tensor whose type is not the one that the kernel was chosen for: core/TensorMethods."""
    for tensor in others:
        if isinstance(tensor, torch.Tensor) and tensor.dtype is not first.dtype:
            return f"expected scalar type {legacy(first.dtype)} but found {legacy(tensor.dtype)}"
    return None


def _batch_norm(images: torch.Tensor, *parameters: Any) -> str | None:
    """Half precision may be normalized with parameters in float32, and nothing else be mixed."""
    narrow = images.dtype in (torch.float16, torch.bfloat16)
    given = [tensor for tensor in parameters if isinstance(tensor, torch.Tensor)]
    return (
        None
        if narrow and all(tensor.dtype is torch.float32 for tensor in given)
        else _expected(images, *given)
    )


def _convolution(images: torch.Tensor, weight: torch.Tensor, bias: Any = None, *_: Any) -> str | None:
    """`check_input_same_type_as_parameters` in Convolution.cpp."""
    for name, tensor in (("weight", weight), ("bias", bias)):
        if tensor is not None and tensor.dtype is not images.dtype:
            types = [f"torch.cuda.{legacy(each.dtype)}Tensor" for each in (images, tensor)]
            return f"Input type ({types[0]}) and {name} type ({types[1]}) should be the same"
    return None


def _embedding(weight: torch.Tensor, indices: torch.Tensor, *_: Any) -> str | None:
    """`checkScalarTypes` in TensorUtils.cpp, called from Embedding.cpp."""
    if indices.dtype in (torch.int64, torch.int32):
        return None
    return (
        "Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but "
        f"got torch.cuda.{legacy(indices.dtype)}Tensor instead (while checking arguments for embedding)"
    )


def _index_put(destination: torch.Tensor, indices: Any, source: torch.Tensor, *_: Any) -> str | None:
    """`_index_put_impl_` in TensorAdvancedIndexing.cpp."""
    if destination.dtype is source.dtype:
        return None
    return (
        "Index put requires the source and destination dtypes match, got "
        f"{legacy(destination.dtype)} for the destination and {legacy(source.dtype)} for the source."
    )


def _scatter(destination: torch.Tensor, dim: int, index: torch.Tensor, source: Any, *_: Any) -> str | None:
    """`scatter_gather_dtype_check` in ScatterGatherChecks.h."""
    if not isinstance(source, torch.Tensor) or destination.dtype is source.dtype:
        return None
    return "scatter(): Expected self.dtype to be equal to src.dtype"


def _binary_cross_entropy(probabilities: torch.Tensor, target: torch.Tensor, *_: Any) -> str | None:
    """`compute_types` in TensorIterator.cpp, which is to promote nothing here."""
    if probabilities.dtype is target.dtype:
        return None
    return f"Found dtype {legacy(target.dtype)} but expected {legacy(probabilities.dtype)}"


def _labels(scores: torch.Tensor, target: torch.Tensor, *_: Any) -> str | None:
    """`nll_loss_forward` in LossNLL.cpp."""
    if target.dtype in (torch.int64, torch.uint8):
        return None
    return f"expected target dtype to be Long or Byte, but got {legacy(target.dtype)}"


def _lerp(start: torch.Tensor, end: torch.Tensor, *_: Any) -> str | None:
    """`lerp_Tensor` in Lerp.cpp."""
    if start.dtype is end.dtype:
        return None
    return f"expected dtype {_c(start.dtype)} for `end` but got dtype {_c(end.dtype)}"


_RULES: dict[str, Rule] = {
    "mm": _mm,
    **dict.fromkeys(("addmm", "addmm_", "_addmm_activation"), _addmm),
    **dict.fromkeys(("addmv", "addmv_"), _addmv),
    "mv": lambda matrix, vector: _addmv(vector, matrix, vector),
    **dict.fromkeys(("dot", "vdot"), _dot),
    **dict.fromkeys(("bmm", "baddbmm", "baddbmm_"), _expected),
    "native_layer_norm": lambda rows, shape, weight, bias, *_: _expected(rows, weight, bias),
    "native_group_norm": lambda images, weight, bias, *_: _expected(images, weight, bias),
    **dict.fromkeys(("native_batch_norm", "_native_batch_norm_legit", "cudnn_batch_norm"), _batch_norm),
    **dict.fromkeys(("convolution", "_convolution"), _convolution),
    **dict.fromkeys(("grid_sampler_2d", "grid_sampler_3d"), lambda images, grid, *_: _expected(images, grid)),
    **dict.fromkeys(("index_put", "index_put_", "_index_put_impl_", "_unsafe_index_put"), _index_put),
    **dict.fromkeys(("scatter", "scatter_"), _scatter),
    "embedding": _embedding,
    **dict.fromkeys(("nll_loss_forward", "nll_loss2d_forward"), _labels),
    "binary_cross_entropy": _binary_cross_entropy,
    **dict.fromkeys(("lerp", "lerp_"), _lerp),
}
