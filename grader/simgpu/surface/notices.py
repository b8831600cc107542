"""What a script asks for and does not get is said once."""

from __future__ import annotations

import warnings


class Notices:
    """Warnings of one machine, each given once however often its cause comes up."""

    def __init__(self) -> None:
        self._given: set[str] = set()

    def warn(self, text: str, stacklevel: int = 3) -> None:
        """Warn, if this was not said before."""
        if text not in self._given:
            self._given.add(text)
            warnings.warn(text, stacklevel=stacklevel)
