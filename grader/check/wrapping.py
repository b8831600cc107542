"""Whether a run trained its whole model through nn.DataParallel on all GPUs, and if not, what it did."""

from __future__ import annotations

import ast

from grader.check.difference import counted, some
from grader.check.recipe import training_forwards
from grader.check.vocabulary import CheckFailed, Ungradable
from grader.evidence import Evidence, Forward, RunEvidence, Wrapper

# These methods are what DataParallel does: cut the batch, copy the model, run the copies, join their
# outputs. A subclass that replaces one is another algorithm, whatever it gives in the steps seen here.
# Other methods may be replaced, `__init__` and `__getattr__` among them: what they change shows in
# the GPUs in use and in the rows that each of them forwarded.
PARALLEL_METHODS = {
    "__call__",
    "__getattribute__",
    "_call_impl",
    "_wrapped_call_impl",
    "forward",
    "gather",
    "parallel_apply",
    "replicate",
    "scatter",
}


def require_wrapped(run: RunEvidence, name: str, evidence: Evidence) -> None:
    """Raise `CheckFailed` unless every training forward of the run called a DataParallel over all GPUs.

    `name` is the run's name in a sentence. Wrappers that no training forward used do not matter.
    """
    forwards = training_forwards(run)
    if not forwards:
        raise CheckFailed(
            f"In the {name} no training step called a model. "
            "Expected: a model wrapped in nn.DataParallel, and that wrapper called in every step."
        )
    outside = [forward for forward in forwards if forward.path != "wrapper"]
    if outside:
        raise _not_through_a_wrapper(evidence, run, name, outside, len(forwards))
    used = {forward.wrapper: wrapper_of(forward, run) for forward in forwards}
    for wrapper in used.values():
        _require_data_parallel(wrapper, evidence.devices.count)


def known_cause(run: RunEvidence) -> str:
    """A sentence about a wrapping that explains why a run stopped, to append to a message; "" without one."""
    for wrapper in run.wrappers:
        if wrapper.wraps_wrapper:
            return f"\nThe model is wrapped twice, one wrapper inside another{_at(wrapper)}: one is enough."
        if wrapper.kind == "distributed":
            return f"\nThe script uses DistributedDataParallel{_at(wrapper)}; nn.DataParallel is asked for."
    return ""


def wrapper_of(forward: Forward, run: RunEvidence) -> Wrapper:
    """The wrapper that a forward went through; raises `Ungradable` where the record lacks it."""
    index = forward.wrapper
    if index is None or not 0 <= index < len(run.wrappers):
        raise Ungradable("A training forward went through a wrapper that was not recorded.")
    return run.wrappers[index]


def short_name(wrapper: Wrapper) -> str:
    """The class name without its module."""
    return wrapper.class_name.rpartition(".")[2]


def _not_through_a_wrapper(
    evidence: Evidence, run: RunEvidence, name: str, outside: list[Forward], total: int
) -> CheckFailed:
    """Say why training forwards went past a wrapper: the first one that did decides on the words."""
    first = outside[0]
    count = len(outside)
    share = "every training forward" if count == total else f"{count} of {total} training forwards"
    share = f"{share} in the {name}"
    if first.path == "bypass":
        wrapper = wrapper_of(first, run)
        return CheckFailed(
            f"{share.capitalize()} called the bare {first.model}, past its wrapper{_at(wrapper)}. "
            + _advice_on_bypass(first, wrapper),
            site=first.site,
        )
    if first.path == "partial":
        wrapper = wrapper_of(first, run)
        return CheckFailed(
            f"Only a part of the model is wrapped: {wrapper.wraps} inside {first.model}. "
            f"Expected: nn.DataParallel around the whole model, {first.model}.",
            site=wrapper.site or first.site,
            why="What is outside the wrapper still runs on one GPU, on the whole batch.",
        )
    if first.path == "functional":
        return CheckFailed(
            f"{share.capitalize()} went through the function data_parallel, which splits a batch "
            "but wraps nothing. Expected: the model wrapped once, in the class nn.DataParallel.",
            site=first.site,
            why="The wrapped model is a module: it can be trained, evaluated and saved like any other.",
        )
    return _never_wrapped(evidence, run, first, share, count == total)


def _advice_on_bypass(first: Forward, wrapper: Wrapper) -> str:
    """Which of two mistakes it was decides on the advice alone; the verdict is the same."""
    if first.site and ".module" in first.site.code:
        return (
            "`.module` is the model inside the wrapper. "
            "Expected: a call of the wrapper itself, `model(images)` rather than `model.module(images)`."
        )
    if wrapper.site and _is_discarded(wrapper.site.code):
        return (
            "nn.DataParallel(model) does not change the model: it returns the wrapped one, which was "
            "discarded. Expected: `model = nn.DataParallel(model)`."
        )
    return (
        "nn.DataParallel(model) does not change the model: it returns the wrapped one, which was not called. "
        "Expected: training calls what nn.DataParallel returned, not the model inside (`.module`)."
    )


def _is_discarded(code: str) -> bool:
    """Whether a line of Python is an expression whose value nobody keeps."""
    try:
        return isinstance(ast.parse(code).body[0], ast.Expr)
    except (SyntaxError, IndexError):
        return False


def _never_wrapped(
    evidence: Evidence, run: RunEvidence, first: Forward, share: str, all_of_them: bool
) -> CheckFailed:
    late = next((wrapper for wrapper in run.wrappers if wrapper.built_after_steps > 0), None)
    steps = len(run.optimized_steps)
    if late is not None and all_of_them and late.built_after_steps >= steps:
        return CheckFailed(
            f"The model was wrapped after the training loop, when all {steps} steps were taken already. "
            "Expected: wrapped before the first step.",
            site=late.site,
        )
    if late is not None and not all_of_them:
        return CheckFailed(
            f"The model was wrapped only after {counted(late.built_after_steps, 'step')} of training: "
            f"{share} ran without a wrapper. Expected: wrapped before the first step.",
            site=late.site,
        )
    if late is not None:
        return CheckFailed(
            f"{share.capitalize()} ran on {first.model} past nn.DataParallel, which was built after "
            f"{counted(late.built_after_steps, 'step')} and not called in training. "
            "Expected: wrapped before the first step, and the wrapper called in every step.",
            site=late.site,
        )
    if run.wrappers:
        other = run.wrappers[0]
        return CheckFailed(
            f"{short_name(other)} wraps a {other.wraps} that is not the one trained: {share} ran on a "
            f"{first.model} without a wrapper. Expected: the model that is trained, wrapped.",
            site=other.site,
        )
    look_alike = _look_alike(evidence, run)
    if look_alike:
        return CheckFailed(
            f"{share.capitalize()} went through {look_alike}, a class of the script's own that is not "
            "torch.nn.DataParallel. Expected: torch.nn.DataParallel around the model.",
            site=first.site,
            why="A class that resembles DataParallel need not split the batch as it does.",
        )
    return CheckFailed(
        f"The model was never wrapped: {share} ran on a plain {first.model} on "
        f"{some(sorted(first.rows_per_device)) or first.input_device}. "
        f"Expected: torch.nn.DataParallel around the model, over all {evidence.devices.count} GPUs."
        + _where_it_is_built(run, first),
        site=first.site,
    )


def _where_it_is_built(run: RunEvidence, first: Forward) -> str:
    """Advice that leads from the call, which is what was seen, to the model's construction; "" without."""
    site = next((optimizer.site for optimizer in run.optimizers if optimizer.site), None)
    if site is None:
        return ""
    seen = f" ({first.site} only calls it)" if first.site else ""
    return (
        "\nWhat to do: Look at the line that builds the model, before the optimizer takes its parameters "
        f"at {site}{seen}."
    )


def _look_alike(evidence: Evidence, run: RunEvidence) -> str:
    """The class of a module of the script's own that stands around the model; "" without one."""
    expected, seen = evidence.baseline.accuracy.architecture, run.architecture
    if expected is None or seen is None or seen.class_name == expected.class_name:
        return ""
    inside = [kind for name, kind in seen.modules.items() if name]
    return seen.class_name if expected.class_name in inside else ""


def _require_data_parallel(wrapper: Wrapper, count: int) -> None:
    """Raise where what the training went through is not DataParallel over all GPUs."""
    if wrapper.kind == "distributed":
        raise CheckFailed(
            "The model is wrapped in DistributedDataParallel. "
            "Expected here: nn.DataParallel, in one process.",
            site=wrapper.site,
            why="DistributedDataParallel needs a process for each GPU: in one process it splits nothing.",
        )
    changed = sorted(PARALLEL_METHODS.intersection(wrapper.overrides))
    if changed:
        raise CheckFailed(
            f"{short_name(wrapper)} is DataParallel with its own {some(changed)}. "
            "Expected: torch.nn.DataParallel, or a subclass that leaves what makes it parallel as it is.",
            site=wrapper.site,
            why="forward, scatter, replicate, parallel_apply and gather are what DataParallel is: "
            "with one of them replaced the class does something else under its name.",
        )
    if wrapper.wraps_wrapper:
        raise CheckFailed(
            "The model is wrapped twice: one wrapper inside another. Expected: one, around the model.",
            site=wrapper.site,
            why="The inner wrapper splits its part once more, from a GPU that its model may not be on.",
        )
    _require_all_gpus(wrapper, count)


def _require_all_gpus(wrapper: Wrapper, count: int) -> None:
    ids, missing = wrapper.device_ids, sorted(set(range(count)) - set(wrapper.device_ids))
    if len(set(ids)) < len(ids):
        raise CheckFailed(
            f"device_ids is {_ids(ids)}, one GPU more than once. Expected: each of the {count} GPUs once.",
            site=wrapper.site,
        )
    if missing:
        only = "one GPU only" if len(ids) == 1 else f"{len(ids)} of {count} GPUs"
        idle = some([f"cuda:{device}" for device in missing])
        raise CheckFailed(
            f"The wrapper uses {only}: device_ids is {_ids(ids)}, without {idle}. "
            f"Expected: all {count} GPUs, which is what nn.DataParallel takes when device_ids is left out.",
            site=wrapper.site,
            why="A GPU that is not in device_ids gets no rows and no copy of the model.",
        )


def _at(wrapper: Wrapper) -> str:
    return f" (built at {wrapper.site})" if wrapper.site else ""


def _ids(ids: list[int]) -> str:
    return f"[{', '.join(map(str, ids))}]"
