"""How long one ATen operator keeps a simulated GPU busy: a roofline over its FLOPs and its bytes.

What the number is not: a prediction for a kernel. It knows no caches, no fusion, no choice of algorithm and
no kernel too small to fill the GPU. It is right on the average over the operators of a training step.

    seconds = max(FLOPs / achieved FLOP/s of the data type, bytes / achieved bytes/s)

FLOPs are those of torch.utils.flop_counter (a multiply-add counts as two), whose formulas the functions here
correct and complete. Bytes are those of every input read once and every output written once, with the
exceptions in the tables below. Views and other operators that only touch metadata are free. Nothing is
computed: shapes and types suffice, so tensors on the meta device serve as well as any.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.utils.flop_counter import flop_registry

from .profiles import GPU

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
# Normalizing needs the statistics of the whole input first, so it is read twice: once in the forward pass
# (mean and variance, then the result), and in the backward pass both the input and the gradient are.
_READ_TWICE = {"native_batch_norm": 1, "native_layer_norm": 1, "native_group_norm": 1,
               "native_batch_norm_backward": 2, "native_layer_norm_backward": 2,
               "native_group_norm_backward": 2, "_softmax": 1, "_log_softmax": 1}  # fmt: skip


class Work(NamedTuple):
    """What an operator asks of the device."""

    flops: int
    nbytes: int
    rates: tuple[str, ...]  # whose achieved rate counts: the first that the GPU has
    grouped: bool  # a convolution in groups, which uses the device far less well


def seconds(func: Any, args: tuple, kwargs: dict, out: Any, gpu: GPU) -> float:
    """Return the seconds for which `func(*args, **kwargs)`, which gave `out`, keeps `gpu` busy.

    `func` is an OpOverload. A data type that the GPU has no rate for (bfloat16 before Ampere) goes at that of
    float32, in which such GPUs compute it.
    """
    if is_free(func):
        return 0.0
    asked = work(func, args, kwargs, out)
    moving = asked.nbytes / (gpu.achieved_bandwidth_gb_s.value * 1e9)
    if not asked.flops:
        return moving
    rates = gpu.achieved_tflops
    rate = next(rates[name].value for name in (*asked.rates, "float32") if name in rates) * 1e12
    if asked.grouped:
        rate *= gpu.grouped_share.value
    return max(asked.flops / rate, moving)


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
    dtype = next((tensor.dtype for tensor in tensors if tensor.dtype.is_floating_point), None)
    rates: tuple[str, ...] = (str(dtype).removeprefix("torch."),)
    groups = 1
    if name in ("convolution", "convolution_backward"):
        groups = args[8] if name == "convolution" else args[9]
        if dtype is torch.float32:  # cuDNN uses TF32 by default, matrix multiplication does not
            rates = ("tfloat32",)
    return Work(flops(func, args, kwargs, out), _bytes(func, name, tensors, args, out), rates, groups > 1)


def _bytes(func: Any, name: str, tensors: list[torch.Tensor], args: tuple, out: Any) -> int:
    written = sum(map(_size, _tensors(out)))
    if not func._schema.returns:  # torch._foreach_add_ and the like: they write their first list
        written = sum(map(_size, _tensors(args[:1])))
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
