"""torch.compile and torch.jit over simulated GPUs: the same results, computed operator by operator."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
import torch._dynamo
import torch.export
import torch.jit._builtins
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves

from ..errors import NotSimulated
from ..local import local, unobserved
from ..patches import Patches
from ..tags import device_index
from .notices import Notices

if TYPE_CHECKING:
    from ..machine import Machine


def install(machine: Machine, patches: Patches) -> None:
    """Let torch.compile give back what runs eagerly, and say so once; let torch.jit see through patches."""
    torch.jit._builtins._get_builtin_table()  # torch makes it once, and it has to hold torch's own functions
    patches.set(torch.jit._builtins, "_find_builtin", _find_builtin(torch.jit._builtins._find_builtin))
    notices = Notices()

    @functools.wraps(torch.compile)
    def compile(model: Any = None, **options: Any) -> Any:
        if model is None:
            return functools.partial(compile, **options)
        if options.get("mode") is not None and options.get("options") is not None:
            raise RuntimeError(
                "Either mode or options can be specified, but both can't be specified at once."
            )
        notices.warn(
            f"torch.compile compiles nothing for simulated GPUs ({machine.profile.name}): the model runs "
            "eagerly, with the same results, and its simulated time is that of the eager model.",
        )
        # A module is wrapped as torch.compile wraps it, so that names in its state_dict are the same.
        return torch._dynamo.disable(model)

    patches.set(torch, "compile", compile)
    patches.set(torch.export, "export", _export(torch.export.export))


def _export(original: Any) -> Any:
    """The same function, for models on the CPU. It traces below every dispatch mode, and ends the process
    when it meets one that runs operators."""

    @functools.wraps(original)
    def export(mod: Any, args: Any = (), *others: Any, **kwargs: Any) -> Any:
        if not local.observed:
            return original(mod, args, *others, **kwargs)
        state = [*mod.parameters(), *mod.buffers()] if isinstance(mod, torch.nn.Module) else []
        given = tree_leaves((state, args, kwargs.get("kwargs"), others[:1]))
        if any(isinstance(value, torch.Tensor) and device_index(value) is not None for value in given):
            raise NotSimulated("torch.export of a model on a GPU")
        with unobserved(), _disable_current_modes():
            return original(mod, args, *others, **kwargs)

    return export


def _find_builtin(original: Any) -> Any:
    """Which operator a function is, also where something of ours is wrapped around it."""

    def find(function: Any) -> Any:
        found = original(function)
        while found is None and hasattr(function, "__wrapped__"):
            function = function.__wrapped__
            found = original(function)
        return found

    return find
