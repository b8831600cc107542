"""The operators of nn.SyncBatchNorm, which torch has for CUDA alone.

Statistics are taken over every dimension but the channels, which are the second one. As CUDA's kernels do,
they are kept in float32 for half-precision inputs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..patches import Patches


def install(patches: Patches) -> None:
    """Give the operators a CPU implementation, and the shapes of their results."""
    library = torch.library.Library("aten", "IMPL")
    for function in (stats, gather_stats_with_counts, elemt, backward_reduce, backward_elemt):
        name = f"batch_norm_{function.__name__}"
        library.impl(name, function, "CPU")
        if not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "Meta"):
            library.impl(name, function, "Meta")
    patches.finally_do(library._destroy)


def stats(input: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Mean and inverse standard deviation of each channel."""
    values = input.to(_wide(input))
    variance, mean = torch.var_mean(values, _others(input), correction=0)
    return mean, (variance + eps).rsqrt()


def gather_stats_with_counts(
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
    counts: Tensor,
) -> tuple[Tensor, Tensor]:
    """The statistics of all processes together, from those of each (rows) and its number of values in a
    channel. Moves the running ones on, the variance unbiased."""
    weights = counts.to(mean.dtype).unsqueeze(1)
    total = weights.sum()
    whole_mean = (mean * weights).sum(0) / total
    within = invstd.square().reciprocal() - eps
    variance = (weights * (within + (mean - whole_mean).square())).sum(0) / total
    if running_mean is not None:
        running_mean.lerp_(whole_mean.to(running_mean.dtype), momentum)
    if running_var is not None:
        unbiased = variance * total / (total - 1)
        running_var.lerp_(unbiased.to(running_var.dtype), momentum)
    return whole_mean, (variance + eps).rsqrt()


def elemt(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, invstd: Tensor, eps: float
) -> Tensor:
    """The normalized values, in the type and layout of the input."""
    values = (input.to(mean.dtype) - _channels(mean, input)) * _channels(invstd, input)
    if weight is not None:
        values = values * _channels(weight.to(mean.dtype), input)
    if bias is not None:
        values = values + _channels(bias.to(mean.dtype), input)
    return values.to(input.dtype)


def backward_reduce(
    grad_out: Tensor,
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    input_g: bool,
    weight_g: bool,
    bias_g: bool,
) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
    """Sums over this process: of the gradient, of the gradient times the distance from the mean, and the
    gradients of weight and bias."""
    grads = grad_out.to(mean.dtype)
    sum_dy = grads.sum(_others(input))
    sum_dy_xmu = (grads * (input.to(mean.dtype) - _channels(mean, input))).sum(_others(input))
    dtype = mean.dtype if weight is None else weight.dtype
    return (
        sum_dy if input_g else None,
        sum_dy_xmu if input_g else None,
        (sum_dy_xmu * invstd).to(dtype) if weight_g else None,
        sum_dy.to(dtype, copy=True) if bias_g else None,
    )


def backward_elemt(
    grad_out: Tensor,
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    sum_dy: Tensor,
    sum_dy_xmu: Tensor,
    count: Tensor,
) -> Tensor:
    """The gradient of the input, from the sums over all processes."""
    total = count.to(mean.dtype).sum()
    centred = input.to(mean.dtype) - _channels(mean, input)
    slope = _channels(sum_dy_xmu / total * invstd.square(), input)
    grads = grad_out.to(mean.dtype) - _channels(sum_dy / total, input) - centred * slope
    scale = invstd if weight is None else invstd * weight.to(mean.dtype)
    return (grads * _channels(scale, input)).to(input.dtype)


def _wide(input: Tensor) -> torch.dtype:
    return torch.float32 if input.dtype in (torch.float16, torch.bfloat16) else input.dtype


def _others(input: Tensor) -> list[int]:
    return [dim for dim in range(input.dim()) if dim != 1]


def _channels(values: Tensor, like: Tensor) -> Tensor:
    return values.view([-1 if dim == 1 else 1 for dim in range(like.dim())])
