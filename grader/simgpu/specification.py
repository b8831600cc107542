"""What people write where GPUs are asked for: "2", "2xV100", "2xmy/profile.yaml", "4xA100+pcie4"."""

from __future__ import annotations

import re
from pathlib import Path

_COUNTED = re.compile(r"(-?\d+)(?:x(.*))?$", re.DOTALL)
_FILE = re.compile(r"(.+\.ya?ml)(\+.*)?$", re.DOTALL)


def full(text: str) -> str:
    """The specification with count, name of the profile and absolute path, once it is known to be right.

    Raises profiles.BadProfile.
    """
    from . import profiles

    count, which = _parts(text)
    which = profiles.DEFAULT if which is None else which
    selected = profiles.load(which if count is None else f"{count}x{which}")
    return f"{selected.count}x{_absolute(which) if _FILE.match(which) else selected.profile.name}"


def absolute(text: str) -> str:
    """A specification that is right, so that it means the same in any folder."""
    count, which = _parts(text)
    return _absolute(which or "") if count is None else f"{count}x{_absolute(which or '')}"


def _parts(text: str) -> tuple[int | None, str | None]:
    """Count and machine, as far as they are said."""
    matched = _COUNTED.match(text.strip())
    return (int(matched[1]), matched[2]) if matched else (None, text.strip())


def _absolute(which: str) -> str:
    matched = _FILE.match(which)
    return which if matched is None else f"{Path(matched[1]).expanduser().absolute()}{matched[2] or ''}"
