"""The cost of one step, term by term: each operator of the devices, the host, the links, and the constants
of the profile that the figures stand on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..profiles import MachineProfile, Quantity
from .ledger import COMPUTE, Key, Step, Sum
from .summary import HOST
from .words import count, megabytes, over_the_range, percent, seconds

_SHOWN = 30  # operators; the rest are added up
_WIDE = 100  # columns


class Row(NamedTuple):
    """The calls of one operator in the step, on all devices."""

    operator: str
    module: str
    sum: Sum
    rate: str  # reached in what rules it
    rules: str  # a term of the GPU's formula; "launch" where the host takes longer to launch the calls
    share: float  # of the seconds of all devices


class Term(NamedTuple):
    """A term of the host or of a link."""

    name: str
    formula: str
    seconds: float


def show(step: Step, spec: str, profile: MachineProfile, console: Console, by_module: bool = False) -> None:
    """Print the explanation of a step."""
    value = step.bounds[1]
    console.print(Text(f"{spec}: {step.name}: {seconds(value)} (simulated, profile {profile.name})", "bold"))
    ranged = over_the_range(*step.bounds)
    if ranged:
        console.print(ranged)
    console.print()
    console.print(_operators(rows(step, profile, by_module), by_module, console.width < _WIDE))
    console.print()
    console.print(
        "What rules: the arithmetic (compute), the memory (bandwidth), the shortest time that a kernel takes "
        "(kernel), or the host, where launching takes longer than the work (launch)."
    )
    console.print()
    console.print(_terms("The host", host_terms(step, profile), value))
    links = link_terms(step, profile)
    if links:
        console.print()
        console.print(_terms("The links", links, value))
    console.print()
    console.print(
        "Devices, host and links work at the same time, so the terms do not add up to the step: it lasts as "
        "long as the longest chain of them."
    )
    console.print()
    console.print(_constants(profile))


def rows(step: Step, profile: MachineProfile, by_module: bool = False) -> list[Row]:
    """The operators of a step, the costliest first."""
    groups: dict[tuple[str, str], dict[Key, Sum]] = {}
    for key, total in step.sums.items():
        groups.setdefault((key.operator, key.module if by_module else ""), {})[key] = total
    everything = sum(total.seconds for total in step.sums.values()) or 1.0
    made = [_row(*names, sums, everything, profile) for names, sums in groups.items()]
    return sorted(made, key=lambda row: (-row.sum.seconds, row.operator, row.module))


def _row(operator: str, module: str, sums: dict[Key, Sum], everything: float, profile: MachineProfile) -> Row:
    total, launching = Sum(), 0.0
    terms: dict[str, float] = {}
    host = profile.host
    for key, each in sums.items():
        total = total.plus(each)
        launching += each.calls * (host.backward_launch_us if key.backward else host.launch_us).value * 1e-6
        terms[key.term] = terms.get(key.term, 0.0) + each.seconds
    ruling = max(terms, key=lambda term: (terms[term], term))
    if not total.seconds:
        rate = "-"
    elif ruling == COMPUTE:
        rate = f"{total.flops / total.seconds / 1e12:.3g} TFLOP/s"
    else:
        rate = f"{total.nbytes / total.seconds / 1e9:.3g} GB/s"
    rules = "launch" if total.seconds < launching else ruling
    return Row(operator, module, total, rate, rules, total.seconds / everything)


def host_terms(step: Step, profile: MachineProfile) -> list[Term]:
    """What the host does in the step."""
    host, spent = profile.host, step.counters.host
    backward = sum(total.calls for key, total in step.sums.items() if key.backward)
    copies = sum(total.calls for link, total in step.counters.moved.items() if " > " in link)
    forward = sum(total.calls for key, total in step.sums.items() if not key.backward)
    formulas = {
        "launch": f"{forward:,.0f} operators and {copies:,.0f} copies x {host.launch_us.value:g} µs; "
        f"backward {backward:,.0f} x {host.backward_launch_us.value:g} µs, in a thread for each GPU",
        "replicate": f"{spent['replicate'] / (host.module_us.value * 1e-6):,.0f} modules x "
        f"{host.module_us.value:g} µs, modules times replicas"
        if host.module_us.value
        else "modules times replicas",
        "communicate": "nn.DataParallel's broadcast and reduce keep the host, see the links",
        "cpu": f"operators on CPU tensors, {host.cpu_operator_us.value:g} µs each",
        "script": "the script sleeps or reads a clock",
        "wait": "until devices have done what they were given",
    }
    return [Term(HOST[what], formulas.get(what, ""), value) for what, value in spent.items() if value > 0]


def link_terms(step: Step, profile: MachineProfile) -> list[Term]:
    """What each link moves in the step."""
    link = profile.link
    terms = []
    for name, total in sorted(step.counters.moved.items()):
        if not total.seconds:
            continue
        moved = f"{total.calls:,.0f} x, {megabytes(total.nbytes)}"
        if " > " in name:
            started = total.calls * link.latency_us.value * 1e-6
            rate = total.nbytes / max(total.seconds - started, 1e-12) / 1e9
            formula = f"{moved}: {link.latency_us.value:g} µs each + bytes / {rate:.3g} GB/s"
        else:
            formula = f"{moved} x {1e12 * total.seconds / total.nbytes:.3g} µs/MB"
        terms.append(Term(name, formula, total.seconds))
    for (_, name, _), total in sorted(step.counters.totals.items()):
        if name.startswith("nccl:") and total.seconds:
            formula = (
                f"{total.calls:,.0f} x, {megabytes(total.nbytes)} in a ring: {link.step_us.value:g} µs for "
                f"each step + bytes passed / {link.bus_gb_s.value:g} GB/s"
            )
            terms.append(Term(name, formula, total.seconds))
    return terms


def constants(profile: MachineProfile) -> list[tuple[str, Quantity]]:
    """Every figure of the profile that a term uses."""
    found = profile.gpu.figures()
    for part in (profile.link, profile.host):
        found += [(name, value) for name, value in part if isinstance(value, Quantity)]
    return found


def _table(title: str, *columns: tuple[str, bool]) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        collapse_padding=True,
        title=title,
        title_justify="left",
        title_style="",
    )
    for name, is_number in columns:
        table.add_column(name, justify="right" if is_number else "left", overflow="fold")
    return table


def _operators(found: Sequence[Row], by_module: bool, narrow: bool) -> Table:
    work = [] if narrow else ["FLOP", "bytes"]  # rate times time
    columns = [
        "operator",
        *(["module"] if by_module else []),
        "calls",
        *work,
        "rate",
        "rules",
        "time",
        "share",
    ]
    table = _table("The GPUs, all together", *((name, name not in _TEXTS) for name in columns))
    for row in found[:_SHOWN]:
        table.add_row(*(_cells(row)[name] for name in columns))
    rest = found[_SHOWN:]
    if rest:
        total = Sum()
        for row in rest:
            total = total.plus(row.sum)
        share = sum(row.share for row in rest)
        cells = _cells(Row(f"{len(rest)} more", "", total, "", "", share))
        table.add_row(*(cells[name] for name in columns))
    return table


_TEXTS = ("operator", "module", "rules")


def _cells(row: Row) -> dict[str, str]:
    """What a row shows in each column that there may be."""
    total = row.sum
    return {
        "operator": row.operator,
        "module": row.module or "-",
        "calls": f"{total.calls:,}",
        "FLOP": count(total.flops) if total.flops else "-",
        "bytes": megabytes(total.nbytes),
        "rate": row.rate,
        "rules": row.rules,
        "time": seconds(total.seconds),
        "share": percent(row.share),
    }


def _terms(title: str, terms: Sequence[Term], whole: float) -> Table:
    table = _table(title, ("term", False), ("formula", False), ("time", True), ("of the step", True))
    for term in terms:
        share = percent(term.seconds / whole) if whole else "-"
        table.add_row(term.name, term.formula, seconds(term.seconds), share)
    return table


def _constants(profile: MachineProfile) -> Table:
    table = _table(
        f"Constants of the profile {profile.name}", ("constant", False), ("value", True), ("source", False)
    )
    for name, quantity in constants(profile):
        value = f"{quantity.value:g}"
        if quantity.low is not None and quantity.high is not None:
            value += f" ({quantity.low:g} to {quantity.high:g})"
        table.add_row(name, value, quantity.source)
    return table
