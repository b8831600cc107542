"""Whether a run that trains through DataParallel has everything where DataParallel needs it."""

from __future__ import annotations

import math

from grader.check.difference import some
from grader.check.recipe import training_forwards
from grader.check.vocabulary import CheckFailed
from grader.check.wrapping import wrapper_of
from grader.evidence import Forward, RunEvidence, Wrapper


def require_placement(run: RunEvidence, name: str) -> None:
    """Raise `CheckFailed` unless parameters, targets, loss and rows are where they belong.

    Inputs may lie wherever DataParallel accepts them. `name` is the run's name in a sentence.
    """
    forwards = training_forwards(run)
    for forward in forwards:
        _require_parameters(forward, wrapper_of(forward, run))
        _require_loss(forward)
    _require_shares(run, forwards, name)


def _require_parameters(forward: Forward, wrapper: Wrapper) -> None:
    expected = f"cuda:{wrapper.device_ids[0]}"
    elsewhere = [device for device in forward.parameter_devices if device != expected]
    if elsewhere:
        raise CheckFailed(
            f"Parameters were on {some(elsewhere)} in a training forward. "
            f"Expected: all on {expected}, the first of device_ids.",
            site=wrapper.site or forward.site,
        )


def _require_loss(forward: Forward) -> None:
    """Targets and loss belong where the outputs are; inputs may lie wherever DataParallel accepts them."""
    for what, device in (("targets", forward.target_device), ("loss", forward.loss_device)):
        if device is not None and device != forward.output_device:
            raise CheckFailed(
                f"The {what} of a training step: {device}. "
                f"Expected: {forward.output_device}, where DataParallel gathers the outputs.",
                site=forward.site,
                why="Moving the outputs takes them off their GPU in every step; move the targets instead.",
            )


def _require_shares(run: RunEvidence, forwards: list[Forward], name: str) -> None:
    uneven = []
    for forward in forwards:
        expected = _shares(forward.rows, wrapper_of(forward, run).device_ids)
        if {device: rows for device, rows in forward.rows_per_device.items() if rows} != expected:
            uneven.append((forward, expected))
    if uneven:
        forward, expected = uneven[0]
        raise CheckFailed(
            f"In {len(uneven)} of {len(forwards)} training forwards of the {name} the GPUs did not get "
            f"their share: of {forward.rows} rows, {_listed(forward.rows_per_device)}. "
            f"Expected: {_listed(expected)}.",
            site=forward.site,
        )


def _shares(rows: int, device_ids: list[int]) -> dict[str, int]:
    """Rows per device as DataParallel cuts them: parts of ceil(rows / GPUs), the last one smaller."""
    size = math.ceil(rows / max(len(device_ids), 1))
    starts = ((device, position * size) for position, device in enumerate(device_ids))
    return {f"cuda:{device}": min(size, rows - start) for device, start in starts if start < rows}


def _listed(shares: dict[str, int]) -> str:
    return ", ".join(f"{rows} on {device}" for device, rows in sorted(shares.items())) or "none on any GPU"
