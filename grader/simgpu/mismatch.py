"""What torch says when tensors that must be on one device are not.

Real CUDA has several texts, depending on which layer notices first. Most kernels sit in a generated wrapper
that goes through the arguments one by one. Element-wise operators leave it to their iterator, which names two
devices and lets a number on the CPU pass. Some compare for themselves, in words of their own. And operators
that are composed of others fail in the one that they call. Files named here are those of torch's sources,
below aten/src/ATen.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch

from .kernels import kernel, named_kernel

Place = Callable[[torch.Tensor], int | None]
Named = list[tuple[str, torch.Tensor]]

LEGACY_NAMES = {
    torch.float32: "Float", torch.float64: "Double", torch.float16: "Half", torch.bfloat16: "BFloat16",
    torch.int64: "Long", torch.int32: "Int", torch.int16: "Short", torch.int8: "Char", torch.uint8: "Byte",
    torch.bool: "Bool", torch.complex64: "ComplexFloat", torch.complex128: "ComplexDouble",
}  # fmt: skip
# Element-wise operators of three inputs, whose iterators take no number on the CPU: native/PointwiseOps.cpp
# and native/Lerp.cpp build them without `allow_cpu_scalars`; addcmul makes an exception for its last input.
_TERNARY = {"addcmul": 2, "addcmul_": 2, "addcdiv": None, "addcdiv_": None, "lerp": None, "lerp_": None}


def device_name(index: int | None) -> str:
    """How torch writes a device: "cuda:1", or "cpu" for None."""
    return "cpu" if index is None else f"cuda:{index}"


def takes_number(func: Any, position: int) -> bool:
    """Whether CUDA lets the argument at this position be a 0-dimensional tensor on the CPU.

    The iterator does (`compute_types` in TensorIterator.cpp); a wrapper that compares devices does not.
    """
    name = func.overloadpacket.__name__
    if name in _TERNARY:
        return position == _TERNARY[name]
    argument = func._schema.arguments[position]
    if argument.is_out or (name.startswith("masked_fill") and argument.name == "mask"):
        return False
    described = kernel(func)
    return described is None or not described.checks or argument.kwarg_only


def mismatch(func: Any, args: tuple, kwargs: dict[str, Any], place: Place) -> RuntimeError:
    """The error for calling `func` with tensors on different devices, of which `place` gives the index."""
    name = func.overloadpacket.__name__
    named = _named_tensors(func, args, kwargs)
    words = _OWN_WORDS.get(name)
    message = words(named, args, place) if words is not None else None
    if message is None and name in _TERNARY:
        message = _number_refused(name, named, place)
    if message is None:
        described = kernel(func)
        if described is not None and described.checks:
            message = _argument(described.wrapper, _checked(func, named), place)
    message = message or _two_devices(named, place)
    elsewhere = [tensor for _, tensor in named if place(tensor) is None]
    if elsewhere and all(tensor.is_meta for tensor in elsewhere):
        message = re.sub(r"\bcpu\b", "meta", message)
    return RuntimeError(message)


def _named_tensors(func: Any, args: tuple, kwargs: dict[str, Any]) -> Named:
    found = []
    for position, argument in enumerate(func._schema.arguments):
        value = args[position] if position < len(args) else kwargs.get(argument.name)
        values = value if isinstance(value, list | tuple) else [value]
        found += [(argument.name, item) for item in values if isinstance(item, torch.Tensor)]
    return found


def _checked(func: Any, named: Named) -> Named:
    """The arguments that a wrapper goes through, in its order: those written to by keyword come first."""
    out = [argument.name for argument in func._schema.arguments if argument.is_out]
    keyword = [argument.name for argument in func._schema.arguments if argument.kwarg_only]
    return [item for item in named if item[0] in out] + [item for item in named if item[0] not in keyword]


def _two_devices(named: Named, place: Place) -> str:
    """The iterator's words: the first GPU among the operands, then the first operand that is not on it.

    `compute_types` in TensorIterator.cpp.
    """
    places = [place(tensor) for _, tensor in named if tensor.dim() or place(tensor) is not None]
    common = next((index for index in places if index is not None), None)
    other = next(index for index in [*places, *(place(t) for _, t in named)] if index != common)
    return (
        "Expected all tensors to be on the same device, but found at least two devices, "
        f"{device_name(common)} and {device_name(other)}!"
    )


def _argument(wrapper: str, checked: Named, place: Place) -> str | None:
    """The words of `common_device_check_failure` in core/adaption.cpp."""
    common = place(checked[0][1]) if checked else None
    for argument, tensor in checked:
        if place(tensor) != common:
            return (
                f"Expected all tensors to be on the same device, but got {argument} is on "
                f"{device_name(place(tensor))}, different from other tensors on {device_name(common)} "
                f"(when checking argument in method {wrapper})"
            )
    return None


def _calls(name: str, overload: str, **arguments: str) -> Callable[..., str | None]:
    """The words of the operator that this one calls, with these of its own arguments, in that one's order."""

    def words(named: Named, args: tuple, place: Place) -> str | None:
        called = named_kernel(name, overload)
        if called is None:
            return None
        given = [(arguments[own], tensor) for own, tensor in named if own in arguments]
        order = list(arguments.values())
        return _argument(called.wrapper, sorted(given, key=lambda item: order.index(item[0])), place)

    return words


def _number_refused(name: str, named: Named, place: Place) -> str | None:
    """`addcmul_cuda_kernel` in native/cuda/PointwiseOpsKernel.cu; no other operator has such words."""
    if not name.startswith("addcmul") or any(t.dim() and place(t) is None for _, t in named):
        return None
    if len({place(tensor) for _, tensor in named} - {None}) != 1:
        return None
    number = next(argument for argument, tensor in named if place(tensor) is None)
    advice = (
        " However, CPU Scalar support for tensor2 is supported, please swap your tensor1 and tensor2 terms."
    )
    return (
        f"CPU Scalar support for {number} argument is not supported when calling addcmul on CUDA tensors."
        + (advice if number == "tensor1" else "")
    )


def _convolution(named: Named, args: tuple, place: Place) -> str | None:
    """`check_input_same_type_as_parameters` in native/Convolution.cpp, then cuDNN's wrapper."""
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
    parts = [(argument, tensor) for argument, tensor in named if argument != "bias"]
    # cuDNN computes without the bias, which is added to the result.
    return _argument("wrapper_CUDA__cudnn_convolution", parts, place)


def type_name(tensor: torch.Tensor, place: Place) -> str:
    """The legacy name of a tensor's type: "torch.cuda.FloatTensor"."""
    name = LEGACY_NAMES.get(tensor.dtype, str(tensor.dtype).removeprefix("torch.").title())
    module = "torch" if place(tensor) is None else "torch.cuda"
    return f"{module}.{name}Tensor"


def _index(named: Named, args: tuple, place: Place) -> str | None:
    """`expandTensors` in native/IndexingUtils.h; `_index_put_impl_` in native/TensorAdvancedIndexing.cpp."""
    indexed = place(named[0][1])
    if any(name == "indices" and place(tensor) not in (None, indexed) for name, tensor in named):
        return (
            "indices should be either on cpu or on the same device as the indexed tensor "
            f"({device_name(indexed)})"
        )
    value = next((tensor for name, tensor in named if name == "values"), None)
    if value is None:
        return None
    if indexed is not None and len(args) > 3 and args[3]:  # accumulates, by sorting
        found = f"expected device {device_name(indexed)} but got device {device_name(place(value))}"
        return f"{found} for value tensor"
    return _two_devices([named[0], ("values", value)], place)


def _masked_fill(named: Named, args: tuple, place: Place) -> str | None:
    """`masked_fill__cuda` in native/cuda/Indexing.cu."""
    tensors = dict(named)
    filled, mask = place(tensors["self"]), place(tensors["mask"])
    if "value" in tensors and filled is None:
        return "masked_fill_: Expected inputs to be on same device"
    if filled != mask:
        return (
            "expected self and mask to be on the same device, but got mask on "
            f"{device_name(mask)} and self on {device_name(filled)}"
        )
    return None


def _batch_norm(named: Named, args: tuple, place: Place) -> str | None:
    """`_select_batch_norm_backend` in native/Normalization.cpp: cuDNN where it can."""
    tensors = dict(named)
    images = tensors["input"]
    cudnn = (
        place(images) is not None
        and images.dtype is not torch.bfloat16
        and images.dim() >= 3
        and {"weight", "bias"} <= set(tensors)
        and len(args) > 5
        and (args[5] or {"running_mean", "running_var"} <= set(tensors))
    )
    return _argument("wrapper_CUDA__cudnn_batch_norm", named, place) if cudnn else None


def _grid_sampler(named: Named, args: tuple, place: Place) -> str | None:
    """`check_grid_sampler_common` in native/GridSamplerUtils.h."""
    tensors = dict(named)
    return (
        "grid_sampler(): expected input and grid to be on same device, but input is on "
        f"{device_name(place(tensors['input']))} and grid is on {device_name(place(tensors['grid']))}"
    )


def _matrix_vector(named: Named, args: tuple, place: Place) -> str | None:
    """`mv` in native/Blas.cpp writes into a new vector, on the device of the one that it is given."""
    tensors = dict(named)
    called = named_kernel("addmv", "out")
    if called is None:
        return None
    parts = [("out", tensors["vec"]), ("self", tensors["vec"]), ("mat", tensors["self"])]
    return _argument(called.wrapper, [*parts, ("vec", tensors["vec"])], place)


_OWN_WORDS: dict[str, Callable[[Named, tuple, Place], str | None]] = {
    "convolution": _convolution,
    "_convolution": _convolution,
    "convolution_overrideable": _convolution,
    "index": _index,
    "_unsafe_index": _index,
    "index_put": _index,
    "index_put_": _index,
    "_index_put_impl_": _index,
    "masked_fill": _masked_fill,
    "masked_fill_": _masked_fill,
    "native_batch_norm": _batch_norm,
    "_native_batch_norm_legit": _batch_norm,
    "grid_sampler_2d": _grid_sampler,
    "grid_sampler_3d": _grid_sampler,
    "mv": _matrix_vector,
    "embedding": _calls("index_select", "", weight="self", indices="index"),
    "stack": _calls("cat", "", tensors="tensors"),
    "masked_scatter": _calls("masked_scatter_", "", self="self", mask="mask", source="source"),
    "_scaled_dot_product_flash_attention_for_cpu": _calls(
        "_scaled_dot_product_efficient_attention",
        "",
        query="query",
        key="key",
        value="value",
        attn_mask="attn_bias",
    ),
}
