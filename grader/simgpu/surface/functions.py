"""torch.autograd.Function: missing gradients of its outputs are zeros on the device of each output.

C++ puts those zeros in, and knows only the physical device.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import BackwardCFunction

from ..local import local
from ..patches import Patches
from ..tags import device_index

if TYPE_CHECKING:
    from ..machine import Machine


def install(machine: Machine, patches: Patches) -> None:
    """Remember where the outputs of a function were, and put the zeros for them there."""
    forward = inspect.getattr_static(torch.autograd.Function, "apply")  # in C++ or in Python, by version
    backward = BackwardCFunction.apply

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        outputs = forward.__get__(None, cls)(*args, **kwargs)
        if isinstance(outputs, tuple) and local.observed and not local.inside:
            places = [device_index(out) if isinstance(out, torch.Tensor) else None for out in outputs]
            if any(place is not None for place in places):
                node = next((n for n in map(_node, outputs) if n is not None), None)
                if node is not None:
                    node._simulated_outputs = places
        return outputs

    def apply_backward(node: Any, *gradients: Any) -> Any:
        places = getattr(node, "_simulated_outputs", None)
        if places is not None:
            for gradient, place in zip(gradients, places, strict=False):
                if (
                    place is not None
                    and isinstance(gradient, torch.Tensor)
                    and device_index(gradient) is None
                ):
                    machine.place(gradient, place)
        return backward(node, *gradients)

    patches.set(torch.autograd.Function, "apply", classmethod(apply))
    patches.set(BackwardCFunction, "apply", apply_backward)


def _node(output: Any) -> Any:
    node = output.grad_fn if isinstance(output, torch.Tensor) else None
    return node if isinstance(node, BackwardCFunction) else None
