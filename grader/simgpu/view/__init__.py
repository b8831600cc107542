"""Seeing a simulated run: its summary in the terminal, a Chrome trace, a page, the cost of one step.

    recording = view.start(machine, spans=True)
    ...                                            # what is to be seen
    view.finish(recording, trace=Path("trace.json"), report=Path("report.html"), console=Console())

Everything shown is simulated, and says so beside the profile's name.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from .record import Record
from .recording import MARKS, SPANS, Recording

if TYPE_CHECKING:
    from rich.console import Console

    from ..machine import Machine

__all__ = ["Record", "Recording", "finish", "start"]


def start(machine: Machine, spans: bool = False, limit: int = SPANS) -> Recording:
    """Begin to record what an installed machine does, in the thread that installed it.

    Without `spans` only totals are kept, which cost next to nothing; a trace or a page needs the spans. After
    `limit` of them no more are kept, and the totals go on.
    """
    recording = Recording(machine, spans, limit, MARKS)
    recording.start()
    return recording


def finish(
    recording: Recording,
    trace: Path | None = None,
    report: Path | None = None,
    console: Console | None = None,
    failed: bool = False,
) -> Record:
    """End a recording, once all devices are done; write the files and print the summary that are asked for.
    `failed` says that the program ended with an error.

    Raises OSError where a file cannot be written, ValueError where one is asked of a recording without spans.
    """
    if not recording.spans and (trace or report):
        raise ValueError("a trace or a report needs the spans: start(machine, spans=True)")
    record = recording.stop()
    if trace is not None:
        from .trace import write

        with _in_place_of(trace) as file:
            write(record, file)
    if report is not None:
        from .page import render

        with _in_place_of(report) as file:
            file.write_text(render(record), encoding="utf-8")
    if console is not None:
        from .summary import show

        show(record, console, failed)
    return record


@contextmanager
def _in_place_of(path: Path) -> Iterator[Path]:
    """A file to write that takes the place of another one once it is whole; a device or a pipe itself."""
    if path.exists() and not path.is_file():
        yield path
        return
    part = path.with_name(f"{path.name}.part")
    try:
        yield part
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
