"""Functions that C++ composes of operators, and that compare devices before they do anything.

The dispatch mode sees only the operators beneath them, and C++ sees only the physical device.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from . import known
from .errors import NotSimulated
from .local import inside, local
from .mismatch import device_name
from .patches import Patches
from .surface.recurrent import RECURRENT
from .tags import device_index

if TYPE_CHECKING:
    from .machine import Machine


def install(machine: Machine, patches: Patches) -> None:
    """Let these functions see the simulated devices."""
    for (owner, name), check in _CHECKS.items():
        patches.set(owner, name, _after(check, getattr(owner, name)))
    patches.set(F, "one_hot", _one_hot(F.one_hot))
    patches.set(torch.linalg, "matrix_rank", _on_the_gpu(machine, torch.linalg.matrix_rank))
    for name in RECURRENT:
        checked = _checked(getattr(torch, name))
        patches.set(torch, name, checked)
        patches.set(torch._VF, name, checked)
    patches.set(torch, "ctc_loss", _ctc_loss(torch.ctc_loss))
    if not machine.math:
        patches.set(torch.distributions.Distribution, "_validate_args", False)  # of values that mean nothing
        for owner in (torch, torch.Tensor):
            patches.set(owner, "isfinite", _finite(owner.isfinite))
        patches.set(torch, "cov", _after(_covariance, torch.cov))
    patches.set(torch._C, "_group_tensors_by_device_and_dtype", _grouped)


def _after(check: Callable[..., None], original: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, after a comparison of devices."""

    @functools.wraps(original)
    def composed(*args: Any, **kwargs: Any) -> Any:
        if local.observed and not local.inside:
            check(*args, **kwargs)
        return original(*args, **kwargs)

    return composed


def _one_hot(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """The same function, which on a GPU leaves it to the kernel to find values out of range.

    `one_hot` in aten/src/ATen/native/Onehot.cpp: on CUDA it does not wait for the smallest and largest.
    """

    @functools.wraps(original)
    def one_hot(tensor: torch.Tensor, num_classes: int = -1) -> torch.Tensor:
        outside = not local.observed or local.inside or device_index(tensor) is None
        unknown = num_classes == 0 or (num_classes < 0 and not tensor.numel())
        if outside or unknown or tensor.dtype is not torch.int64:
            return original(tensor, num_classes)
        classes = int(tensor.max().item()) + 1 if num_classes == -1 else num_classes
        zeros = torch.zeros((*tensor.shape, classes), dtype=torch.int64, device=tensor.device)
        return zeros.scatter(-1, tensor.unsqueeze(-1), 1)

    return one_hot


def _on_the_gpu(machine: Machine, original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """The same function, which for an empty input makes its result of nothing and knows no GPU."""

    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> torch.Tensor:
        out = original(*args, **kwargs)
        if local.observed and not local.inside and device_index(out) is None:
            device = device_index(args[0] if args else kwargs["input"])
            if device is not None:
                machine.place(out, device)
        return out

    return function


def _checked(original: Callable[..., Any]) -> Callable[..., Any]:
    """The same recurrent network, after the comparison of devices that torch makes first.

    Two forms: (input, hidden, weights, ...) and, for a packed sequence, (data, lengths, hidden, weights,
    ...).
    The words and their order: `check_attributes` in aten/src/ATen/native/RNN.h.
    """

    @functools.wraps(original)
    def recurrent(*args: Any, **kwargs: Any) -> Any:
        if local.observed and not local.inside and not kwargs and len(args) > 3:
            hidden, weights = args[1:3] if isinstance(args[2], list | tuple) and _flat(args[3]) else args[2:4]
            here = device_index(args[0])
            for kind, tensors in (("hidden", hidden), ("parameter", weights)):
                for tensor in [tensors] if isinstance(tensors, torch.Tensor) else tensors:
                    there = device_index(tensor)
                    if there != here and (there is not None or tensor.dim()):
                        raise RuntimeError(
                            f"Input and {kind} tensors are not at the same device, found input tensor at "
                            f"{device_name(here)} and {kind} tensor at {device_name(there)}"
                        )
        return original(*args, **kwargs)

    return recurrent


def _ctc_loss(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """The same loss, which brings lengths to the host and targets in cuDNN's form to the GPU.

    `ctc_loss` in aten/src/ATen/native/LossCTC.cpp; under a dispatch mode it would keep lengths as tensors.
    """

    @functools.wraps(original)
    def loss(log_probs: torch.Tensor, targets: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if local.observed and not local.inside and device_index(log_probs) is not None:
            args = tuple(_as_list(value) for value in args)
            kwargs = {name: _as_list(value) for name, value in kwargs.items()}
            if device_index(targets) is None and targets.dtype is torch.int32 and targets.dim() == 1:
                targets = targets.to(log_probs.device)
        return original(log_probs, targets, *args, **kwargs)

    return loss


def _as_list(value: Any) -> Any:
    return value.tolist() if isinstance(value, torch.Tensor) else value


def _flat(value: Any) -> bool:
    """Whether this is the `has_biases` that follows the weights of an unpacked sequence."""
    return isinstance(value, bool)


def _quantile(input: torch.Tensor, q: Any, *_: Any, **__: Any) -> None:
    """`quantile_checks` in aten/src/ATen/native/Sorting.cpp."""
    if isinstance(q, torch.Tensor) and device_index(q) != device_index(input):
        raise RuntimeError("quantile() q tensor must be on the same device as the input tensor")


def _covariance(
    input: torch.Tensor, *, correction: int = 1, fweights: Any = None, aweights: Any = None
) -> None:
    """Without arithmetic: weights are judged by their values."""
    if any(weights is not None and device_index(weights) is not None for weights in (fweights, aweights)):
        raise NotSimulated("torch.cov with weights, in a run without arithmetic,")


def _finite(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Without arithmetic: what is read is 0, and so is finite."""

    @functools.wraps(original)
    def isfinite(input: torch.Tensor) -> torch.Tensor:
        out = original(input)
        if local.observed and not local.inside and device_index(out) is not None:
            with inside():
                out.fill_(True)
            known.mark(out)
        return out

    return isfinite


def _attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any, **__: Any) -> None:
    """`validate_sdpa_input` in aten/src/ATen/native/transformers/attention.cpp."""
    places = [device_name(device_index(tensor)) for tensor in (query, key, value)]
    if len(set(places)) > 1:
        raise RuntimeError(
            "Expected query, key, and value to have the same device type, but got query.device: "
            "{} key.device: {} and value.device: {} instead.".format(*places)
        )


def _set(tensor: torch.Tensor, source: Any = None, *_: Any, **__: Any) -> None:
    """`checkSetStorage` in aten/src/ATen/native/Resize.h."""
    if source is None:
        return
    there = (source._untyped_storage if isinstance(source, torch.TypedStorage) else source).device
    if there != tensor.device:
        raise RuntimeError(
            f'Attempted to set the storage of a tensor on device "{tensor.device}" to a storage on different '
            f'device "{there}".  This is no longer allowed; the devices must match.'
        )


_CHECKS: dict[tuple[Any, str], Callable[..., None]] = {
    (torch, "quantile"): _quantile,
    (torch, "nanquantile"): _quantile,
    (torch.Tensor, "quantile"): _quantile,
    (torch.Tensor, "nanquantile"): _quantile,
    (torch.Tensor, "set_"): _set,
    (F, "scaled_dot_product_attention"): _attention,
}


def _grouped(
    lists: list[list[torch.Tensor | None]], with_indices: bool = False
) -> dict[tuple[torch.device, torch.dtype], tuple[list[list[torch.Tensor | None]], list[int]]]:
    """How optimizers that work on lists split them: by device and type of the first list's tensors.

    The rule and its words: `_group_tensors_by_first_tensors_device_and_dtype` in torch's
    aten/src/ATen/native/ForeachUtils.h. Numbers of steps may stay on the CPU.
    """
    groups: dict[Any, tuple[list[list[torch.Tensor | None]], list[int]]] = {}
    for position, first in enumerate(lists[0]):
        assert first is not None
        column = [tensors[position] if tensors else None for tensors in lists]
        for tensor in column:
            if tensor is not None and tensor.device != first.device and not _counts_steps(tensor):
                raise RuntimeError(
                    "Tensors of the same index must be on the same device and the same dtype except `step` "
                    "tensors that can be CPU and float32/64, and optimizer states that can be bfloat16 for "
                    "mixed-precision training"
                )
        members, indices = groups.setdefault((first.device, first.dtype), ([[] for _ in lists], []))
        for member, tensors, tensor in zip(members, lists, column, strict=True):
            if tensors:
                member.append(tensor)
        if with_indices:
            indices.append(position)
    return groups


def _counts_steps(tensor: torch.Tensor) -> bool:
    return (
        tensor.dim() == 0 and tensor.dtype in (torch.float32, torch.float64) and tensor.device.type == "cpu"
    )
