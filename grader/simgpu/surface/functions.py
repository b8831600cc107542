"""Gradients that Python hands to autograd, or gets from it: on the device where CUDA has, or wants, them.

C++ puts in zeros for the missing gradients of a torch.autograd.Function, and compares what functions and
hooks return with what it expects; it knows only the physical device.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import BackwardCFunction

from ..local import local
from ..mismatch import device_name, type_name
from ..patches import Patches
from ..tags import FLOATING, device_index, tag_of
from ..transfers import move

if TYPE_CHECKING:
    from ..machine import Machine


def install(machine: Machine, patches: Patches) -> None:
    """Remember where inputs and outputs of a function were, and hold its gradients to that."""
    forward = inspect.getattr_static(torch.autograd.Function, "apply")  # in C++ or in Python, by version
    backward = BackwardCFunction.apply

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        outputs = forward.__get__(None, cls)(*args, **kwargs)
        if local.observed and not local.inside:
            made = outputs if isinstance(outputs, tuple) else (outputs,)
            node = next((n for n in map(_node, made) if n is not None), None)
            if node is not None:
                node._simulated_inputs = _places(args)
                node._simulated_outputs = _places(made)
        return outputs

    def apply_backward(node: Any, *gradients: Any) -> Any:
        places = getattr(node, "_simulated_outputs", None)
        if places is not None:
            for gradient, place in zip(gradients, places, strict=False):
                if (
                    place not in (None, _NO_TENSOR)
                    and isinstance(gradient, torch.Tensor)
                    and device_index(gradient) is None
                ):
                    machine.place(gradient, place)
        returned = backward(node, *gradients)
        if getattr(node, "_simulated_inputs", None) is None or not local.observed:
            return returned
        return _checked(machine, node, returned)

    patches.set(torch.autograd, "_make_grads", _make_grads(torch.autograd._make_grads))
    patches.set(torch.Tensor, "register_hook", _register_hook(torch.Tensor.register_hook))
    patches.set(torch.autograd.Function, "apply", classmethod(apply))
    patches.set(BackwardCFunction, "apply", apply_backward)


def _node(output: Any) -> Any:
    node = output.grad_fn if isinstance(output, torch.Tensor) else None
    return node if isinstance(node, BackwardCFunction) else None


_NO_TENSOR = -1


def _places(values: tuple) -> list[int | None]:
    return [device_index(value) if isinstance(value, torch.Tensor) else _NO_TENSOR for value in values]


def _checked(machine: Machine, node: Any, returned: Any) -> Any:
    """The gradients that a backward returned, one of them moved if it is a number; another is an error.

    `validate_outputs_impl` in torch/csrc/autograd/engine.cpp.
    """
    gradients = list(returned) if isinstance(returned, tuple) else [returned]
    places = node._simulated_inputs
    for position, (gradient, place) in enumerate(zip(gradients, places, strict=False)):
        if place == _NO_TENSOR or not isinstance(gradient, torch.Tensor) or tag_of(gradient) is FLOATING:
            continue
        here = device_index(gradient)
        if here == place:
            continue
        if gradient.dim():
            number = position - places[:position].count(_NO_TENSOR)
            raise RuntimeError(
                f"Function {node.name()} returned an invalid gradient at index {number} - expected device "
                f"{device_name(place)} but got {device_name(here)}"
            )
        gradients[position] = move(machine, gradient, place)
    return tuple(gradients) if isinstance(returned, tuple) else gradients[0]


def _make_grads(original: Any) -> Any:
    """The same function, which completes the gradients that backward() and grad() begin with, and compares
    their devices: `validate_outputs_impl` in torch/csrc/autograd/engine.cpp."""

    @functools.wraps(original)
    def make_grads(outputs: Any, grads: Any, *args: Any, **kwargs: Any) -> Any:
        made = original(outputs, grads, *args, **kwargs)
        if local.observed and not local.inside:
            for position, (output, gradient) in enumerate(zip(outputs, made, strict=False)):
                both = isinstance(output, torch.Tensor) and isinstance(gradient, torch.Tensor)
                if both and gradient.dim() and _moved(output, gradient):
                    wanted, found = (device_name(device_index(each)) for each in (output, gradient))
                    raise RuntimeError(
                        f"invalid gradient at index {position} - expected device {wanted} but got {found}"
                    )
        return made

    return make_grads


def _register_hook(original: Any) -> Any:
    """The same method, whose hooks may not move a gradient: `check_single_result` in
    torch/csrc/autograd/python_hook.cpp."""

    @functools.wraps(original)
    def register_hook(self: torch.Tensor, hook: Any) -> Any:
        @functools.wraps(hook)
        def checked(gradient: torch.Tensor) -> Any:
            out = hook(gradient)
            if isinstance(out, torch.Tensor) and local.observed and _moved(gradient, out):
                was, got = (type_name(each, device_index) for each in (gradient, out))
                name = getattr(hook, "__name__", type(hook).__name__)
                raise RuntimeError(f"hook '{name}' has changed the type of value (was {was} got {got})")
            return out

        return original(self, checked)

    return register_hook


def _moved(gradient: torch.Tensor, out: torch.Tensor) -> bool:
    floats = any(tag_of(each) is FLOATING for each in (gradient, out))
    return not floats and device_index(out) != device_index(gradient)
