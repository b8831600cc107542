"""The summary of a simulated run in the terminal."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .advice import advise
from .operators import costliest
from .record import DeviceRecord, Record
from .words import percent, plural, seconds, size, span_of

# The fields of clock.Spent, in the words in which they are shown.
HOST = {
    "launch": "launching",
    "replicate": "replicating",
    "communicate": "broadcast, reduce",
    "cpu": "CPU operators",
    "script": "sleeping, clocks",
    "wait": "waiting",
}


def show(record: Record, console: Console) -> None:
    """Print it; plain text where the console is no terminal."""
    console.print()
    console.print(Text(f"{record.spec}: {headline(record)}", style="bold"))
    console.print(Text(details(record)))
    for table in (_devices(record), _host(record), _operators(record)):
        if table.row_count:
            console.print()
            console.print(table)
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
    low, value, high = record.seconds
    parts = []
    if low < value or high > value:
        parts.append(f"{span_of(low, high)} over the plausible range of the host's constants.")
    if record.step is not None:
        parts.append(
            f"{plural(record.steps, 'step')} ({record.bound}) of {seconds(record.step.now)}, "
            "the first left out."
        )
    if record.full:
        parts.append(
            f"Recorded are the first {len(record.spans):,} spans, until {seconds(record.recorded_until)}; "
            "the totals are of the whole run."
        )
    return " ".join(parts)


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


def figures(record: Record, device: DeviceRecord) -> list[str]:
    """What a device did in a typical step: computing, copying, communicating, nothing; and its memory."""
    typical, index = record.typical, device.index
    busy, copying = typical.busy[index], typical.copying[index]
    return [
        percent(busy / typical.now if typical.now else 0),
        seconds(busy - copying),
        seconds(copying),
        seconds(typical.communicating[index]),
        seconds(max(0.0, typical.now - busy)),
        f"{size(device.peak)} of {size(device.capacity)}",
    ]


FIGURES = ("busy", "computing", "copying", "collectives", "idle", "most memory")


def _devices(record: Record) -> Table:
    communicates = any(record.typical.communicating)
    shown = [column for column in FIGURES if column != "collectives" or communicates]
    table = _table(f"Each GPU in one {record.unit}", "GPU", *shown)
    for device in record.used:
        values = dict(zip(FIGURES, figures(record, device), strict=True))
        table.add_row(device.name, *(values[column] for column in shown))
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
        "Costliest on the GPUs, over the whole run", "operator", "calls", "time", "share", "phases"
    )
    for cost in costliest(record):
        table.add_row(cost.name, f"{cost.calls:,}", seconds(cost.seconds), percent(cost.share), cost.phases)
    return table
