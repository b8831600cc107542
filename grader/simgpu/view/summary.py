"""The summary of a simulated run in the terminal."""

from __future__ import annotations

from typing import NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .advice import advise
from .operators import costliest
from .record import FORWARD, Record
from .words import over_the_range, percent, plural, seconds, size

# The fields of clock.Spent, in the words in which they are shown.
HOST = {
    "launch": "launching",
    "replicate": "replicating",
    "communicate": "broadcast, reduce",
    "cpu": "on CPU",
    "script": "sleep, clocks",
    "wait": "waiting",
}


def show(record: Record, console: Console, failed: bool = False) -> None:
    """Print it; plain text where the console is no terminal. What `failed` needs no advice on its speed."""
    console.print()
    console.print(Text(f"{record.spec}: {headline(record)}", style="bold"))
    if failed:
        console.print(Text("The program ended with an error; the figures are of what it did until then."))
    console.print(Text(details(record)))
    for table in (_devices(record), _host(record), _operators(record)):
        if table.row_count:
            console.print()
            console.print(table)
    if failed:
        return
    console.print()
    for advice in advise(record):
        table = Table.grid(padding=(0, 1))
        table.add_row("-", Text(advice.text))
        console.print(table)


def headline(record: Record) -> str:
    """ "4.2 s (simulated, profile T4)"."""
    return f"{seconds(record.seconds[1])} ({record.origin})"


def details(record: Record) -> str:
    """The range of the prediction, the steps, and how much of the run was recorded."""
    parts = [over_the_range(*record.seconds)]
    if record.step is not None and record.bound == FORWARD:
        parts.append(f"{plural(record.steps, 'forward')}, one every {seconds(record.step.now)}.")
    elif record.step is not None:
        parts.append(
            f"{plural(record.steps, 'step')} ({record.bound}) of {seconds(record.step.now)}, "
            "the first left out."
        )
    if record.full:
        parts.append(
            f"Recorded are the first {len(record.spans):,} spans, until {seconds(record.recorded_until)}; "
            "the totals are of the whole run."
        )
    return " ".join(part for part in parts if part)


def _table(title: str, *columns: str) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        title=title,
        title_justify="left",
        title_style="",
        pad_edge=False,
    )
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", overflow="fold")
    return table


class DeviceFigures(NamedTuple):
    """What each GPU did in a typical step."""

    columns: list[str]
    rows: list[tuple[str, list[str]]]  # a device, and its figure in each column


def device_figures(record: Record) -> DeviceFigures:
    """Computing, copying, communicating, nothing; and the most memory of the whole run."""
    typical = record.typical
    rows = {}
    for device in record.used:
        busy, copying = typical.busy[device.index], typical.copying[device.index]
        rows[device.name] = {
            "busy": percent(min(1.0, busy / typical.now) if typical.now else 0),
            "computing": seconds(busy - copying),
            "copying": seconds(copying),
            "collectives": seconds(typical.communicating[device.index]),
            "idle": seconds(max(0.0, typical.now - busy)),
            "most memory": f"{size(device.peak)} ({percent(device.peak / device.capacity)})",
        }
    left_out = () if any(typical.communicating) else ("collectives",)
    columns = [column for column in next(iter(rows.values())) if column not in left_out]
    return DeviceFigures(columns, [(name, [row[column] for column in columns]) for name, row in rows.items()])


def _devices(record: Record) -> Table:
    columns, rows = device_figures(record)
    capacity = size(record.devices[0].capacity)
    table = _table(f"Each GPU ({capacity}) in one {record.unit}", "GPU", *columns)
    for name, figures in rows:
        table.add_row(name, *figures)
    return table


def host_rows(record: Record) -> list[tuple[str, str, str]]:
    """What the host spent a typical step on: the words, the time, the share."""
    typical = record.typical
    return [
        (HOST[what], seconds(value), percent(value / typical.now if typical.now else 0))
        for what, value in typical.host.items()
        if value > 0
    ]


def _host(record: Record) -> Table:
    rows = host_rows(record)
    table = _table(f"The host in one {record.unit}", "", *(words for words, _, _ in rows))
    if rows:
        table.add_row("time", *(time for _, time, _ in rows))
        table.add_row("share", *(share for _, _, share in rows))
    return table


def _operators(record: Record) -> Table:
    table = _table(
        f"Costliest on the GPUs in one {record.unit}", "operator", "calls", "time", "share", "phases"
    )
    for cost in costliest(record):
        table.add_row(cost.name, f"{cost.calls:,}", seconds(cost.seconds), percent(cost.share), cost.phases)
    return table
