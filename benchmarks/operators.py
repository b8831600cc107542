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
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from operator_calls import HOME, Call, calls, installed, load, run, title

from grader import simgpu
from grader.simgpu.errors import NotSimulated

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


class Refused(Exception):
    """An operator that the simulation says it does not have."""


class Differs(Exception):
    """An operator whose result is not the CPU's."""


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


def try_calls(op: Any, chosen: list[Call], machine: simgpu.Machine, seed: int) -> set[str]:
    """What became of the calls that the CPU can do. Raises Refused, Differs, or what the operator raised."""
    before = [[plain_copy(leaf) for leaf in call.leaves] for call in chosen]
    wanted = [on_the_cpu(op, call, seed) for call in chosen]
    kept = [results and [plain_copy(item) for item in results] for results in wanted]
    with installed(machine):
        got = [
            try_call(op, call, seed) if results is not None else None
            for call, results in zip(chosen, wanted, strict=True)
        ]
    kinds = {
        "largest" if compare(op, call, results, *given, machine.math) else "passed"
        for call, results, given in zip(chosen, wanted, got, strict=True)
        if results is not None and given is not None
    }
    for call, own, results, copies in zip(chosen, before, wanted, kept, strict=True):
        pairs = zip([*own, *(copies or [])], [*call.leaves, *(results or [])], strict=True)
        for a, b in pairs if op.name not in UNINITIALIZED else ():
            if isinstance(a, torch.Tensor):
                check_values("the CPU's tensors changed: ", b.detach(), a)
    return kinds


def on_the_cpu(op: Any, call: Call, seed: int) -> list[Any] | None:
    """What the call gives without any simulation; None where the CPU itself fails."""
    try:
        return run(op, call, "cpu", seed)
    except Exception:
        return None


def try_call(op: Any, call: Call, seed: int) -> tuple[list[Any], list[Any]]:
    """The results on the simulated GPU as plain tensors, and their devices. Raises Refused, or op's error."""
    try:
        got = run(op, call, HOME, seed)
    except NotSimulated as error:
        raise Refused(str(error).split(" is not simulated")[0].rstrip(",")) from error
    devices = [getattr(item, "device", None) for item in got]
    return [simgpu.physical(item) if isinstance(item, torch.Tensor) else item for item in got], devices


def plain_copy(value: Any) -> Any:
    """A tensor that later changes do not reach."""
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def judge(op: Any, machines: dict[str, simgpu.Machine], seed: int, limit: int) -> dict[str, Outcome]:
    """What becomes of one operator over its inputs, on each of the machines."""
    outcomes = {}
    chosen: list[Call] | None = None
    for name, machine in machines.items():
        try:
            if chosen is None:
                chosen = calls(op, seed, limit, machines["with arithmetic"])
            kinds = try_calls(op, chosen, machine, seed)
            kind, reason = next((k for k in ("largest", "passed") if k in kinds), "no inputs"), ""
        except Refused as error:
            kind, reason = "refused", str(error)
        except Differs as error:
            kind, reason = "failed", str(error)[:200]
        except Exception as error:
            kind, reason = "failed", f"{type(error).__name__}: {error}".splitlines()[0][:200]
        outcomes[name] = Outcome(title(op), kind, reason)
    return outcomes


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
        "Written by `python benchmarks/operators.py --write`, whose text says what is compared and how: "
        f"values, types, shapes and devices with those of the CPU, torch {version}, float32, forward and "
        "backward. An operator is an entry of torch's own list (`op_db`), variants counted apart. Random "
        "ones draw from generators seeded alike; memory that nothing initialized is compared by shape.",
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
        "no inputs": "Not compared: nothing of it runs on a CPU",
    }
    for name, outcomes in results.items():
        for kind, heading in titles.items():
            rows = [outcome for outcome in outcomes if outcome.kind == kind]
            if any(row.reason for row in rows):
                lines += ["", f"## {heading}, {name}", "", "| operator | reason |", "| --- | --- |"]
                lines += [f"| `{row.name}` | {row.reason.replace('|', chr(92) + '|')} |" for row in rows]
            elif rows:
                lines += ["", f"## {heading}, {name}", "", *(f"- `{row.name}`" for row in rows)]
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
    machines = {name: simgpu.Machine("2xT4", math=name == "with arithmetic") for name in LEAST}
    judged = [judge(op, machines, options.seed, options.inputs) for op in chosen]
    results = {name: [outcomes[name] for outcomes in judged] for name in machines}
    good = True
    for name, outcomes in results.items():
        print(f"\n{name}: {table(outcomes)}")
        good &= not any(outcome.kind == "failed" for outcome in outcomes)
        if len(chosen) == len(everything):
            good &= sum(outcome.good for outcome in outcomes) >= LEAST[name] * len(compared(outcomes))
    if options.write:
        PAGE.write_text(page(results), encoding="utf-8")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
