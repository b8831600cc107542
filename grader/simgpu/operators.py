"""What the simulation knows of an operator, learned once from its schema."""

from __future__ import annotations

import math
from typing import Any

import torch

from .mismatch import takes_number

# Arguments that CUDA's kernels want, or accept, in host memory whatever the device of the others.
_HOST_ARGUMENTS = {
    "index": ("indices",),
    "index_put": ("indices",),
    "index_put_": ("indices",),
    "_index_put_impl_": ("indices",),
    "_unsafe_index": ("indices",),
    "_unsafe_index_put": ("indices",),
    "_pack_padded_sequence": ("lengths",),
    "_pack_padded_sequence_backward": ("batch_sizes",),
    "_pad_packed_sequence": ("batch_sizes",),
    "_ctc_loss": ("input_lengths", "target_lengths"),
    "tensor_split": ("tensor_indices_or_sections",),
}
# Positions of results that are in host memory.
_HOST_RESULTS = {"_pack_padded_sequence": (1,), "_pad_packed_sequence": (1,)}
_PUTS = {"index_put", "index_put_", "_index_put_impl_", "_unsafe_index_put"}
_ALIASES = {"_unsafe_view", "lift_fresh", "lift"}  # views that their schema does not call so
_ONLY_METADATA = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "set_"}


aten = torch.ops.aten
# Autograd's zeros without memory, which no dispatch mode of Python can be handed together with a number.
_REPLACED = {aten._efficientzerotensor.default: aten.zeros.default}


class Operator:
    """One overload of an ATen operator."""

    __slots__ = (
        "func", "run", "name", "packet", "is_view", "free", "mutates", "foreach", "resizes",
        "takes_device", "takes_pinned", "makes", "generator", "random", "host_arguments", "host_results",
        "returned_arguments", "plain", "composed", "marker",
    )  # fmt: skip

    def __init__(self, func: Any) -> None:
        func = _REPLACED.get(func, func)
        arguments = func._schema.arguments
        names = [argument.name for argument in arguments]
        self.func = func
        self.run = func  # what computes it on the CPU
        self.packet = func.overloadpacket
        self.name: str = self.packet.__name__
        self.mutates = any(a.alias_info is not None and a.alias_info.is_write for a in arguments)
        self.resizes = self.mutates and ("resize" in self.name or self.name == "set_" or "out" in names)
        views_in_place = torch.Tag.inplace_view in func.tags and not self.resizes
        self.is_view: bool = func.is_view or views_in_place or self.name in _ALIASES
        self.free = self.is_view or self.name in _ONLY_METADATA
        self.foreach = self.name.startswith(("_foreach", "_amp_foreach", "_fused"))
        self.takes_device = "device" in names
        self.takes_pinned = "pin_memory" in names
        self.makes = not any("Tensor" in str(argument.type) for argument in arguments)  # out of nothing
        self.generator = "generator" in names
        self.returned_arguments = _returned_arguments(func._schema)
        self.random = torch.Tag.nondeterministic_seeded in func.tags and not self.generator
        self.marker: bool = func.namespace == "profiler"  # names what the profiler sees; computes nothing
        self.host_results = _HOST_RESULTS.get(self.name, ())
        self.host_arguments = _HOST_ARGUMENTS.get(self.name, ())
        has_kernel, keys = func.has_kernel_for_dispatch_key, torch._C.DispatchKey
        self.composed = has_kernel(keys.CompositeImplicitAutograd) and not has_kernel(keys.CPU)
        # Whether nothing but the devices of its inputs decides what is to be done.
        self.plain = not (
            self.takes_device or self.takes_pinned or self.generator or self.random or self.resizes
        )

    def may_be_on_host(self, tensor: torch.Tensor, args: tuple, kwargs: dict[str, Any]) -> bool:
        """Whether this CPU tensor is one that the operator takes beside tensors of a GPU."""
        number = tensor.dim() == 0
        for position, argument in enumerate(self.func._schema.arguments):
            value = args[position] if position < len(args) else kwargs.get(argument.name)
            values = value if isinstance(value, list | tuple) else (value,)
            if not any(item is tensor for item in values):
                continue
            if argument.name in self.host_arguments:
                return True
            if argument.alias_info is not None and argument.alias_info.is_write:
                return False
            if argument.name == "values" and self.name in _PUTS:
                return number or _fills_mask(tensor, args)
            return number and takes_number(self.func, position)
        return False


def _fills_mask(value: torch.Tensor, args: tuple) -> bool:
    """Whether an assignment to masked places fills them with a single number of the host.

    `canDispatchToMaskedFill` in torch's aten/src/ATen/native/TensorAdvancedIndexingUtils.h.
    """
    given = [index for index in args[1] if index is not None]
    masked = len(given) == 1 and given[0].dtype in (torch.bool, torch.uint8)
    return masked and value.numel() == 1 and not (len(args) > 3 and args[3])


def _returned_arguments(schema: Any) -> list[tuple[int, str]] | None:
    """Position and name of the arguments that an in-place operator returns; None if it makes new tensors."""
    written = {
        frozenset(argument.alias_info.before_set): (position, argument.name)
        for position, argument in enumerate(schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    }
    if not written or any(result.alias_info is None for result in schema.returns):
        return None
    return [written[frozenset(result.alias_info.before_set)] for result in schema.returns]


def least_bytes(operator: Operator, args: tuple, kwargs: dict[str, Any]) -> int:
    """How much memory a function like torch.randn or torch.zeros_like takes, from its arguments alone."""
    like = args[0] if args and isinstance(args[0], torch.Tensor) else None
    dense = kwargs.get("layout") in (None, torch.strided) and "strided" not in operator.name
    if not dense or not (operator.makes or operator.name.endswith("_like") or operator.name[:4] == "new_"):
        return 0
    given = () if like is None else like.shape
    size = next((value for value in args if isinstance(value, list | tuple)), given)
    dtype = kwargs.get("dtype") or (torch.get_default_dtype() if like is None else like.dtype)
    return math.prod(size) * dtype.itemsize


def signature(args: Any, kwargs: dict[str, Any]) -> tuple:
    """What shapes and costs depend on: shapes, strides and types of tensors, the values of the rest."""
    return tuple(map(_part, args)), tuple((name, _part(value)) for name, value in kwargs.items())


def _part(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.shape, value.stride() if value.layout is torch.strided else value.layout, value.dtype
    if isinstance(value, list | tuple):
        return tuple(map(_part, value))
    if isinstance(value, float | int):
        return type(value), value
    return None if isinstance(value, torch.Generator) else value


def tensors_in(args: tuple | list, kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """All tensors among the arguments, those in lists included, in order."""
    found: list[torch.Tensor] = []
    for value in args:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += [item for item in value if isinstance(item, torch.Tensor)]
    if kwargs:
        for value in kwargs.values():
            if isinstance(value, torch.Tensor):
                found.append(value)
            elif isinstance(value, list | tuple):
                found += [item for item in value if isinstance(item, torch.Tensor)]
    return found
