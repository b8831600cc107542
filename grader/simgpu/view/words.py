"""Number formats and phrases that the summary, the page and the advice share."""

from __future__ import annotations


def seconds(value: float) -> str:
    """A duration in the unit that leaves it readable: "2.35 s", "151 ms", "12.5 µs"."""
    if value >= 100:
        return f"{value:.0f} s"
    if value >= 1 or value == 0:
        return f"{value:.3g} s"
    if value >= 1e-3:
        return f"{1e3 * value:.3g} ms"
    return f"{1e6 * value:.3g} µs" if value >= 1e-6 else f"{1e9 * value:.3g} ns"


def span_of(low: float, high: float) -> str:
    """A range of durations, both ends in the same unit."""
    unit, scale = ("s", 1.0) if high >= 1 else ("ms", 1e3) if high >= 1e-3 else ("µs", 1e6)
    return f"{scale * low:.3g} to {scale * high:.3g} {unit}"


def over_the_range(low: float, value: float, high: float) -> str:
    """What a duration becomes under the plausible figures of the host; nothing where it has no range."""
    if low == value == high:
        return ""
    if high - low < 0.005 * value:
        return "The host's constants hardly matter."
    return f"{span_of(low, high)} over the plausible range of the host's constants."


def size(nbytes: float) -> str:
    """A number of bytes in binary units, as GPU tools show it."""
    for unit in ("B", "KiB", "MiB"):
        if nbytes < 1000:
            return f"{nbytes:.3g} {unit}"
        if nbytes < 1024:
            return f"{nbytes:.0f} {unit}"
        nbytes /= 1024
    return f"{nbytes:.3g} GiB"


def megabytes(nbytes: float) -> str:
    """A number of bytes in powers of 10, in which links and memories are rated: "93.5 MB"."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= scale:
            return f"{nbytes / scale:.3g} {unit}"
    return f"{nbytes:.3g} B"


def count(number: float) -> str:
    """ "1,234", or with a prefix from a million on: "1.23 G"."""
    for unit, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if number >= scale:
            return f"{number / scale:.3g} {unit}"
    return f"{number:,.0f}"


def percent(share: float) -> str:
    """ "61 %"; what rounds to nothing but is not says so."""
    return "<1 %" if 0 < share < 0.005 else f"{share:.0%}".replace("%", " %")


def plural(number: int, noun: str) -> str:
    """ "1 step", "3 steps"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
