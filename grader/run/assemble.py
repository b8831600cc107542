"""From the records of a run to its `RunEvidence`."""

from __future__ import annotations

from grader.evidence import Epoch, RunEvidence, RunOutcome, ScriptError
from grader.explain import explain
from grader.run.exchange import RawRun
from grader.run.protocol import EpochRecord, Fence, StepRecord, Summary, Tampering, printable


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
    if known is None:
        return error
    return error.model_copy(update={"explanation": known.explanation, "look_at": known.look_at})
