"""What is shown and written when a simulated process ends."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .machine import Machine
    from .settings import Settings


class Ending:
    """Records a machine, from the start of its process to the end."""

    def __init__(self, machine: Machine, settings: Settings, first: bool) -> None:
        from . import view

        self.machine, self.settings, self.first = machine, settings, first
        self.recording = view.start(machine, spans=bool(settings.trace or settings.report))

    def show(self) -> None:
        """Print the summary on standard error, and write the files that were asked for."""
        from rich.console import Console

        from . import view
        from .local import unobserved

        with unobserved():
            trace, report = (path and Path(path) for path in (self.settings.trace, self.settings.report))
            console = Console(file=sys.stderr, highlight=False, emoji=False)
            view.finish(self.recording, trace or None, report or None, console if self.first else None)
