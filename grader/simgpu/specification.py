"""What people write where GPUs are asked for: "2", "2xV100", "2xmy/profile.yaml"."""

from __future__ import annotations

import re
from pathlib import Path

_COUNTED = re.compile(r"(?P<count>-?\d+)(?:x(?P<which>.*))?$", re.DOTALL)


def full(text: str) -> str:
    """The specification with count, name of the profile and absolute path, once it is known to be right.

    Raises profiles.BadProfile.
    """
    from . import profiles

    text = text.strip()
    matched = _COUNTED.match(text)
    if matched and matched["which"] is None:
        text = f"{text}x{profiles.DEFAULT}"
    count, profile = profiles.load(text)
    which = _file(text)
    return f"{count}x{which or profile.name}"


def absolute(text: str) -> str:
    """A specification that is right, so that it means the same in any folder."""
    which = _file(text)
    matched = _COUNTED.match(text.strip())
    return text if which is None else f"{matched['count']}x{which}" if matched else which


def _file(text: str) -> str | None:
    """The absolute path of the profile's file, where one is given."""
    matched = _COUNTED.match(text.strip())
    which = (matched["which"] or "") if matched else text.strip()
    return str(Path(which).expanduser().absolute()) if which.endswith((".yaml", ".yml")) else None
