"""The catalogue of simulated machines, as tables."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from . import profiles
from .profiles import MachineProfile, Quantity

_HEAD = ("name", "GPU", "GiB", "TFLOP/s", "GB/s", "link")
_NARROWEST_NOTE = 30
_WIDEST = 120
_LEGEND = (
    "GiB of memory; TFLOP/s (multiplications in float32) and GB/s of memory as programs achieve them; link: "
    "GB/s between two GPUs, with * by way of the host's memory."
)


def show_all(console: Console) -> None:
    """Print every machine of the catalogue in a line, and the links and hosts that can be put into it."""
    machines = [profiles.load(name).profile for name in profiles.known()]
    rows = [_facts(profile) for profile in machines]
    used = sum(2 + max(map(len, column)) for column in zip(_HEAD, *rows, strict=True))
    left = min(console.width, _WIDEST) - used
    head = [*_HEAD]
    if left >= _NARROWEST_NOTE:
        head.append("note")
        for row, profile in zip(rows, machines, strict=True):
            row.append(textwrap.shorten(_note(profile), left, placeholder=" ..."))
    table = _table(*head)
    for row in rows:
        table.add_row(*row)
    console.print(table)
    console.print()
    _paragraph(console, _LEGEND)
    console.print()
    for part in ("link", "host"):
        _paragraph(console, f"Another {part}, as in 2xT4+NAME: {', '.join(profiles.known_parts(part))}.")
    _paragraph(console, "`simgpu profiles NAME` shows all figures of one, and where each is from.")


def show_one(profile: MachineProfile, console: Console) -> None:
    """Print all figures of a machine, and where each is from."""
    console.print(Text(f"{profile.name}: {profile.gpu.name}", "bold"))
    _paragraph(console, profile.note)
    for part in ("gpu", "link", "host"):
        model = getattr(profile, part)
        console.print()
        plain = {
            name: value
            for name, value in model
            if not isinstance(value, Quantity | dict) and value is not None and name != "name"
        }
        said = "".join(f", {name.replace('_', ' ')} {_plain(value)}" for name, value in plain.items())
        console.print(Text(f"{part}{said}", "bold"))
        table = _table("figure", "value", "range")
        table.add_column("source", overflow="fold", ratio=1)
        for name, quantity in _quantities(dict(model)):
            known = quantity.low is not None or quantity.high is not None
            bounds = f"{quantity.low or 0:g} to {quantity.high:g}" if known and quantity.high else ""
            table.add_row(name, f"{quantity.value:g}", bounds, Text(quantity.source))
        console.print(table, width=min(console.width, _WIDEST))


def _facts(profile: MachineProfile) -> list[str]:
    gpu, link = profile.gpu, profile.link
    return [
        profile.name,
        gpu.name,
        f"{gpu.memory_gib.value:.1f}",
        f"{gpu.rates('matmul')['float32']:.3g}",
        f"{gpu.achieved_bandwidth_gb_s.value:.0f}",
        f"{link.peer_gb_s.value:.3g}{'' if link.peer_access else '*'}",
    ]


def _quantities(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Quantity]]:
    for name, value in values.items():
        if isinstance(value, Quantity):
            yield f"{prefix}{name}", value
        elif isinstance(value, dict):
            yield from _quantities(value, f"{prefix}{name} ")


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ".".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _table(first: str, *others: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(first, no_wrap=True)
    for column in others:
        table.add_column(column, no_wrap=True, justify="left" if column in ("GPU", "note") else "right")
    return table


def _note(profile: MachineProfile) -> str:
    """What there is to say of a machine beside its GPU's name."""
    first, _, rest = " ".join(profile.note.split()).partition(". ")
    return rest if rest and first == profile.gpu.name else f"{first}. {rest}"


def _paragraph(console: Console, text: str) -> None:
    for line in textwrap.wrap(" ".join(text.split()), min(console.width, _WIDEST)):
        console.print(Text(line), soft_wrap=True)
