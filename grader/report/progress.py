"""What is being done while grading takes its time, on standard error."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


class Display:
    """Called with what is being done and how many steps of how many are finished.

    On a terminal one line that moves and disappears at the end; elsewhere one line per step.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self.last = ""
        self.live: Progress | None = None
        if console.is_terminal and not console.is_dumb_terminal:
            spinner = SpinnerColumn("line" if console.options.ascii_only else "dots")
            text = TextColumn("{task.description}", markup=False)
            self.live = Progress(
                spinner, text, BarColumn(24), TimeElapsedColumn(), console=console, transient=True
            )
            self.task = self.live.add_task("starting", total=None)

    def __enter__(self) -> Display:
        if self.live:
            self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.live:
            self.live.stop()

    def __call__(self, text: str, done: int, total: int) -> None:
        if self.live:
            self.live.update(self.task, description=text, completed=done, total=total)
        elif text != self.last:
            self.console.print(f"[{done + 1}/{total}] {text}", markup=False, highlight=False)
        self.last = text
