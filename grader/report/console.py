"""Where a report is printed: a console that never fails on a character that its stream lacks."""

from __future__ import annotations

import os
from typing import TextIO

from rich.console import Console

_COERCED = ("C.UTF-8", "C.utf8", "UTF-8")  # values of LC_CTYPE


def console(stream: TextIO) -> Console:
    """Return a console on `stream`, in ASCII where the locale asks for it."""
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="replace", encoding="ascii" if _wants_ascii() else None)
    return Console(file=stream, highlight=False, emoji=False)


def _wants_ascii() -> bool:
    """Whether the locale is C or POSIX: Python writes UTF-8 there, which the terminal need not know."""
    wanted = os.environ
    if wanted.get("PYTHONIOENCODING") or wanted.get("PYTHONUTF8"):
        return False
    characters = wanted.get("LC_CTYPE")
    # Under LANG=C Python sets this very value for itself (PEP 538), so it says nothing of the terminal.
    characters = "" if characters in _COERCED else characters
    return (wanted.get("LC_ALL") or characters or wanted.get("LANG")) in ("C", "POSIX")
