"""From the records of a run to its `RunEvidence`."""

from __future__ import annotations

import re

from grader.evidence import Epoch, RunEvidence, RunOutcome, ScriptError
from grader.explain import explain
from grader.run.exchange import RawRun
from grader.run.protocol import EpochRecord, Fence, StepRecord, Summary, Tampering

# A terminal must not be steered by what a script printed: colours and cursor moves go.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Remove escape sequences, control characters and marks that reverse the text's direction."""
    return _CONTROLS.sub("", _ESCAPES.sub("", text.replace("\r\n", "\n").replace("\r", "\n")))


def assemble(raw: RawRun, seconds: dict[int, float]) -> RunEvidence:
    """Return what one run was seen to do; `seconds` are the measured epochs by their number."""
    summary = next((record for record in raw.records if isinstance(record, Summary)), None)
    fields = {} if summary is None else {name: getattr(summary, name) for name in type(summary).model_fields}
    fields.pop("record", None)
    caught = [record.what for record in raw.records if isinstance(record, Tampering)]
    fields["tampering"] = [*caught, *fields.get("tampering", [])]
    outcome = raw.outcome
    detail = raw.detail
    if outcome is RunOutcome.COMPLETED and summary is None:
        outcome, detail = RunOutcome.MALFORMED, "no summary of the run"
    return RunEvidence(
        outcome=outcome,
        wall_seconds=raw.wall_seconds,
        error=_explained(raw.end.error) if raw.end is not None and raw.end.error is not None else None,
        output=printable(raw.output.decode("utf-8", errors="replace")),
        output_truncated=raw.output_truncated,
        detail=detail,
        stopped_at=raw.stopped_at,
        steps=[record.step for record in raw.records if isinstance(record, StepRecord)],
        epochs=_epochs(raw, seconds),
        **fields,
    )


def _epochs(raw: RawRun, seconds: dict[int, float]) -> list[Epoch]:
    """An epoch's record follows the fence that ended it."""
    epochs, ended = [], -1
    for record in raw.records:
        if isinstance(record, Fence) and record.edge == "end":
            ended = record.epoch
        elif isinstance(record, EpochRecord):
            epochs.append(record.epoch.model_copy(update={"seconds": seconds.get(ended)}))
    return epochs


def _explained(error: ScriptError) -> ScriptError:
    known = explain(error.type, error.message)
    cleaned = {"message": printable(error.message), "traceback": printable(error.traceback)}
    if known is not None:
        cleaned |= {"explanation": known.explanation, "look_at": known.look_at}
    return error.model_copy(update=cleaned)
