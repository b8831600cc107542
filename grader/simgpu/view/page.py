"""A recorded run as one HTML page that needs nothing else: no script, no font, no request."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from . import drawing, holding, split, summary
from .advice import advise
from .operators import costliest
from .record import Record
from .words import percent, plural, seconds, size

_PACKAGE = Path(__file__).resolve().parents[2]
# Inside the package once installed, beside it in a checkout.
TEMPLATES = (_PACKAGE / "templates", _PACKAGE.parent / "templates")
_TEMPLATE = "simgpu_report.html.j2"
_STEPS_OF_MEMORY = 3  # after these memory repeats itself


def render(record: Record) -> str:
    """Return the page; the same record gives the same bytes."""
    window = split.typical(record)
    spans = split.cut(record.spans, window)
    terms = split.split(spans, window.length)
    return (
        _environment()
        .get_template(_TEMPLATE)
        .render(
            record=record,
            headline=summary.headline(record),
            details=summary.details(record),
            advice=[advice.text for advice in advise(record)],
            window=window,
            bar=drawing.bar(terms) if window.length else [],
            lanes=drawing.lanes(spans, window.length) if window.length else [],
            ticks=drawing.ticks(window.length),
            memory=_memory(record),
            devices=summary.device_figures(record),
            host=summary.host_rows(record),
            operators=costliest(record),
        )
    )


def _memory(record: Record) -> dict[str, Any]:
    """The charts of memory on one axis, and what holds it at the peaks."""
    devices = [device for device in record.used if device.marks]
    last = max((mark.seconds for device in devices for mark in device.marks), default=0.0)
    moments = record.moments[:_STEPS_OF_MEMORY]
    several = len(record.moments) > _STEPS_OF_MEMORY
    window = split.Window(0.0, moments[-1] if several else max(last, record.recorded_until), 0)
    held = {device.name: holding.at_peak(device) for device in devices}
    kinds = [kind for kind in holding.KINDS if any(kind in each.kinds for each in held.values() if each)]
    return {
        "charts": [
            (device.name, drawing.memory(device.name, device.marks, window, record.moments[:-1]))
            for device in devices
            if window.length
        ],
        "ticks": drawing.ticks(window.length),
        "steps": len(moments) if several else 0,
        "kinds": kinds,
        "held": held,
    }


@cache
def _environment() -> Environment:
    """The templates, with every value escaped."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(seconds=seconds, size=size, percent=percent)
    environment.globals["plural"] = plural
    return environment
