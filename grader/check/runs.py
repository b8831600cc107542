"""How a run that did not complete reads as a check's verdict."""

from __future__ import annotations

from grader.check.difference import counted
from grader.check.vocabulary import CheckFailed, Ungradable
from grader.evidence import RunEvidence, RunOutcome, ScriptError
from grader.grade import Outcome

_OUTCOMES = {
    RunOutcome.ERROR: Outcome.ERROR,
    RunOutcome.TIMEOUT: Outcome.TIMEOUT,
    RunOutcome.OUT_OF_MEMORY: Outcome.OUT_OF_MEMORY,
    RunOutcome.KILLED: Outcome.FAILED,
    RunOutcome.MALFORMED: Outcome.FAILED,
}

_ENDINGS = {
    RunOutcome.ERROR: "The script raised an exception in the {name}.",
    RunOutcome.TIMEOUT: "The {name} was stopped at its time limit, after {seconds:.0f} seconds.",
    RunOutcome.OUT_OF_MEMORY: "The {name} ran out of memory.",
    RunOutcome.KILLED: "The {name} ended without the record that every run ends with.",
    RunOutcome.MALFORMED: "The {name} sent records that the grader cannot accept.",
}


def require_completed(run: RunEvidence, name: str, *, values_are_real: bool = True) -> None:
    """Return where the run completed; raise the finding that says how it ended otherwise.

    `name` is the run's name in a sentence, e.g. "accuracy run". Where `values_are_real` is False
    (simulated GPUs that do no arithmetic) the exception's own words are not repeated: they may be
    about a value that the script only ever sees as zero there.
    """
    if run.outcome is RunOutcome.COMPLETED:
        return
    if run.outcome is RunOutcome.UNGRADABLE:
        raise Ungradable(f"The grader could not carry out the {name}. {sentence(run.detail)}".strip())
    parts = [_ENDINGS[run.outcome].format(name=name, seconds=run.wall_seconds)]
    if run.outcome is RunOutcome.TIMEOUT:
        parts.append(_stopped(run))
    else:
        parts.append(sentence(run.detail))
    error = run.error
    if error is not None:
        own_words = values_are_real or run.outcome is RunOutcome.OUT_OF_MEMORY
        parts.append(_told(error) if own_words else _told_without_values(error))
    site = error.site if error else run.stopped_at
    message = " ".join(part for part in parts if part)
    raise CheckFailed(message, site=site, outcome=_OUTCOMES[run.outcome])


def baseline_incomplete(run: RunEvidence, name: str) -> Ungradable:
    """The finding that the exercise's own baseline did not complete: nothing can be held against it."""
    text = f"The {name} of the untouched baseline did not complete"
    if run.outcome is not RunOutcome.TIMEOUT:
        return Ungradable(f"{text}: {run.detail.strip().rstrip('.')}." if run.detail.strip() else f"{text}.")
    return Ungradable(
        f"{text}: still running after {run.wall_seconds:.0f} s. "
        "The limit is limits.seconds in exercise.yaml; a busy machine needs more."
    )


def sentence(text: str) -> str:
    """Return a remark with a capital letter and a full stop; nothing of nothing."""
    text = text.strip()
    return text and text[0].upper() + text[1:] + ("" if text[-1] in ".!?" else ".")


def _stopped(run: RunEvidence) -> str:
    """What was seen of a run until its time was up, and what that suggests."""
    steps = len(run.optimized_steps)
    seen = f"{counted(steps, 'training step')} had been taken" if steps else "No training step had been taken"
    place = f", and it was at {run.stopped_at}" if run.stopped_at else ""
    return f"{seen}{place}.\nWhat to do: Look for a loop whose end is never reached, or that does too much."


def _told(error: ScriptError) -> str:
    """The exception in its first and last line: torch puts a replica's whole traceback into a message.

    What it means stands in the grade's `error`, once.
    """
    lines = [line.strip() for line in error.message.splitlines() if line.strip()]
    words = " ".join(dict.fromkeys([*lines[:1], *lines[-1:]]))
    return f"{error.type}: {words}" if words else error.type


def _told_without_values(error: ScriptError) -> str:
    place = f" at {error.site}" if error.site else ""
    return (
        f"It stopped{place}. Simulated GPUs do no arithmetic in that run, so every value that is read "
        "back from them is 0: look for code there that depends on a value."
    )
