"""The operators of torch's own tests, and calls of them whose arguments a simulated GPU holds.

See operators.py, which compares what they give.
"""

from __future__ import annotations

import sys
import types
import unittest
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from grader import simgpu
from grader.simgpu.surface import generators

HOME = "cuda:1"


@dataclass(frozen=True)
class Call:
    """One way to call an operator: its arguments on the CPU, and which of them a GPU would hold."""

    leaves: list[Any]
    structure: Any
    on_gpu: list[bool]
    process: Callable[[Any], Any]  # picks the differentiable part of the output

    def arguments(self, device: str) -> tuple[Any, list[Any], dict[str, Any]]:
        """Fresh arguments, moved to `device` as far as they belong there."""
        leaves = [
            fresh(leaf, device if home else "cpu")
            for leaf, home in zip(self.leaves, self.on_gpu, strict=True)
        ]
        return tree_unflatten(leaves, self.structure)


def fresh(leaf: Any, device: str) -> Any:
    """A copy of a tensor on a device, or the device itself where the argument is one."""
    if isinstance(leaf, torch.device):
        return torch.device(device)
    if not isinstance(leaf, torch.Tensor):
        return device if isinstance(leaf, str) and leaf == "cpu" else leaf
    copied = leaf.detach().clone().to(device)
    return copied.requires_grad_(leaf.requires_grad)


def load() -> list[Any]:
    """torch's descriptions of its operators."""
    # torch's helpers compare texts with a package that is used nowhere here.
    stand_in = types.ModuleType("expecttest")
    stand_in.TestCase = unittest.TestCase  # type: ignore[attr-defined]
    sys.modules.setdefault("expecttest", stand_in)
    from torch.testing._internal.common_methods_invocations import op_db

    return [op for op in op_db if torch.float32 in op.supported_dtypes("cpu")]


def title(op: Any) -> str:
    """The operator's name with its variant."""
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def calls(op: Any, seed: int, limit: int, machine: simgpu.Machine) -> list[Call]:
    """At most `limit` of the inputs that torch knows for the operator on a GPU, spread over all of them."""
    with installed(machine):
        torch.manual_seed(seed)
        samples = list(op.sample_inputs(HOME, torch.float32, requires_grad=op.supports_autograd))
        step = max(1, -(-len(samples) // limit))
        return [_call(sample) for sample in samples[::step]]


@contextmanager
def installed(machine: simgpu.Machine) -> Iterator[None]:
    """The machine, for a while; it draws what the CPU draws, by not mixing a number into its seeds."""
    with mock.patch.object(generators, "_OTHER_THAN_THE_CPU", 0):
        machine.install()
        try:
            yield
        finally:
            machine.uninstall()


def _call(sample: Any) -> Call:
    leaves, structure = tree_flatten((sample.input, list(sample.args), dict(sample.kwargs)))
    homes, plain = [], []
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            homes.append(leaf.device.type == "cuda")
            plain.append(simgpu.physical(leaf).clone().requires_grad_(leaf.requires_grad))
        else:
            device = isinstance(leaf, torch.device) or (isinstance(leaf, str) and leaf.startswith("cuda"))
            homes.append(device and torch.device(leaf).type == "cuda")
            plain.append("cpu" if device and isinstance(leaf, str) else leaf)
    return Call(plain, structure, homes, sample.output_process_fn_grad)


def run(op: Any, call: Call, device: str, seed: int) -> list[Any]:
    """The operator's outputs, then its gradients, in one flat list; None for a gradient that is missing."""
    first, args, kwargs = call.arguments(device)
    torch.manual_seed(seed)
    out = current(op)(first, *args, **kwargs)
    results = tree_flatten(out)[0]
    if not op.supports_autograd:
        return results
    differentiable = wanting_gradients(call.process(out))
    inputs = wanting_gradients((first, args, kwargs))
    if not differentiable or not inputs:
        return results
    ones = [torch.ones_like(item) for item in differentiable]
    return results + list(torch.autograd.grad(differentiable, inputs, ones, allow_unused=True))


def current(op: Any) -> Callable[..., Any]:
    """The operator as a script that starts now finds it; torch's list holds what it was before."""
    found: Any = torch
    for part in op.name.split("."):
        found = getattr(found, part, None)
    return found if getattr(found, "__wrapped__", None) is op.op else op


def wanting_gradients(tree: Any) -> list[torch.Tensor]:
    """The tensors in nested lists that require gradients."""
    return [item for item in tree_flatten(tree)[0] if isinstance(item, torch.Tensor) and item.requires_grad]
