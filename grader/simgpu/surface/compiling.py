"""torch.compile and torch.jit over simulated GPUs: the same results, computed operator by operator."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
import torch._dynamo
import torch.jit._builtins

from ..patches import Patches
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


def _find_builtin(original: Any) -> Any:
    """Which operator a function is, also where something of ours is wrapped around it."""

    def find(function: Any) -> Any:
        found = original(function)
        while found is None and hasattr(function, "__wrapped__"):
            function = function.__wrapped__
            found = original(function)
        return found

    return find
