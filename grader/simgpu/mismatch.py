"""What torch says when tensors that must be on one device are not.

Real CUDA has several texts, depending on which layer notices first: a convolution compares types, an
element-wise operation lets its iterator find two devices, most others check argument by argument in a
generated wrapper.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

# Operators whose kernels are declared "structured": their wrapper's name has one underscore less.
_STRUCTURED = {
    "addmm", "addmv", "baddbmm", "bmm", "cat", "gather", "index_add", "linalg_cross", "log_softmax", "mm",
    "max_pool2d_with_indices", "nll_loss_backward", "nll_loss_forward", "scatter", "softmax", "topk", "tril",
    "triu",
}  # fmt: skip
_WRAPPED_AS = {"embedding": ("index_select", {"weight": "self", "indices": "index"})}
_CONVOLUTIONS = {"convolution", "_convolution", "convolution_overrideable"}
_ITERATED = {
    "where",
    "masked_fill",
    "masked_fill_",
    "lerp",
    "addcmul",
    "addcdiv",
    "mse_loss",
    "smooth_l1_loss",
    "huber_loss",
}

_LEGACY_NAMES = {
    torch.float32: "Float", torch.float64: "Double", torch.float16: "Half", torch.bfloat16: "BFloat16",
    torch.int64: "Long", torch.int32: "Int", torch.int16: "Short", torch.int8: "Char", torch.uint8: "Byte",
    torch.bool: "Bool", torch.complex64: "ComplexFloat", torch.complex128: "ComplexDouble",
}  # fmt: skip

Place = Callable[[torch.Tensor], int | None]


def device_name(index: int | None) -> str:
    """How torch writes a device: "cuda:1", or "cpu" for None."""
    return "cpu" if index is None else f"cuda:{index}"


def mismatch(func: Any, args: tuple, kwargs: dict[str, Any], place: Place) -> RuntimeError:
    """The error for calling `func` with tensors on different devices, of which `place` gives the index."""
    name = func.overloadpacket.__name__
    named = _named_tensors(func, args, kwargs)
    if name in _CONVOLUTIONS:
        message = _convolution(named, place)
    elif name in ("index", "index_put", "index_put_", "_unsafe_index", "_index_put_impl_"):
        message = _index(named, place)
    elif torch.Tag.pointwise in func.tags or name in _ITERATED or name.startswith("_foreach"):
        message = _two_devices(named, place)
    else:
        message = _argument(name, named, place)
    return RuntimeError(message or _two_devices(named, place))


def _named_tensors(func: Any, args: tuple, kwargs: dict[str, Any]) -> list[tuple[str, torch.Tensor]]:
    found = []
    for position, argument in enumerate(func._schema.arguments):
        value = args[position] if position < len(args) else kwargs.get(argument.name)
        values = value if isinstance(value, list | tuple) else [value]
        found += [(argument.name, item) for item in values if isinstance(item, torch.Tensor)]
    return found


def _two_devices(named: list[tuple[str, torch.Tensor]], place: Place) -> str:
    places = [place(tensor) for _, tensor in named if tensor.dim() or place(tensor) is not None]
    common = next((index for index in places if index is not None), None)
    other = next(index for index in [*places, *(place(t) for _, t in named)] if index != common)
    return (
        "Expected all tensors to be on the same device, but found at least two devices, "
        f"{device_name(common)} and {device_name(other)}!"
    )


def _argument(name: str, named: list[tuple[str, torch.Tensor]], place: Place) -> str | None:
    wrapper, renamed = _WRAPPED_AS.get(name, (name, {}))
    common = place(named[0][1])
    odd = next(((argument, tensor) for argument, tensor in named if place(tensor) != common), None)
    if odd is None:
        return None
    argument, tensor = odd
    underscore = "_" if wrapper.strip("_") in _STRUCTURED else "__"
    return (
        f"Expected all tensors to be on the same device, but got {renamed.get(argument, argument)} is on "
        f"{device_name(place(tensor))}, different from other tensors on {device_name(common)} "
        f"(when checking argument in method wrapper_CUDA{underscore}{wrapper.lstrip('_')})"
    )


def _convolution(named: list[tuple[str, torch.Tensor]], place: Place) -> str | None:
    tensors = dict(named)
    images, weight = tensors["input"], tensors["weight"]
    for parameter, kind in ((weight, "weight"), (tensors.get("bias"), "bias")):
        if parameter is None or (place(images) is None) == (place(parameter) is None):
            continue
        ending = (
            " or input should be a MKLDNN tensor and weight is a dense tensor"
            if place(images) is None
            else ""
        )
        return (
            f"Input type ({type_name(images, place)}) and {kind} type ({type_name(parameter, place)}) "
            f"should be the same{ending}"
        )
    return _argument("cudnn_convolution", named, place)


def type_name(tensor: torch.Tensor, place: Place) -> str:
    """The legacy name of a tensor's type: "torch.cuda.FloatTensor"."""
    name = _LEGACY_NAMES.get(tensor.dtype, str(tensor.dtype).removeprefix("torch.").title())
    module = "torch" if place(tensor) is None else "torch.cuda"
    return f"{module}.{name}Tensor"


def _index(named: list[tuple[str, torch.Tensor]], place: Place) -> str | None:
    indexed = place(named[0][1])
    if any(name == "indices" and place(tensor) not in (None, indexed) for name, tensor in named):
        return (
            "indices should be either on cpu or on the same device as the indexed tensor "
            f"({device_name(indexed)})"
        )
    return None
