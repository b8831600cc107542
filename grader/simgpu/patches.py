"""Attributes replaced for a while, and put back exactly as they were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_ABSENT = object()


class Patches:
    """What one machine has replaced in torch and in the standard library."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], object]] = []

    def set(self, owner: Any, name: str, value: Any) -> Any:
        """Replace `owner.name` and return what was there (None where there was nothing).

        An attribute that a class merely inherits is deleted again on undo, so that its base shows through.
        """
        own = vars(owner).get(name, _ABSENT)
        before = getattr(owner, name, None)
        setattr(owner, name, value)
        if own is _ABSENT:
            self._undo.append(lambda: delattr(owner, name))
        else:
            self._undo.append(lambda: setattr(owner, name, own))
        return before

    def finally_do(self, action: Callable[[], object]) -> None:
        """Run `action` on undo."""
        self._undo.append(action)

    def undo(self) -> None:
        """Put everything back, last replaced first."""
        while self._undo:
            self._undo.pop()()
