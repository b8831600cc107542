"""Which of torch's operators give on a simulated GPU what they give on the CPU.

torch describes its operators for its own tests: how to call each and with which inputs
(`torch.testing._internal.common_methods_invocations.op_db`). Each is called with float32 inputs made for
`cuda:1` of two simulated T4, and again on the CPU without any simulation, forward and, where the operator
has derivatives, backward. An operator passes if for each of its inputs every output and gradient

- says that it is on the device it is on with CUDA: `cuda:1`, or the CPU where no argument names a GPU;
- has the CPU's shape, type and values. Random ones too: both draw from the CPU's generator, seeded alike.
  Memory that nothing initialized is compared by shape and type alone;

and neither the CPU's inputs nor its results changed. Without arithmetic the same is asked of shapes, types
and devices, where a shape that depends on values may be the largest possible. Whatever is not supported
must be refused by name.

    python benchmarks/operators.py [--sample N --seed S] [--inputs 6] [--only NAME] [--write]

`--sample 40 --seed 7` takes 40 operators chosen by that seed; `--write` puts the result of a full
run into docs/simgpu-operators.md. Ends with 1 where one gives a wrong result without saying so, or where
of all operators fewer than 99 % pass with arithmetic, or 97 % without.
"""

from __future__ import annotations

import argparse
import random
import sys
import types
import unittest
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from grader import simgpu
from grader.simgpu.errors import NotSimulated
from grader.simgpu.surface import generators

HOME = "cuda:1"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "simgpu-operators.md"
LEAST = {"with arithmetic": 0.99, "without arithmetic": 0.97}
UNINITIALIZED = {
    "empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided", "resize_",
    "resize_as_", "as_strided.partial_views",
}  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What became of one operator."""

    name: str  # with its variant: "std.unbiased"
    kind: str  # "passed", "largest" (a shape depends on values), "refused", "failed" or "no inputs"
    reason: str = ""

    @property
    def good(self) -> bool:
        """Whether it counts as passed."""
        return self.kind in ("passed", "largest")


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


class Refused(Exception):
    """An operator that the simulation says it does not have."""


class Differs(Exception):
    """An operator whose result is not the CPU's."""


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


def calls(op: Any, seed: int, limit: int) -> list[Call]:
    """At most `limit` of the inputs that torch knows for the operator on a GPU, spread over all of them."""
    with simgpu.simulate("2xT4"):
        torch.manual_seed(seed)
        samples = list(op.sample_inputs(HOME, torch.float32, requires_grad=op.supports_autograd))
        step = max(1, -(-len(samples) // limit))
        return [_call(sample) for sample in samples[::step]]


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


def compare(op: Any, call: Call, wanted: list[Any], got: list[Any], devices: list[Any], values: bool) -> bool:
    """Whether a shape is the largest possible one instead of the CPU's. Raises Differs."""
    if len(wanted) != len(got):
        raise Differs(f"{len(got)} results instead of {len(wanted)}")
    home = torch.device(HOME if any(call.on_gpu) else "cpu")
    largest = False
    for position, (a, b, device) in enumerate(zip(wanted, got, devices, strict=True)):
        where = f"result {position}: "
        if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
            if type(a) is not type(b) or (values and a != b):
                raise Differs(f"{where}{b!r} instead of {a!r}")
            continue
        if device != home:
            raise Differs(f"{where}on {device}")
        if (a.dtype, a.layout, a.dim()) != (b.dtype, b.layout, b.dim()):
            raise Differs(f"{where}{b.dtype} {b.layout} {b.dim()}-d, not {a.dtype} {a.layout} {a.dim()}-d")
        if a.shape != b.shape:
            if values or any(m > n for m, n in zip(a.shape, b.shape, strict=True)):
                raise Differs(f"{where}shape {list(b.shape)} instead of {list(a.shape)}")
            largest = True
        elif values and op.name not in UNINITIALIZED:
            check_values(where, b, a)
    return largest


def check_values(where: str, got: torch.Tensor, wanted: torch.Tensor) -> None:
    """Compare within torch's tolerance for float32. Raises Differs."""
    try:
        torch.testing.assert_close(got, wanted, equal_nan=True, check_stride=False)
    except AssertionError as error:
        raise Differs(where + " ".join(str(error).split())) from error


def try_call(op: Any, call: Call, seed: int, math: bool) -> str | None:
    """What became of one call; None where the CPU itself fails. Raises Refused, Differs, or `op`'s error."""
    before = [plain_copy(leaf) for leaf in call.leaves]
    try:
        wanted = run(op, call, "cpu", seed)
    except Exception:
        return None
    kept = [plain_copy(item) for item in wanted]
    # A simulated GPU mixes a number into its seeds, so that it does not draw what the CPU draws.
    with mock.patch.object(generators, "_OTHER_THAN_THE_CPU", 0), simgpu.simulate("2xT4", math=math):
        try:
            got = run(op, call, HOME, seed)
        except NotSimulated as error:
            raise Refused(str(error).split(" is not simulated")[0].rstrip(",")) from error
        devices = [getattr(item, "device", None) for item in got]
        got = [simgpu.physical(item) if isinstance(item, torch.Tensor) else item for item in got]
    largest = compare(op, call, wanted, got, devices, math)
    for a, b in zip([*before, *kept], [*call.leaves, *wanted], strict=True):
        if isinstance(a, torch.Tensor) and op.name not in UNINITIALIZED:
            check_values("the CPU's tensors changed: ", b.detach(), a)
    return "largest" if largest else "passed"


def plain_copy(value: Any) -> Any:
    """A tensor that later changes do not reach."""
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def judge(op: Any, seed: int, limit: int, math: bool) -> Outcome:
    """What becomes of one operator over its inputs."""
    kinds = set()
    try:
        for call in calls(op, seed, limit):
            kinds.add(try_call(op, call, seed, math))
    except Refused as error:
        return Outcome(title(op), "refused", str(error))
    except Differs as error:
        return Outcome(title(op), "failed", str(error)[:200])
    except Exception as error:
        return Outcome(title(op), "failed", f"{type(error).__name__}: {error}".splitlines()[0][:200])
    return Outcome(title(op), next((kind for kind in ("largest", "passed") if kind in kinds), "no inputs"))


def compared(outcomes: list[Outcome]) -> list[Outcome]:
    """Those of operators that the CPU can run with the inputs of a GPU."""
    return [outcome for outcome in outcomes if outcome.kind != "no inputs"]


def table(outcomes: list[Outcome]) -> str:
    """Counts, and a line for each operator that did not simply pass."""
    total, passed = len(compared(outcomes)), sum(outcome.good for outcome in outcomes)
    lines = [f"{passed} of {total} operators passed ({passed / max(1, total):.1%})"]
    for outcome in outcomes:
        if outcome.kind != "passed":
            lines.append(f"  {outcome.kind:9}  {outcome.name:42}  {outcome.reason}".rstrip())
    return "\n".join(lines)


def page(results: dict[str, list[Outcome]]) -> str:
    """docs/simgpu-operators.md."""
    version = torch.__version__.split("+")[0]
    lines = [
        "# Operators on simulated GPUs",
        "",
        "Written by `python benchmarks/operators.py --write`, which says what is compared and how; "
        f"torch {version}, float32, forward and backward. An operator is an entry of torch's own list "
        "(`op_db`), its variants counted apart.",
        "",
        "| | compared | passed | share |",
        "| --- | ---: | ---: | ---: |",
    ]
    for name, outcomes in results.items():
        total, passed = len(compared(outcomes)), sum(outcome.good for outcome in outcomes)
        lines.append(f"| {name} | {total} | {passed} | {passed / max(1, total):.1%} |")
    titles = {
        "failed": "Not the CPU's result",
        "refused": "Refused by name",
        "largest": "A shape that depends on values: the largest possible one is taken",
        "no inputs": "Not compared: torch's inputs for a GPU do not run on this CPU",
    }
    for name, outcomes in results.items():
        for kind, heading in titles.items():
            rows = [outcome for outcome in outcomes if outcome.kind == kind]
            if rows:
                lines += ["", f"## {heading}, {name}", "", "| operator | reason |", "| --- | --- |"]
                lines += [f"| `{row.name}` | {row.reason.replace('|', chr(92) + '|')} |" for row in rows]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run the sweep and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=int, help="take only so many operators, chosen at random")
    parser.add_argument("--seed", type=int, default=0, help="chooses operators and values")
    parser.add_argument("--inputs", type=int, default=6, help="at most so many inputs of each operator")
    parser.add_argument("--only", help="operators of this name")
    parser.add_argument("--write", action="store_true", help=f"write docs/{PAGE.name}")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    everything = load()
    chosen = [op for op in everything if options.only in (None, op.name, title(op))]
    if options.sample:
        chosen = random.Random(options.seed).sample(chosen, min(options.sample, len(chosen)))
    print(f"torch {torch.__version__}, {len(chosen)} of {len(everything)} operators, seed {options.seed}")
    results, good = {}, True
    for name, math in (("with arithmetic", True), ("without arithmetic", False)):
        outcomes = results[name] = [judge(op, options.seed, options.inputs, math) for op in chosen]
        print(f"\n{name}: {table(outcomes)}", flush=True)
        good &= not any(outcome.kind == "failed" for outcome in outcomes)
        if len(chosen) == len(everything):
            good &= sum(outcome.good for outcome in outcomes) >= LEAST[name] * len(compared(outcomes))
    if options.write:
        PAGE.write_text(page(results), encoding="utf-8")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
