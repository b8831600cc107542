"""A grade for people at a terminal: 80 columns or more, with and without colour, in a pipe too.

Whatever comes from the submission is set as plain text behind a bar at the margin, so that what a
script prints can neither restyle the report nor pass for a part of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby

from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from grader.grade import CheckResult, Grade, Outcome
from grader.report import words

WIDEST = 100  # columns; longer lines of prose are hard to read
OUTPUT_LINES = 12
TRACEBACK_LINES = 30
LONGEST_LINE = 300  # characters

_MARKERS = re.compile(r"\s*[~^][~^ ]*")  # what Python puts below a line of a traceback

_STYLES = {Outcome.PASSED: "green", Outcome.SKIPPED: "dim", Outcome.INCONCLUSIVE: "yellow"}


def show(grade: Grade, console: Console, exercise: str = "", hints_left: int | None = None) -> None:
    """Print the report of a grade; `exercise` and `hints_left` are as in `words.next_step`."""
    report = _Report(grade, console, words.next_step(grade, exercise, hints_left))
    if console.is_terminal:
        report.print(console)
        return
    with console.capture() as capture:
        report.print(console)
    # Blanks at the end of lines are only in the way where somebody reads on.
    console.file.write("\n".join(line.rstrip() for line in capture.get().split("\n")))


class _Report:
    def __init__(self, grade: Grade, console: Console, further: str) -> None:
        self.grade, self.console, self.further = grade, console, further
        self.width, self.ascii_only = min(console.width, WIDEST), console.options.ascii_only
        self.more = "..." if self.ascii_only else "…"

    def print(self, console: Console) -> None:
        """Print all parts, a blank line between them."""
        for block in self.blocks():
            console.print(block, width=self.width)
            console.print()
        console.print(self.result(), width=self.width)

    def blocks(self) -> Iterator[RenderableType]:
        """The parts of the report from top to bottom, those left out that have nothing to say."""
        grade = self.grade
        yield self.header()
        if grade.epoch_seconds.baseline is not None or grade.epoch_seconds.submission is not None:
            yield self.epoch_times()
        if grade.accuracy.baseline_validation is not None or grade.accuracy.validation is not None:
            yield self.accuracies()
        if grade.checks:
            yield self.checks()
        if grade.error:
            yield self.error()
        if grade.output.strip():
            yield self.output()
        if grade.notes:
            yield self.notes()

    def header(self) -> RenderableType:
        grade = self.grade
        where = Text(f"{words.clean(grade.submission)} on {grade.devices.label}", "dim")
        if not grade.devices.graded:
            where.append(", not graded")
        return Group(Text(words.clean(grade.title), "bold"), where)

    def epoch_times(self) -> RenderableType:
        times, origin = self.grade.epoch_seconds, words.origin(self.grade.devices)
        rows = [("before", times.baseline, "dim"), ("after", times.submission, _style(self.grade.outcome))]
        labels = [
            f"{words.epoch(value)} {origin}" if value is not None else "not measured" for _, value, _ in rows
        ]
        widest = max(map(len, labels))
        room = self.width - 2 - 8 - 2 - widest
        longest = max(value or 0.0 for _, value, _ in rows)
        lines = [Text("Seconds per epoch", "bold")]
        for (name, value, style), label in zip(rows, labels, strict=True):
            length = round(room * (value or 0.0) / longest) if longest else 0
            bar = ("#" if self.ascii_only else "█") * (max(length, 1) if value else 0)
            gap = " " * (room - len(bar) + 2)
            lines.append(Text.assemble(f"  {name:8}", (bar, style), gap, f"{label:>{widest}}"))
        saved = words.saving(self.grade)
        if saved:
            lines.append(Text(f"  {'':8}{saved}"))
        return Group(*lines)

    def accuracies(self) -> RenderableType:
        accuracy = self.grade.accuracy
        table = Table.grid(padding=(0, 3, 0, 0))
        for justify in ("left", "right", "right"):
            table.add_column(justify=justify)
        table.add_row(Text("Accuracy", "bold"), "before", "after")
        for name, before, after in (
            ("  training images", accuracy.baseline_train, accuracy.train),
            ("  held-out images", accuracy.baseline_validation, accuracy.validation),
        ):
            table.add_row(name, words.percent(before), words.percent(after))
        return Group(table, Padding(Text(words.HELD_OUT, "dim"), (0, 0, 0, 2)))

    def checks(self) -> RenderableType:
        shown = self.grade.checks
        indent = 2 + max(len(words.MARKS[check.outcome].word) for check in shown) + 2
        heading = Text("Checks", "bold")
        alike = (list(group) for _, group in groupby(shown, _undecided))
        return Group(heading, *(line for group in alike for line in self.group(group, indent)))

    def group(self, checks: list[CheckResult], indent: int) -> Iterator[RenderableType]:
        """Neighbours that were not judged for the same reason: a line each, and the reason once."""
        if len(checks) == 1 or _undecided(checks[0]) == checks[0].id:
            yield from (self.check(check, indent) for check in checks)
            return
        for check in checks[:-1]:
            yield self.check(check.model_copy(update={"message": ""}), indent)
        yield self.check(checks[-1], indent)

    def check(self, check: CheckResult, indent: int) -> RenderableType:
        mark, style = words.MARKS[check.outcome], _style(check.outcome)
        line = Table.grid(expand=True)
        line.add_column(width=indent)
        line.add_column(ratio=1)
        line.add_column(justify="right", no_wrap=True)
        symbol = mark.plain if self.ascii_only else mark.symbol
        score = Text("  " + words.check_points(check))
        line.add_row(Text(f"{symbol} {mark.word}", style), Text(words.clean(check.title), "bold"), score)
        below: list[RenderableType] = []
        if check.message:
            below.append(_prose(check.message, "dim" if check.outcome is Outcome.PASSED else ""))
        if check.location and check.outcome is not Outcome.PASSED:
            below.append(Text.assemble("at ", (words.clean(check.location), "cyan")))
        if check.why and words.explains_itself(check):
            below.append(Text.assemble(("Why it matters: ", "italic"), _prose(check.why)))
        return Group(line, Padding(Group(*below), (0, 0, 0, indent))) if below else line

    def error(self) -> RenderableType:
        error = self.grade.error
        assert error is not None
        place = f" at {error.site}" if error.site else ""
        parts: list[RenderableType] = [
            Text(f"The script raised {words.clean(error.type + place)}", "bold red")
        ]
        if error.explanation:
            parts.append(Padding(_prose(error.explanation), (0, 0, 0, 2)))
        if error.look_at:
            advice = Text.assemble((f"{words.ADVICE}: ", "italic"), _prose(error.look_at))
            parts.append(Padding(advice, (0, 0, 0, 2)))
        text = error.traceback if error.traceback.strip() else f"{error.type}: {error.message}"
        return Group(*parts, *self.quoted(text, TRACEBACK_LINES, code=True))

    def output(self) -> RenderableType:
        simulated = self.grade.devices.simulated
        aside = f" (its times are {words.origin(self.grade.devices)} times)" if simulated else ""
        heading = Text.assemble(("The script printed", "bold"), (aside, "dim"))
        run = Padding(Text(words.OUTPUT_RUN, "dim"), (0, 0, 0, 2))
        return Group(heading, run, *self.quoted(self.grade.output, OUTPUT_LINES))

    def quoted(self, text: str, limit: int, *, code: bool = False) -> Iterator[RenderableType]:
        """The last lines of a text that is not ours, behind a bar; a very long line is cut.

        Lines are folded between words; `code` says that the indented ones are code, which is cut instead.
        """
        lines = words.clean(text).strip("\n").split("\n")
        bar = "| " if self.ascii_only else "│ "
        if len(lines) > limit:
            left_out = len(lines) - limit
            yield Text(f"  {bar}{self.more} {left_out} line{'s' * (left_out != 1)} above left out", "dim")
        cut = False  # whether the code that a line of markers belongs to was cut
        for line in lines[-limit:]:
            if cut and _MARKERS.fullmatch(line):
                continue
            cut = code and line[:1] == " " and cell_len(line) > self.width - 4
            for piece in [self.shortened(line)] if cut else self.folded(line):
                yield Text.assemble("  ", (bar, "dim"), piece, no_wrap=True, overflow="crop")

    def shortened(self, line: str) -> str:
        """A line cut to the room behind the bar."""
        return set_cell_size(line, self.width - 4 - len(self.more)).rstrip() + self.more

    def folded(self, line: str) -> list[str]:
        """A line as the lines that it takes behind the bar."""
        pieces = Text(line[:LONGEST_LINE]).wrap(self.console, self.width - 4, overflow="fold")
        return [piece.plain for piece in pieces] + [self.more] * (len(line) > LONGEST_LINE)

    def notes(self) -> RenderableType:
        table = Table.grid(padding=(0, 1, 0, 0))
        for note in self.grade.notes:
            table.add_row(" -" if self.ascii_only else " •", _prose(note))
        return Group(Text("Notes", "bold"), table)

    def result(self) -> RenderableType:
        grade = self.grade
        style = f"bold {_style(grade.outcome)}"
        line = Text.assemble((words.headline(grade), style), "  ", words.verdict(grade))
        rule = Rule(style="dim", characters="-" if self.ascii_only else "─")
        return Group(rule, line, _prose(self.further)) if self.further else Group(rule, line)


def _undecided(check: CheckResult) -> str:
    """What neighbouring checks share that were not judged for one reason; the own id of any other."""
    judged = check.outcome not in (Outcome.SKIPPED, Outcome.UNGRADABLE)
    return check.id if judged or check.location else f"{check.outcome}: {check.message}"


def _style(outcome: Outcome) -> str:
    return _STYLES.get(outcome, "red")


def _prose(text: str, style: str = "") -> Text:
    """A text for people; what stands between backticks is code."""
    prose = Text(words.clean(text).strip(), style)
    prose.highlight_regex(r"`[^`\n]+`", "cyan")
    return prose
