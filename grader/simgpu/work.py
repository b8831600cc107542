"""What one ATen operator asks of a GPU: FLOPs, bytes, and how they are cut into kernels.

FLOPs come from the formulas of torch.utils.flop_counter, which are corrected and completed here: gradients of
convolutions in groups (it multiplies by all channels), and attention under the names that it has for CPU
tensors. Only shapes and types are read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.utils.flop_counter import flop_registry

aten = torch.ops.aten

# Allocation and bookkeeping: nothing runs on the device. Reading a scalar is a wait and a copy of bytes.
_METADATA = {
    "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "resize_", "set_",
    "_unsafe_view", "_local_scalar_dense", "lift", "lift_fresh",
}  # fmt: skip
# The first argument gives its shape or its memory, and is not read.
_UNREAD = {
    "copy_", "zero_", "fill_", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "new_zeros",
    "new_ones", "new_full", "normal_", "uniform_", "bernoulli_", "random_", "exponential_",
}  # fmt: skip
# Of the first argument only as many elements are read as are given back.
_PICKS = {"embedding", "index", "index_select", "gather", "take", "take_along_dim"}
# Normalizing over more than a row needs the statistics of the whole input first, so it is read twice: once in
# the forward pass (mean and variance, then the result); in the backward pass both the input and the gradient
# are. A row (of a layer norm or a softmax) stays on the chip, except that the backward pass of a layer norm
# also sums over rows.
_READ_TWICE = {"native_batch_norm": 1, "native_group_norm": 1, "native_batch_norm_backward": 2,
               "native_layer_norm_backward": 2, "native_group_norm_backward": 2}  # fmt: skip
# Kernels over lists of tensors take so many at once: torch's MultiTensorApply passes at most 110 addresses of
# one list to a kernel, 48 of each of three.
_TENSORS_A_KERNEL = 48
_TILE = 64 * 64  # results
_DEPTH = 1024  # products; longer sums are split over several multiprocessors


class Work(NamedTuple):
    """What an operator asks of the device."""

    flops: int
    nbytes: int
    family: str  # one of parts.FAMILIES; only what has FLOPs is told apart
    dtype: str  # of the first floating-point input, by torch's name
    itemsize: int  # bytes of an element of it
    kernels: int
    tiles: int  # into which the results are cut
    apart: int  # bytes of passes of their own


_WORK: dict[tuple, Work] = {}
_WORK_ENTRIES = 100_000  # a script whose shapes never repeat must not fill the memory


def work(func: Any, args: tuple, kwargs: dict, out: Any) -> Work:
    """Return what a call asks of the device; the answer is kept for each operator, shapes and types."""
    parts: list[Any] = [func]
    _describe(args, parts)
    if kwargs:
        _describe(tuple(kwargs.values()), parts)
    _describe(out, parts)
    key = tuple(parts)
    known = _WORK.get(key)
    if known is None:
        if len(_WORK) >= _WORK_ENTRIES:
            _WORK.clear()
        known = _WORK[key] = _work(func, args, kwargs, out)
    return known


def flops(func: Any, args: tuple, kwargs: dict, out: Any) -> int:
    """Return the floating-point operations of a call; 0 for one whose time is that of its bytes."""
    packet = func.overloadpacket
    formula = _FORMULAS.get(packet) or flop_registry.get(packet)
    return 0 if formula is None else int(formula(*args, **kwargs, out_val=out))


_FREE: dict[Any, bool] = {}


def is_free(func: Any) -> bool:
    """Whether `func` leaves the device idle: it returns a view, or only touches metadata."""
    known = _FREE.get(func)
    if known is None:
        returns = func._schema.returns
        view = any(value.alias_info is not None and not value.alias_info.is_write for value in returns)
        known = _FREE[func] = view or func.overloadpacket.__name__ in _METADATA
    return known


def _work(func: Any, args: tuple, kwargs: dict, out: Any) -> Work:
    name = func.overloadpacket.__name__
    tensors = _tensors((args, tuple(kwargs.values())))
    first = next((tensor for tensor in tensors if tensor.dtype.is_floating_point), None)
    dtype = torch.float32 if first is None else first.dtype
    family, kernels, results, apart = "matmul", 1, 0, 0
    if name == "convolution":
        family, results = _convolution_family(args[1], args[8]), out.numel()
        apart = 0 if args[2] is None else 2 * _size(out)  # the result read, and written with the bias
        kernels += args[2] is not None
    elif name == "convolution_backward":
        # The gradients are cut into about as many tiles as the results, by splitting their sums.
        family, results = _convolution_family(args[2], args[9]), args[0].numel()
        apart = _size(args[0]) if args[10][2] else 0  # the gradient of the bias sums that of the result
        kernels = max(1, sum(map(bool, args[10])))
    elif "attention" in name:
        family = "attention"
    elif name.startswith("_foreach_"):
        kernels = -(-len(_tensors(args[:1])) // _TENSORS_A_KERNEL)
    count = flops(func, args, kwargs, out)
    results = max(1, results or sum(tensor.numel() for tensor in _tensors(out)))
    return Work(
        count,
        _bytes(func, name, tensors, args, out),
        family,
        str(dtype).removeprefix("torch."),
        dtype.itemsize,
        kernels,
        -(-results // _TILE) * max(1, count // (2 * results * _DEPTH)),
        apart,
    )


def _convolution_family(weight: torch.Tensor, groups: int) -> str:
    if groups == 1:
        return "convolution"
    return "depthwise" if weight.shape[1] == 1 else "grouped"


def _bytes(func: Any, name: str, tensors: list[torch.Tensor], args: tuple, out: Any) -> int:
    written = sum(map(_size, _tensors(out)))
    if not func._schema.returns:  # torch._foreach_add_, torch._fused_adam_: they write what they are given
        arguments = zip(func._schema.arguments, args, strict=False)
        written = sum(
            sum(map(_size, _tensors(value)))
            for argument, value in arguments
            if argument.alias_info is not None and argument.alias_info.is_write
        )
    read = sum(map(_size, tensors))
    if tensors and name in _UNREAD:
        read -= _size(tensors[0])
    elif tensors and name in _PICKS:
        read += min(written, _size(tensors[0])) - _size(tensors[0])
    read += sum(map(_size, tensors[: _READ_TWICE.get(name, 0)]))
    return read + written


def _size(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [tensor for item in value for tensor in _tensors(item)]
    return []


_PLAIN = (
    int,
    bool,
    type(None),
)  # of a call's other arguments a float, say, never changes what there is to do


def _describe(value: Any, parts: list[Any]) -> None:
    kind = type(value)  # asked first, as isinstance(..., torch.Tensor) is slow
    if kind in _PLAIN:
        parts.append(value)
    elif issubclass(kind, (list, tuple)):
        parts.append(len(value))
        for item in value:
            _describe(item, parts)
    elif isinstance(value, torch.Tensor):
        parts.append(value.shape)
        parts.append(value.dtype)


def _convolution_backward(
    grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, *how: Any, out_val: Any = None
) -> int:
    """Each of the two gradients repeats the multiplications of the forward pass.

    weight.shape[1] is the number of channels in a group, so nothing else needs to know of the groups
    (flop_counter multiplies by all channels in the gradient of the weight).
    """
    *_, transposed, _output_padding, _groups, mask = how
    positions = (x if transposed else grad).shape[2:].numel()
    return 2 * positions * x.shape[0] * weight.numel() * (bool(mask[0]) + bool(mask[1]))


_FORMULAS: dict[Any, Callable[..., int]] = {aten.convolution_backward: _convolution_backward}
for _cpu, _gpu in (  # attention on CPU tensors has names of its own
    ("_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention"),
    ("_scaled_dot_product_flash_attention_for_cpu_backward", "_scaled_dot_product_flash_attention_backward"),
):
    if hasattr(aten, _cpu):
        _FORMULAS[getattr(aten, _cpu)] = flop_registry[getattr(aten, _gpu)]
