"""How long one ATen operator keeps a simulated GPU busy: a roofline over its FLOPs and its bytes.

What the number is not: a prediction for a kernel. It knows no caches, no fusion, no choice of algorithm. It
is right on the average over the operators of a training step, which is what an epoch consists of.

    seconds = max(FLOPs / achieved FLOP/s of the data type, bytes / achieved bytes/s)

FLOPs come from the formulas of torch.utils.flop_counter (a multiply-add counts as two); bytes are those of
every input read once and every output written once. Views and other operators that only touch metadata
are free. Nothing is computed: shapes and types suffice, so tensors on the meta device serve as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from .profiles import GPU

aten = torch.ops.aten


def flops(func: Any, args: tuple, kwargs: dict, out: Any) -> int:
    """Return the floating-point operations of a call, 0 for one whose time is that of its bytes."""
    formula = flop_registry.get(func.overloadpacket)
    if formula is None:
        return 0
    if func.overloadpacket is aten.convolution_backward:
        return _convolution_backward(*args, **kwargs)
    return formula(*args, **kwargs, out_val=out)


def seconds(func: Any, args: tuple, kwargs: dict, out: Any, gpu: GPU) -> float:
    """Return the seconds for which `func(*args, **kwargs)`, which gave `out`, keeps `gpu` busy."""
    if _free(func):
        return 0.0
    nbytes, dtype = _traffic(args, kwargs, out)
    rates = gpu.achieved_tflops
    rate = rates.get(str(dtype).removeprefix("torch."), rates["float32"]).value
    work = flops(func, args, kwargs, out)
    return max(work / (rate * 1e12), nbytes / (gpu.achieved_bandwidth_gb_s.value * 1e9))


def _convolution_backward(grad, x, weight, _bias, _stride, _padding, _dilation, transposed, _output_padding, groups, mask):
    """Each of the two gradients repeats the multiplications of the forward pass, which shape the weight:
    weight.shape[1] is already the number of channels per group."""
    positions = (x if transposed else grad).shape[2:].numel()
    once = 2 * positions * x.shape[0] * weight.numel()
    return once * (bool(mask[0]) + bool(mask[1]))


_FREE: dict[Any, bool] = {}
_METADATA = {"detach", "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_local_scalar_dense"}


def _free(func: Any) -> bool:
    known = _FREE.get(func)
    if known is None:
        known = _FREE[func] = func.is_view or func.overloadpacket.__name__ in _METADATA
    return known


def _traffic(args: tuple, kwargs: dict, out: Any) -> tuple[int, torch.dtype | None]:
    tensors: list[torch.Tensor] = []
    _collect(args, tensors.append)
    _collect(tuple(kwargs.values()), tensors.append)
    _collect(out, tensors.append)
    dtype = next((t.dtype for t in tensors if t.dtype.is_floating_point), None)
    return sum(t.numel() * t.element_size() for t in tensors), dtype


def _collect(value: Any, found: Callable[[torch.Tensor], None]) -> None:
    if isinstance(value, torch.Tensor):
        found(value)
    elif isinstance(value, list | tuple):
        for item in value:
            _collect(item, found)
