"""Where reports are written to: checked before the minutes that grading takes, written whole."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

STANDARD_OUTPUT = Path("-")


class UnwritableTarget(ValueError):
    """A report cannot be written where it was asked for; the text says why."""


def check(targets: dict[str, Path]) -> None:
    """Raise UnwritableTarget where a report could not be written; keys are the options, for the text.

    Nothing is created or changed.
    """
    taken: dict[Path, str] = {}
    for option, path in targets.items():
        place = path if path == STANDARD_OUTPUT else path.resolve()
        if place in taken:
            where = "standard output" if path == STANDARD_OUTPUT else str(path)
            raise UnwritableTarget(
                f"{option} and {taken[place]} would both write to {where}; give each its own file."
            )
        taken[place] = option
        if path != STANDARD_OUTPUT:
            _check_file(option, path)


def _check_file(option: str, path: Path) -> None:
    folder = path.parent
    if path.is_dir():
        raise UnwritableTarget(f"{option} {path} is a folder; give the name of a file.")
    if path.suffix == ".py":
        raise UnwritableTarget(f"{option} {path} would overwrite a Python file; give another name.")
    if not folder.is_dir():
        raise UnwritableTarget(f"{option} {path} cannot be written: there is no folder {folder}.")
    # A file that exists is replaced by a new one, which needs its folder; a device is written into.
    writable = os.access(path, os.W_OK) if path.exists() else os.access(folder, os.W_OK | os.X_OK)
    if not writable:
        raise UnwritableTarget(f"{option} {path} cannot be written: permission denied.")


def write(path: Path, text: str) -> None:
    """Write a report as UTF-8; a regular file holds either what it held before or the whole report.

    Raises OSError.
    """
    data = text.encode("utf-8", "replace")
    if path == STANDARD_OUTPUT:
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
    elif (path.exists() and not path.is_file()) or not os.access(path.parent, os.W_OK):
        path.write_bytes(data)
    else:
        _replace(path.resolve(), data)


def _replace(path: Path, data: bytes) -> None:
    umask = os.umask(0)
    os.umask(umask)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.chmod(temporary, path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~umask)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
