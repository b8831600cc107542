"""An exception of the script as the learner should see it: their frames and torch's, none of ours."""

from __future__ import annotations

import re
import traceback
from pathlib import Path
from typing import Any

_GRADER = str(Path(__file__).resolve().parents[1])
_FRAME = re.compile(r'^(?P<indent> *)File "(?P<file>[^"]+)", line (?P<line>\d+)')


STUCK_FILE = "where-time-ended.txt"  # beside the script, written by faulthandler


def innermost(dump: str, folder: Path) -> dict[str, Any] | None:
    """The innermost place in the submission in a dump of faulthandler (most recent call first)."""
    for line in dump.splitlines():
        frame = _FRAME.match(line)
        if frame and Path(frame["file"]).is_relative_to(folder):
            path = Path(frame["file"])
            number = int(frame["line"])
            return {
                "file": str(path.relative_to(folder)),
                "line": number,
                "code": source_line(path, number),
            }
    return None


def describe(fault: BaseException, folder: Path) -> dict[str, Any]:
    """Return the fields of a `ScriptError`; `folder` is where the submission was copied to."""
    if isinstance(fault, SystemExit):
        code = fault.code if isinstance(fault.code, (str, int)) else type(fault.code).__name__
        message = code if isinstance(code, str) else f"the script ended itself with exit code {code}"
    else:
        message = _told(fault)
    try:
        lines = "".join(traceback.format_exception(fault)).splitlines()
    except Exception:  # an exception whose own methods raise
        lines = [f"{type(fault).__name__}: {message}"]
    return {
        "type": type(fault).__name__[:80],
        "message": clean(message, folder)[:8000],
        "traceback": clean("\n".join(lines), folder)[-16000:],
        "site": _site(fault, [*lines, *message.splitlines()], folder),
    }


def clean(text: str, folder: Path) -> str:
    """Drop the grader's frames from a traceback's text and shorten the submission's paths.

    Works on text because a replica's traceback is part of the message that DataParallel raises.
    """
    kept, dropping, indent = [], False, 0
    for line in text.splitlines():
        frame = _FRAME.match(line)
        if frame:
            indent = len(frame["indent"])
            dropping = frame["file"].startswith((_GRADER, "<frozen")) or frame["file"] == "<string>"
        elif dropping:
            # A frame's source and marker lines stand deeper than its File line.
            dropping = line.startswith(" " * (indent + 1))
        if not dropping:
            kept.append(line.replace(f"{folder}/", "").replace(str(folder), "."))
    return "\n".join(kept)


def short_account(fault: BaseException) -> str:
    """A fault of the grader's own in one line, with its place."""
    frames = traceback.extract_tb(fault.__traceback__)
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
    return f"{type(fault).__name__} at {place}: {_told(fault)[:300]}"


def _told(fault: BaseException) -> str:
    try:
        return str(fault)
    except BaseException:  # an exception whose text cannot be had
        return "(an exception that cannot be shown)"


def _site(fault: BaseException, lines: list[str], folder: Path) -> dict[str, Any] | None:
    """The deepest place in the submission, also inside a replica's traceback or a syntax error."""
    if isinstance(fault, SyntaxError) and fault.filename and Path(fault.filename).parent == folder:
        return {
            "file": Path(fault.filename).name,
            "line": fault.lineno or 1,
            "code": (fault.text or "").strip(),
        }
    found = None
    for line in lines:
        frame = _FRAME.match(line)
        if frame and Path(frame["file"]).is_relative_to(folder):
            found = (Path(frame["file"]), int(frame["line"]))
    if found is None:
        return None
    path, number = found
    return {"file": str(path.relative_to(folder)), "line": number, "code": source_line(path, number)}


def source_line(path: Path, number: int) -> str:
    """Return the stripped line `number` (from 1) of `path`, or nothing."""
    try:
        return path.read_text(errors="replace").splitlines()[number - 1].strip()[:200]
    except (OSError, IndexError):
        return ""
