"""Types of numbers for which CUDA has a kernel and the CPU has none, and the other way round.

What only CUDA computes in half precision is computed in float32 and rounded, as most of its kernels do
inside. So are products and convolutions, which most CPUs compute in half precision, if at all, up to a
hundred times slower; CUDA accumulates them in float32 too. What only the CPU computes is refused as CUDA
refuses it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import torch

from . import unreal
from .errors import NotSimulated
from .mismatch import LEGACY_NAMES
from .mixed import refusal
from .operators import Operator, tensors_in

_MISSING = re.compile(r"\"(\w+)\" not implemented for '(Half|BFloat16|Bool)'")
_WIDER = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.bool: torch.uint8}
# Factorizations: cuSOLVER and MAGMA have no half precision either.
_NEVER_HALF = re.compile(
    r"cholesky|eig|geqrf|householder|orgqr|ldl|linalg|lu_|lu$|lstsq|ormqr|qr|svd|triangular"
)

_INTEGERS = {torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8}
_WHOLE = _INTEGERS | {torch.bool}
# The name of the kernel that says so; which one an operator ends in: aten/src/ATen/native/cuda.
_REFUSED: dict[str, tuple[str, set[torch.dtype]]] = {
    **dict.fromkeys(("mm", "addmm", "addmm_", "_addmm_activation"), ("addmm_cuda", _WHOLE)),
    **dict.fromkeys(("bmm", "baddbmm", "baddbmm_"), ("baddbmm_cuda", _WHOLE)),
    **dict.fromkeys(("mv", "addmv", "addmv_"), ("addmv_impl_cuda", _WHOLE)),
    **dict.fromkeys(("_softmax", "_log_softmax"), ("host_softmax", _WHOLE)),
    "dot": ("dot", _WHOLE),
    "vdot": ("vdot", _WHOLE),
    "avg_pool2d": ("avg_pool2d_out_cuda_frame", _WHOLE),
    "avg_pool3d": ("avg_pool3d_out_cuda", _WHOLE),
    "max_pool2d_with_indices": ("max_pool2d_with_indices_out_cuda_frame", _WHOLE),
    "max_pool3d_with_indices": ("max_pool3d_with_indices_out_frame", _WHOLE),
}
_HEAVY = {
    "mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "convolution", "_convolution", "convolution_backward",
    "_slow_conv2d_forward", "_slow_conv2d_backward",
}  # fmt: skip


def runner(operator: Operator) -> Callable[..., Any]:
    """What computes an operator on the CPU: the operator itself, or for heavy ones one in float32."""
    if operator.name not in _HEAVY or operator.mutates:
        return operator.func
    func, slow = operator.func, _slow()

    def run(*args: Any, **kwargs: Any) -> Any:
        for value in args:
            if isinstance(value, torch.Tensor):
                if value.dtype in slow and _of_one_type(args, value.dtype):
                    return _rounded(func(*_cast(args, torch.float32), **kwargs), value.dtype)
                break
        return func(*args, **kwargs)

    return run


@functools.cache
def _slow() -> frozenset[torch.dtype]:
    """The types that this CPU is slow in."""
    fast = torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return frozenset({torch.float16} if fast else {torch.float16, torch.bfloat16})


def _of_one_type(values: tuple, dtype: torch.dtype) -> bool:
    return all(value.dtype is dtype for value in values if isinstance(value, torch.Tensor))


def _cast(values: tuple, wide: torch.dtype) -> tuple:
    return tuple(value.to(wide) if isinstance(value, torch.Tensor) else value for value in values)


def _rounded(made: Any, dtype: torch.dtype) -> Any:
    if isinstance(made, torch.Tensor):
        return made.to(dtype)
    return tuple(None if item is None else item.to(dtype) for item in made)


def refuse(operator: Operator, args: tuple) -> None:
    """Raise what CUDA raises for a type, or a mixture of types, that this operator's kernel does not take."""
    mixed = refusal(operator.name, args)
    if mixed is not None:
        raise RuntimeError(mixed)
    named = _REFUSED.get(operator.name)
    if named is None:
        return
    for value in args:
        if isinstance(value, torch.Tensor):
            if value.dtype in named[1]:
                name = LEGACY_NAMES.get(value.dtype, str(value.dtype))
                raise NotImplementedError(f"\"{named[0]}\" not implemented for '{name}'")
            return


def widened(operator: Operator, args: tuple, kwargs: dict[str, Any], error: Exception) -> Any:
    """The result of an operator that the CPU does not have for a narrow type, computed in a wider one.

    Raises `error`, in the words of CUDA, where it is about something else or CUDA has no such kernel either.
    """
    missing = _MISSING.search(str(error))
    if missing is None:
        raise error
    kernel, name = missing.groups()
    if name != "Bool" and _NEVER_HALF.search(operator.name):
        raise NotImplementedError(f"\"{kernel.replace('_cpu', '_cuda')}\" not implemented for '{name}'")
    narrow = next(dtype for dtype, legacy in LEGACY_NAMES.items() if legacy == name)
    wide = _WIDER[narrow]
    copies: dict[int, torch.Tensor] = {}

    def widen(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.dtype is narrow:
            return copies.setdefault(id(value), value.to(wide))
        if isinstance(value, list | tuple):
            return type(value)(widen(item) for item in value)
        return wide if value is narrow else value

    try:
        known, out = unreal.at_once(operator, args, kwargs)
        specs = None if known else unreal.shapes(operator, args, kwargs)
        made = operator.func(*widen(args), **{key: widen(value) for key, value in kwargs.items()})
    except (NotSimulated, RuntimeError):
        raise NotSimulated(f"aten::{operator.name} in {name}") from error
    if known:
        for tensor in tensors_in(args, kwargs):
            if id(tensor) in copies:
                tensor.copy_(copies[id(tensor)])
        return out
    return _narrowed(made, specs)


def _narrowed(made: Any, specs: Any) -> Any:
    if isinstance(made, torch.Tensor):
        return made.to(specs.dtype)
    if isinstance(made, list | tuple):
        return type(made)(map(_narrowed, made, specs))
    return made
