"""torch.autocast("cuda"): the casts that CUDA's autocast makes, for tensors of the simulated GPUs.

In C++ a tensor takes part in CUDA's autocast because it is a CUDA tensor, which ours physically are not.
While a region is open, torch's dispatch key for it is therefore included for every tensor of the thread, and
the kernels behind it are replaced by ones that look at the simulated device. The CPU's autocast is another
key and stays what it is.
"""

from __future__ import annotations

import functools
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ..local import local
from ..patches import Patches
from ..tags import device_index
from . import autocast_lists

if TYPE_CHECKING:
    from ..machine import Machine

_KEY = torch._C.DispatchKey.AutocastCUDA
_BELOW = torch._C.DispatchKeySet(_KEY)
_BELOW_BOTH = _BELOW | torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
_below = torch._C._ExcludeDispatchKeyGuard


class _Casts(threading.local):
    """The copies in lower precision that a region made of parameters, until the outermost region is left."""

    def __init__(self) -> None:
        self.made: dict[int, tuple[Any, torch.Tensor]] = {}


_casts = _Casts()


def install(machine: Machine, patches: Patches) -> None:
    """Let autocast regions for "cuda" reach tensors of simulated GPUs."""
    enable, clear = torch.set_autocast_enabled, torch.clear_autocast_cache
    kernels = Kernels()

    def set_autocast_enabled(*args: Any, **kwargs: Any) -> None:
        enable(*args, **kwargs)
        enabled = torch.is_autocast_enabled("cuda")
        if enabled:
            kernels.register()
        torch._C._dispatch_tls_set_dispatch_key_included(_KEY, enabled)

    def clear_autocast_cache() -> None:
        clear()
        _casts.made.clear()

    patches.set(torch, "set_autocast_enabled", set_autocast_enabled)
    patches.set(torch, "clear_autocast_cache", clear_autocast_cache)
    patches.finally_do(lambda: torch._C._dispatch_tls_set_dispatch_key_included(_KEY, False))
    patches.finally_do(kernels.remove)


class Kernels:
    """The replaced kernels: registered when the first region is opened, gone with the machine."""

    def __init__(self) -> None:
        self._library: torch.library.Library | None = None

    def register(self) -> None:
        """Replace the kernels, once."""
        if self._library is not None:
            return
        self._library = torch.library.Library("aten", "IMPL")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some builds tell of each kernel that is replaced
            for name, make in _KINDS.items():
                for operator in autocast_lists.operators(name):
                    self._library.impl(operator, make(operator), "AutocastCUDA")

    def remove(self) -> None:
        """Give torch its own kernels back."""
        if self._library is not None:
            self._library._destroy()
            self._library = None
        _casts.made.clear()


def _eligible(value: Any) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and value.is_floating_point()
        and value.dtype is not torch.float64
        and device_index(value) is not None
    )


def _any(values: Any, test: Callable[[Any], bool]) -> bool:
    return any(any(map(test, value)) if isinstance(value, list | tuple) else test(value) for value in values)


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, list | tuple):
        return [_cast(item, dtype) for item in value]
    if not _eligible(value) or value.dtype is dtype:
        return value
    reusable = (
        dtype is not torch.float32
        and value.dtype is torch.float32
        and value.requires_grad
        and value.is_leaf
        and not value._is_view()
        and torch.is_autocast_cache_enabled()
    )
    if not reusable:
        return value.to(dtype)
    known = _casts.made.get(id(value))
    if known is not None and known[0]() is value and known[1].dtype is dtype:
        return known[1]
    made = value.to(dtype)
    _casts.made[id(value)] = (weakref.ref(value), made)
    return made


def _kernel(change: Callable[[tuple, dict[str, Any]], tuple[tuple, dict[str, Any]]]) -> Any:
    """Makes kernels that call their operator, below autocast, with the arguments that `change` gives."""

    def make(operator: Any) -> Any:
        def kernel(*args: Any, **kwargs: Any) -> Any:
            ours = not local.inside and _any((*args, *kwargs.values()), _eligible)
            with _below(_BELOW_BOTH if ours else _BELOW):
                if ours:
                    args, kwargs = change(args, kwargs)
                return operator(*args, **kwargs)

        return kernel

    return make


def _everything(dtype: torch.dtype, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    return (
        tuple(_cast(value, dtype) for value in args),
        {name: _cast(value, dtype) for name, value in kwargs.items()},
    )


def _lower(args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    return _everything(torch.get_autocast_dtype("cuda"), args, kwargs)


def _widest(args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    def single(value: Any) -> bool:
        return _eligible(value) and value.dtype is torch.float32

    wide = _any((*args, *kwargs.values()), single)
    return _everything(torch.float32 if wide else torch.get_autocast_dtype("cuda"), args, kwargs)


def _accumulating(operator: Any) -> Any:
    """A kernel for an operator with a dtype argument: the sum is float32 unless another is asked for."""
    names = [argument.name for argument in operator._schema.arguments]
    position = names.index("dtype")

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with _below(_BELOW):
            if not local.inside and _eligible(args[0]):
                if len(args) > position and args[position] is None:
                    args = (*args[:position], torch.float32, *args[position + 1 :])
                elif len(args) <= position and kwargs.get("dtype") is None:
                    kwargs["dtype"] = torch.float32
            return operator(*args, **kwargs)

    return kernel


def _refused(operator: Any) -> Any:
    """A kernel that refuses tensors of a GPU as torch's own does."""
    own = torch.library.get_kernel(operator.name(), "AutocastCUDA")

    def kernel(*args: Any, **kwargs: Any) -> Any:
        if not local.inside and _any((*args, *kwargs.values()), _eligible):
            own.call_boxed(_BELOW, *args, **kwargs)
        with _below(_BELOW):
            return operator(*args, **kwargs)

    return kernel


_KINDS: dict[str, Callable[[Any], Any]] = {
    "lower": _kernel(_lower),
    "float32": _kernel(functools.partial(_everything, torch.float32)),
    "accumulating": _accumulating,
    "widest": _kernel(_widest),
    "refused": _refused,
}
