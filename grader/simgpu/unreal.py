"""Operators without arithmetic: shapes are worked out on the meta device, memory is taken but never touched.

Where a shape depends on values, the largest possible one is taken. Tensors stay CPU tensors, so all of
autograd, `.data` and the like behave as they do with arithmetic; what their bytes hold means nothing, and
whatever reads a value is given 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from .errors import NotSimulated
from .operators import Operator, tensors_in

aten = torch.ops.aten


class Spec(NamedTuple):
    """A tensor to be made."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype

    def make(self) -> torch.Tensor:
        """A CPU tensor like this; the operating system gives it no memory until something writes."""
        return torch.empty_strided(self.size, self.stride, dtype=self.dtype)


def scalar(dtype: torch.dtype) -> Any:
    """The Python number that reading an element gives."""
    if dtype is torch.bool:
        return False
    if dtype.is_complex:
        return 0j
    return 0.0 if dtype.is_floating_point else 0


def shapes(operator: Operator, args: tuple, kwargs: dict[str, Any]) -> Any:
    """The output of an operator that makes new tensors, with a Spec in place of each.

    Raises what torch raises for shapes that do not fit, NotSimulated where shapes alone do not suffice.
    """
    answer = _ANSWERS.get(operator.packet)
    if any(tensor.layout is not torch.strided for tensor in tensors_in(args, kwargs)):
        raise _needs_values(operator)
    if answer is not None:
        return answer(*args, **kwargs)
    unchecked = _UNCHECKED.get(operator.packet)
    if unchecked is not None:
        unchecked(*args)
    if operator.packet in _MASKED:
        args = (args[0], _positions(args[1]), *args[2:])
    try:
        out = operator.func(*_on_meta(args), **{name: _on_meta(value) for name, value in kwargs.items()})
    except NotImplementedError as error:
        raise _needs_values(operator) from error
    except (RuntimeError, IndexError) as error:
        if "meta tensor" in str(error):
            raise _needs_values(operator) from error
        out = _on_zeros(operator, args, kwargs)
    if any(tensor.layout is not torch.strided for tensor in tensors_in([out], {})):
        raise _needs_values(operator)
    return _specs(out)


def check(operator: Operator, args: tuple, kwargs: dict[str, Any]) -> None:
    """Raise what torch raises where shapes do not fit, for an operator whose result is known without them."""
    if operator.packet in _FROM_THE_HOST or operator.foreach:
        return
    try:
        operator.func(*_on_meta(args), **{name: _on_meta(value) for name, value in kwargs.items()})
    except NotImplementedError:
        return  # the meta device does not know it
    except (RuntimeError, IndexError) as error:
        if "meta tensor" not in str(error) and operator.name not in _MAY_BE_MASKED:
            _on_zeros(operator, args, kwargs)


def _on_zeros(operator: Operator, args: tuple, kwargs: dict[str, Any]) -> Any:
    """What an operator makes of indices, labels and masks that are 0, where the meta device refused.

    Kernels check shapes before they compute, and say more of them. Raises what they raise.
    """
    return operator.func(*_zeros(args), **{name: _zeros(value) for name, value in kwargs.items()})


def _zeros(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and not (value.is_floating_point() or value.is_complex()):
        return torch.zeros_like(value)
    return type(value)(map(_zeros, value)) if isinstance(value, list | tuple) else value


def _needs_values(operator: Operator) -> NotSimulated:
    return NotSimulated(f"aten::{operator.name}, in a run without arithmetic,")


def make(specs: Any) -> Any:
    """The tensors of a result of `shapes`."""
    if isinstance(specs, Spec):
        return specs.make()
    if isinstance(specs, list | tuple):
        return type(specs)(make(item) for item in specs)
    return specs


def at_once(operator: Operator, args: tuple, kwargs: dict[str, Any]) -> tuple[bool, Any]:
    """Whether the operator only writes into its arguments or knows its result, and what it then returns."""
    answer = _FROM_THE_HOST.get(operator.packet)
    if answer is not None:
        return True, answer(*args, **kwargs)
    returned = operator.returned_arguments
    if returned is None or operator.resizes:
        return False, None
    values = [kwargs[name] if name in kwargs else args[position] for position, name in returned]
    return True, values[0] if len(values) == 1 else tuple(values) or None


def _specs(out: Any) -> Any:
    if isinstance(out, torch.Tensor):
        return Spec(tuple(out.shape), out.stride(), out.dtype)
    if isinstance(out, list | tuple):
        return (
            type(out)(_specs(item) for item in out) if type(out) in (list, tuple) else tuple(map(_specs, out))
        )
    return out


def _on_meta(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
    if isinstance(value, list | tuple):
        return type(value)(_on_meta(item) for item in value)
    if isinstance(value, torch.device):
        return torch.device("meta")
    return None if isinstance(value, torch.Generator) else value


def _positions(indices: list[torch.Tensor | None]) -> list[torch.Tensor | None]:
    """Boolean masks as the positions they select: all of them."""
    positions: list[torch.Tensor | None] = []
    for index in indices:
        if index is not None and index.dtype in (torch.bool, torch.uint8):
            positions += [torch.empty(index.numel(), dtype=torch.int64, device="meta")] * index.dim()
        else:
            positions.append(index)
    return positions


def _vector(length: int, dtype: torch.dtype = torch.int64) -> Spec:
    return Spec((length,), (1,), dtype)


def _nonzero(tensor: torch.Tensor) -> Spec:
    return Spec((tensor.numel(), tensor.dim()), (1, max(1, tensor.numel())), torch.int64)


def _masked_select(tensor: torch.Tensor, mask: torch.Tensor) -> Spec:
    return _vector(torch.broadcast_shapes(tensor.shape, mask.shape).numel(), tensor.dtype)


def _unique(tensor: torch.Tensor, *_: Any, **__: Any) -> tuple[Spec, ...]:
    positions = Spec(tuple(tensor.shape), tensor.contiguous().stride(), torch.int64)
    return _vector(tensor.numel(), tensor.dtype), positions, _vector(tensor.numel())


def _dense(size: Any, dtype: torch.dtype) -> Spec:
    """A contiguous tensor."""
    strides = torch.empty(tuple(size), device="meta").stride()
    return Spec(tuple(size), strides, dtype)


def _unique_dim(
    tensor: torch.Tensor, dim: int, sorted: bool = True, inverse: bool = False, counts: bool = False
) -> tuple[Spec, ...]:
    length = tensor.shape[dim]
    return (
        _dense(tensor.shape, tensor.dtype),
        _vector(length if inverse else 0),
        _vector(length if counts else 0),
    )


def _unique_consecutive(
    tensor: torch.Tensor, inverse: bool = False, counts: bool = False, dim: int | None = None
) -> tuple[Spec, ...]:
    if dim is not None:
        return _unique_dim(tensor, dim, True, inverse, counts)
    positions = _dense(tensor.shape, torch.int64) if inverse else _vector(0)
    return _vector(tensor.numel(), tensor.dtype), positions, _vector(tensor.numel() if counts else 0)


def _geqrf(tensor: torch.Tensor) -> tuple[Spec, ...]:
    *batch, rows, columns = tensor.shape
    factors = _dense((*batch, columns, rows), tensor.dtype)
    columns_first = (*factors.stride[:-2], factors.stride[-1], factors.stride[-2])
    reflectors = _dense((*batch, min(rows, columns)), tensor.dtype)
    return Spec(tuple(tensor.shape), columns_first, tensor.dtype), reflectors


def _like(position: int) -> Callable[..., Spec]:
    """A gradient of the argument at this position."""
    return lambda *args, **_: _dense(args[position].shape, args[position].dtype)


def _bincount(tensor: torch.Tensor, weights: torch.Tensor | None = None, minlength: int = 0) -> Spec:
    return _vector(max(minlength, 1), torch.int64 if weights is None else torch.float64)


def _pack(tensor: torch.Tensor, lengths: torch.Tensor, batch_first: bool) -> tuple[torch.Tensor, ...]:
    """The lengths are in host memory, so they are real."""
    steps = torch.zeros((), dtype=torch.uint8).expand(tensor.shape[:2])
    taken, batch_sizes = torch._VF._pack_padded_sequence(steps.unsqueeze(2), lengths, batch_first)
    return tensor.new_empty((len(taken), *tensor.shape[2:])), batch_sizes


def _channels(images: torch.Tensor, weight: torch.Tensor, *how: Any) -> None:
    """`check_shape_forward` in aten/src/ATen/native/Convolution.cpp."""
    dim = 1 - weight.dim()
    if how[4] and images.shape[dim] != weight.shape[0]:
        raise RuntimeError(
            f"Given transposed=1, weight of size {list(weight.shape)}, expected input{list(images.shape)} to "
            f"have {weight.shape[0]} channels, but got {images.shape[dim]} channels instead"
        )


# What kernels compare and the meta device does not.
_UNCHECKED: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys((aten._softmax, aten._log_softmax), lambda rows, dim, *_: rows.size(dim)),
    aten.convolution: _channels,
}
_MAY_BE_MASKED = {"index_put_", "_index_put_impl_"}
_FROM_THE_HOST: dict[Any, Callable[..., Any]] = {aten._pack_padded_sequence: _pack}
_MASKED = {aten.index, aten.index_put, aten._unsafe_index}
_ANSWERS: dict[Any, Callable[..., Any]] = {
    aten.nonzero: _nonzero,
    aten.masked_select: _masked_select,
    aten._unique2: _unique,
    aten.bincount: _bincount,
    aten.unique_dim: _unique_dim,
    aten.unique_consecutive: _unique_consecutive,
    aten.geqrf: _geqrf,
    aten.multi_margin_loss_backward: _like(1),
    aten.multilabel_margin_loss_backward: _like(1),
    aten.fractional_max_pool3d_backward: _like(1),
    aten._ctc_loss_backward: _like(1),
    aten._assert_async: lambda *_: None,
}
