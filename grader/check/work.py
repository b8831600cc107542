"""How much a run trained, and on which samples, held against the baseline's in the same kind of run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from grader.check.difference import Difference, counted
from grader.evidence import Epoch, RunEvidence, Site, Step


def work_differences(
    baseline: RunEvidence,
    submitted: RunEvidence,
    known_samples: Mapping[int, str],
    *,
    whole: bool,
) -> list[Difference]:
    """Return the differences, most important first.

    `known_samples` names the split of an image by its CRC-32. `whole` is True for a run that lasts all
    epochs; of one that the grader ends once it has seen enough, the epochs that both completed are compared.
    """
    if not submitted.optimized_steps:
        return [Difference("steps", "work: the optimizer never took a step", True)]
    found = list(_epochs(baseline, submitted)) if whole else []
    count = _begun if whole else _completed
    epochs = min(count(baseline), count(submitted))
    before, after = _by_epoch(baseline, epochs), _by_epoch(submitted, epochs)
    foreign = list(_foreign(baseline, submitted, known_samples))
    found += foreign
    rows = list(_amount(before, after, baseline.epochs, submitted.epochs))
    found += rows
    if not foreign and not rows:
        found += _order(before, after, _unshuffled(baseline, submitted))
    found += _gradients(baseline, submitted)
    return found


def _begun(run: RunEvidence) -> int:
    return len(run.epochs)


def _completed(run: RunEvidence) -> int:
    return sum(epoch.seconds is not None for epoch in run.epochs)


def _by_epoch(run: RunEvidence, epochs: int) -> list[list[Step]]:
    return [[step for step in run.optimized_steps if step.epoch == number] for number in range(epochs)]


def _epochs(baseline: RunEvidence, submitted: RunEvidence) -> Iterator[Difference]:
    wanted, seen = len(baseline.epochs), len(submitted.epochs)
    if wanted != seen:
        yield Difference("epochs", f"epochs: {seen} instead of {wanted}")


# -- how many rows -----------------------------------------------------------------------------------


def _amount(
    before: Sequence[Sequence[Step]],
    after: Sequence[Sequence[Step]],
    wanted_epochs: Sequence[Epoch],
    seen_epochs: Sequence[Epoch],
) -> Iterator[Difference]:
    """Say why the rows of the steps differ; nothing where they do not. One reason, the most likely."""
    for number, (wanted, seen) in enumerate(zip(before, after, strict=True)):
        expected, got = [step.rows for step in wanted], [step.rows for step in seen]
        if expected != got and expected:
            yield _reason(expected, got, seen, wanted_epochs[number], seen_epochs[number])
            return


def _reason(
    expected: list[int], got: list[int], steps: Sequence[Step], wanted: Epoch, seen: Epoch
) -> Difference:
    """Explain why the steps of one epoch trained on other numbers of rows."""
    site = _site(steps)
    served = [sum(forward.rows for forward in step.forwards) for step in steps]
    if sum(got) < sum(served):
        forwards = [forward for step in steps for forward in step.forwards]
        idle = sum(forward.backwards == 0 for forward in forwards)
        text = f"work: in one epoch {idle} of {counted(len(forwards), 'forward')} had no backward"
        return Difference("backward", text, True, site)
    if max(got) < max(expected) and seen.largest_batch == wanted.largest_batch:
        text = (
            f"work: batches of {seen.largest_batch} rows were loaded, and {max(got)} rows of them trained on"
        )
        return Difference("rows", text, True, site)
    if max(got) != max(expected):
        text = f"batch size: {max(got)} rows in a step instead of {max(expected)}"
        return Difference("batch size", text, True, site)
    if got == expected[:-1]:
        text = f"work: the last batch of an epoch, {expected[-1]} rows, is left out (drop_last)"
        return Difference("rows", text, True, site)
    if len(got) != len(expected):
        text = (
            f"work: {counted(len(got), 'step')} in an epoch instead of {len(expected)}, "
            f"{sum(got):,} rows instead of {sum(expected):,}"
        )
        return Difference("rows", text, True, site)
    step = next(i for i, (a, b) in enumerate(zip(expected, got, strict=True)) if a != b)
    text = f"work: {counted(got[step], 'row')} in step {step + 1} of an epoch instead of {expected[step]}"
    return Difference("rows", text, True, site)


def _site(steps: Sequence[Step]) -> Site | None:
    return next((forward.site for step in steps for forward in step.forwards if forward.site), None)


# -- which samples -----------------------------------------------------------------------------------


def _foreign(
    baseline: RunEvidence, submitted: RunEvidence, known_samples: Mapping[int, str]
) -> Iterator[Difference]:
    """Rows that the baseline never trains on; empty for a run in which samples are not told apart."""
    own = {sample for step in baseline.optimized_steps for sample in step.samples}
    if not own:
        return
    trained = {sample for step in submitted.optimized_steps for sample in step.samples}
    foreign = trained - own
    splits = Counter(known_samples.get(sample, "") for sample in foreign)
    site = _site(submitted.optimized_steps)
    for split, number in sorted(splits.items(), reverse=True):
        if split:
            text = f"samples: {counted(number, f'{split} image')} trained on, which the baseline does not use"
        else:
            text = f"samples: {counted(number, 'image')} trained on that are not in the data (altered ones?)"
        yield Difference(f"foreign {split}", text, False, site)


def _unshuffled(baseline: RunEvidence, submitted: RunEvidence) -> bool:
    pairs = zip(baseline.epochs, submitted.epochs, strict=False)
    return any(wanted.shuffled and seen.shuffled is False for wanted, seen in pairs)


def _order(
    before: Sequence[Sequence[Step]], after: Sequence[Sequence[Step]], unshuffled: bool
) -> Iterator[Difference]:
    """Compare which samples are in which step, in epochs whose steps have equally many rows."""
    for number, (wanted, seen) in enumerate(zip(before, after, strict=True), start=1):
        expected, got = [step.samples for step in wanted], [step.samples for step in seen]
        if expected == got:
            continue
        site = _site(seen)
        if Counter(s for step in expected for s in step) == Counter(s for step in got for s in step):
            cause = "not shuffled, and so" if unshuffled else "the right images, but"
            text = f"samples: {cause} in other steps than the baseline's, from epoch {number} on"
        else:
            text = f"samples: not every training image is used once in epoch {number}"
        yield Difference("order", f"{text} (use the loader as load_data gives it)", False, site)
        return


# -- gradients ---------------------------------------------------------------------------------------


def _gradients(baseline: RunEvidence, submitted: RunEvidence) -> Iterator[Difference]:
    wanted = max((step.parameters_with_gradient for step in baseline.optimized_steps), default=0)
    steps = submitted.optimized_steps
    short = [step for step in steps if step.parameters_with_gradient < wanted]
    if short:
        fewest = min(step.parameters_with_gradient for step in short)
        text = (
            f"work: {fewest} of {counted(wanted, 'parameter')} had a gradient "
            f"in {len(short)} of {counted(len(steps), 'step')}"
        )
        yield Difference("gradients", text, True, _site(short))
