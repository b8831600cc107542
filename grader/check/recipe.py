"""The training recipe of a run, held against the baseline's in the same kind of run.

Architecture, optimizer, precision and loss are here; how much was trained on which samples is in
`grader.check.work`. Everything is compared as observed, so two ways to write the same recipe agree.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from grader.check.difference import Difference, some
from grader.evidence import Architecture, Forward, Optimizer, RunEvidence

# Which kernel carries out the update, and what a scheduler notes down: the update itself is the same.
_NOT_HYPERPARAMETERS = {
    "foreach", "fused", "capturable", "differentiable", "initial_lr", "param_names", "name",
}  # fmt: skip
# Layers without parameters that a forward may as well call as functions; what they compute shows in the loss.
_AS_GOOD_AS_FUNCTIONS = {
    "ReLU", "MaxPool2d", "Flatten", "Identity", "Sequential", "ModuleList", "CrossEntropyLoss", "NLLLoss",
    "LogSoftmax",
}  # fmt: skip


def recipe_differences(
    baseline: RunEvidence,
    submitted: RunEvidence,
    loss_tolerance: float,
    weights_tolerance: float,
    accepted_losses: frozenset[str] = frozenset(),
) -> list[Difference]:
    """Return the differences, most important first.

    `loss_tolerance` is the share of the baseline's loss by which a step's loss may differ,
    `weights_tolerance` that of the way which the baseline's weights went by which the weights may. A run
    without values is judged by the names of its losses: the baseline's, and `accepted_losses`, those
    whose values another run has shown to be right.
    """
    return [
        *_architecture(baseline.architecture, submitted.architecture),
        *_optimizer(baseline, submitted),
        *_precision(baseline, submitted),
        *_loss(baseline, submitted, loss_tolerance, accepted_losses),
        *_weights(submitted, weights_tolerance),
    ]


def training_forwards(run: RunEvidence) -> list[Forward]:
    """The forwards that the weights depend on: those that a gradient reached, before an optimizer step.

    Where no gradient reached any, all forwards: there is nothing better to tell about.
    """
    steps = run.optimized_steps or run.steps
    forwards = [forward for step in steps for forward in step.forwards]
    return [forward for forward in forwards if forward.backwards] or forwards


# -- architecture ------------------------------------------------------------------------------------


def _architecture(expected: Architecture | None, seen: Architecture | None) -> Iterator[Difference]:
    if expected is None or seen is None:
        if expected is not None:
            yield Difference("architecture", "architecture: no model was seen in training", True)
        return
    prefix = _prefix(expected, seen)
    state = {name.removeprefix(prefix): facts for name, facts in seen.state.items()}
    missing = [name for name in expected.state if name not in state]
    added = [name for name in state if name not in expected.state]
    if missing or added:
        parts = [f"without {some(missing)}"] * bool(missing) + [f"with {some(added)} added"] * bool(added)
        yield Difference("architecture", f"architecture: {' and '.join(parts)}", True)
    common = [(name, facts, state[name]) for name, facts in expected.state.items() if name in state]
    for name, wanted, got in common:
        if wanted.shape != got.shape:
            text = f"architecture: {name} has shape {_shape(got.shape)} instead of {_shape(wanted.shape)}"
            yield Difference("architecture", text, True)
            break
    yield from _layers(expected, seen, prefix)
    dtypes = [(name, wanted.dtype, got.dtype) for name, wanted, got in common if wanted.dtype != got.dtype]
    if dtypes:
        name, wanted_dtype, got_dtype = dtypes[0]
        text = f"precision: {name} is {got_dtype} instead of {wanted_dtype}"
        yield Difference("parameter dtype", text, True)
    frozen = [name for name, wanted, got in common if wanted.trainable and not got.trainable]
    if frozen:
        yield Difference("frozen", f"frozen parameters (no gradient is asked for): {some(frozen)}", True)


def _prefix(expected: Architecture, seen: Architecture) -> str:
    """What a module around the model puts before every name, e.g. "network."; "" without one."""
    first = next(iter(expected.state), "")
    for name in seen.state:
        if name.endswith(f".{first}"):
            prefix = name.removesuffix(first)
            if {prefix + wanted for wanted in expected.state} == set(seen.state):
                return prefix
    return ""


def _layers(expected: Architecture, seen: Architecture, prefix: str) -> Iterator[Difference]:
    """Compare the classes of the layers; the name of the model's own class is free."""
    wanted = _own_layers(expected, "")
    own = _own_layers(seen, prefix)
    changed = [name for name in wanted if name in own and own[name] != wanted[name]]
    if changed:
        name = changed[0]
        text = f"architecture: {name} is a {own[name]} instead of a {wanted[name]}"
        yield Difference("architecture", text, True)
    added = [f"{name} ({own[name]})" for name in own if name not in wanted]
    if added:
        yield Difference("architecture", f"architecture: with the layers {some(added)} added", True)
    missing = [f"{name} ({wanted[name]})" for name in wanted if name not in own]
    if missing:
        yield Difference("architecture", f"architecture: without the layers {some(missing)}", True)


def _own_layers(architecture: Architecture, prefix: str) -> dict[str, str]:
    return {
        name.removeprefix(prefix): kind
        for name, kind in architecture.modules.items()
        if name.removeprefix(prefix) and name.startswith(prefix) and kind not in _AS_GOOD_AS_FUNCTIONS
    }


def _shape(shape: list[int]) -> str:
    return "×".join(map(str, shape)) or "scalar"


# -- optimizer ---------------------------------------------------------------------------------------


def _optimizer(baseline: RunEvidence, submitted: RunEvidence) -> Iterator[Difference]:
    if not baseline.optimizers:
        return
    wanted = baseline.optimizers[0]
    if not submitted.optimizers:
        yield Difference("optimizer", "optimizer: none took a step")
        return
    for seen in submitted.optimizers:
        if seen.class_name != wanted.class_name:
            names = seen.class_name.rpartition(".")[2], wanted.class_name.rpartition(".")[2]
            text = f"optimizer: {names[0]} instead of {names[1]}"
            yield Difference("optimizer", text, site=seen.site)
        else:
            yield from _hyperparameters(wanted, seen)
    yield from _covered(wanted, submitted, submitted.optimizers)
    yield from _learning_rates(baseline, submitted)


def _hyperparameters(wanted: Optimizer, seen: Optimizer) -> Iterator[Difference]:
    expected = wanted.hyperparameters[0] if wanted.hyperparameters else {}
    for group in seen.hyperparameters:
        for name in [*expected, *(name for name in group if name not in expected)]:
            before, after = expected.get(name), group.get(name)
            if name not in _NOT_HYPERPARAMETERS and not _same(before, after):
                what = "learning rate" if name == "lr" else name
                text = f"{what}: {_shown(after)} instead of {_shown(before)}"
                yield Difference(f"optimizer {name}", text, site=seen.site)


def _same(before: Any, after: Any) -> bool:
    """Whether two values are equal, up to the rounding of a number that was kept as float32."""
    if isinstance(before, float) and isinstance(after, float):
        return math.isclose(before, after, rel_tol=1e-6)
    return bool(before == after)


def _covered(wanted: Optimizer, run: RunEvidence, optimizers: list[Optimizer]) -> Iterator[Difference]:
    """Every parameter that the baseline trains must be in an optimizer, and none of another model."""
    held = {name for optimizer in optimizers for name in optimizer.parameters}
    foreign = sum(optimizer.foreign_parameters for optimizer in optimizers)
    site = optimizers[0].site
    missing = [n for n in wanted.parameters if n not in held and not any(h.endswith(f".{n}") for h in held)]
    if missing:
        text = f"optimizer: it does not update {some(missing)}"
        if foreign:
            text += "; it holds parameters that are not the trained model's"
        yield Difference("optimizer parameters", text, site=site)


def _learning_rates(baseline: RunEvidence, submitted: RunEvidence) -> Iterator[Difference]:
    """A schedule shows in the rates of the steps, not in the optimizer's own hyperparameters."""
    pairs = zip(baseline.optimized_steps, submitted.optimized_steps, strict=False)
    for number, (before, after) in enumerate(pairs, start=1):
        wanted, got = _rounded(before.learning_rates), _rounded(after.learning_rates)
        if wanted and got and wanted != got:
            text = f"learning rate: {_rates(got)} instead of {_rates(wanted)}, from step {number} on"
            yield Difference("optimizer lr", text, site=submitted.optimizers[0].site)
            return


def _rounded(rates: list[float]) -> set[float]:
    """The rates that occur, up to the rounding of one that was kept as float32."""
    return {float(f"{rate:.6g}") for rate in rates}


def _rates(rates: set[float]) -> str:
    return ", ".join(f"{rate:g}" for rate in sorted(rates))


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else "none" if value is None else str(value)


# -- precision ---------------------------------------------------------------------------------------


def _precision(baseline: RunEvidence, submitted: RunEvidence) -> Iterator[Difference]:
    wanted, seen = training_forwards(baseline), training_forwards(submitted)
    if wanted and seen:
        before = {str(forward.autocast) for forward in wanted}
        for forward in seen:
            if str(forward.autocast) not in before:
                text = f"precision: autocast to {forward.autocast or 'nothing'} in the forward"
                yield Difference("autocast", text, True, forward.site)
                break
        for what, dtypes in (
            ("parameters", lambda f: set(f.parameter_dtypes)),
            ("inputs", lambda f: {f.input_dtype}),
            ("outputs", lambda f: {f.output_dtype}),
        ):
            expected = set().union(*map(dtypes, wanted))
            other = next((forward for forward in seen if dtypes(forward) - expected), None)
            if other is not None:
                got = ", ".join(sorted(dtypes(other) - expected))
                text = f"precision: {got} {what} instead of {', '.join(sorted(expected))}"
                yield Difference("parameter dtype" if what == "parameters" else what, text, True, other.site)
                break
    for switch, value in baseline.precision.items():
        got = submitted.precision.get(switch, value)
        if got != value:
            yield Difference(f"switch {switch}", f"precision: {switch} is {got} instead of {value}", True)


# -- loss --------------------------------------------------------------------------------------------


def _loss(
    baseline: RunEvidence, submitted: RunEvidence, tolerance: float, accepted: frozenset[str]
) -> Iterator[Difference]:
    """Compare values where there are any: equal values from another formula are the same loss.

    The first step's loss knows nothing of the training yet; the sum over all steps shows what only
    training brings out. Steps of several forwards (a batch in parts) have no single loss to compare.
    """
    pairs = [
        (before.loss, after.loss, after.forwards)
        for before, after in zip(baseline.optimized_steps, submitted.optimized_steps, strict=False)
        if before.loss is not None and sum(f.backwards > 0 for f in after.forwards) == 1
    ]
    if pairs:
        wanted, got, forwards = pairs[0]
        if got is None or abs(got - wanted) > tolerance * abs(wanted):
            words = "not a finite number" if got is None else f"{got:.4g}"
            text = f"loss: {words} in the first step, where the baseline has {wanted:.4g}"
            yield Difference("loss", text, site=forwards[0].site)
            return
        drift = sum(abs(before - after) if after is not None else abs(before) for before, after, _ in pairs)
        share = drift / max(sum(abs(before) for before, _, _ in pairs), 1e-12)
        if share > tolerance:
            text = f"loss: it departs from the baseline's by {share:.0%} over the run's steps"
            yield Difference("course", f"{text}; {_UNEXPLAINED}", True, consequence=True)
        return
    wanted_names = {step.loss_function for step in baseline.optimized_steps if step.loss_function}
    names = {step.loss_function for step in submitted.optimized_steps if step.loss_function}
    if wanted_names and not names <= wanted_names | accepted:
        yield Difference(
            "loss function", f"loss: {some(sorted(names))} instead of {some(sorted(wanted_names))}"
        )


# -- weights -----------------------------------------------------------------------------------------

_UNEXPLAINED = (
    "look for other initial weights than initial_weights gives, another computation in forward or in the "
    "loss, or gradients that are not cleared"
)


def _weights(submitted: RunEvidence, tolerance: float) -> Iterator[Difference]:
    """Equal work from equal weights ends at equal weights, but for rounding."""
    distance = submitted.weights_difference
    if distance is not None and not distance <= tolerance:
        text = (
            f"weights: they end {distance:.0%} as far from the baseline's as training moves those, "
            f"where rounding explains {tolerance:.0%} at most; {_UNEXPLAINED}"
        )
        yield Difference("course", text, True, consequence=True)
