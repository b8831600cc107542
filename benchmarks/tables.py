"""What is printed and drawn of predicted steps beside measured ones."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from statistics import median, quantiles

import jinja2
from steps import MACHINES, Row

_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7")


def speedups(values: Mapping[Row, float]) -> dict[Row, tuple[float, float]]:
    """For each row on several GPUs the predicted and the measured speed-up, N times T_1 over T_N."""
    single = {row[:3]: (seconds, row.seconds) for row, seconds in values.items() if row.gpus == 1}
    return {
        row: (
            row.gpus * single[row[:3]][0] / seconds,
            row.gpus * single[row[:3]][1] / row.seconds,
        )
        for row, seconds in values.items()
        if row.gpus > 1 and row[:3] in single
    }


def medians(title: str, values: Mapping[Row, float]) -> None:
    """Print median errors of step times and speed-ups for each machine and number of GPUs."""
    gains = speedups(values)
    print(f"\n{title}: median error of the step time on 1, 2, 3, 4 GPUs, of the speed-up on 2, 3, 4")
    for name in MACHINES.values():
        own = {row: abs(seconds / row.seconds - 1) for row, seconds in values.items() if row.profile == name}
        if own:
            times = (_median(e for row, e in own.items() if row.gpus == n) for n in (1, 2, 3, 4))
            gain = (
                _median(abs(a - b) for row, (a, b) in gains.items() if (row.profile, row.gpus) == (name, n))
                for n in (2, 3, 4)
            )
            print(f"  {name:12}", *(f"{100 * e:5.1f} %" for e in times), "  ", *(f"{e:5.2f}" for e in gain))
    for label, rows in (
        ("all", list(values)),
        ("those of the fit", [row for row in values if not row.apart]),
    ):
        errors = [abs(values[row] / row.seconds - 1) for row in rows]
        gain = [abs(gains[row][0] - gains[row][1]) for row in rows if row in gains]
        tenth = quantiles(errors, n=10)[-1] if len(errors) > 1 else errors[0]
        print(
            f"  {len(rows)} rows, {label}: median {median(errors):.1%}, nine of ten within {tenth:.0%}; "
            f"speed-up {_median(gain):.2f}"
        )


def coverage(ranges: Mapping[Row, tuple[float, float]]) -> None:
    """Print what share of the measured steps lies within the predicted range."""
    inside = [low <= row.seconds <= high for row, (low, high) in ranges.items()]
    width = median(high / low for low, high in ranges.values())
    print(
        f"\nWithin the predicted range: {sum(inside) / len(inside):.0%} of the rows; "
        f"its ends differ {width:.2f}-fold"
    )


def facts(values: Mapping[Row, float]) -> None:
    """Print the speed-ups on two GPUs whose order a believable simulation keeps."""
    print("\nSpeed-up on two GPUs, measured and simulated:")
    gains = speedups(values)
    for row, (predicted, real) in gains.items():
        if row.gpus == 2 and row.dtype == "float" and row.model in ("vgg11", "mobilenet_v2"):
            print(f"  {row.profile:12}{row.model:14}{real:6.2f}{predicted:6.2f}")


def _median(values: Iterable[float]) -> float:
    found = list(values)
    return median(found) if found else math.nan


_PLOT = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 640"
  font-family="sans-serif" font-size="13">
<title>Simulated over measured step times of nn.DataParallel</title>
<rect width="640" height="640" fill="white"/>
{%- for value in ticks %}
<path d="M{{ x(value) }} 40V580M60 {{ y(value) }}H600" stroke="#ddd" fill="none"/>
<text x="{{ x(value) }}" y="598" text-anchor="middle">{{ value }}</text>
<text x="54" y="{{ y(value) + 4 }}" text-anchor="end">{{ value }}</text>
{%- endfor %}
<path d="M60 580L600 40" stroke="#888" fill="none"/>
<path d="M{{ x(11) }} 580L600 {{ y(909) }}M60 {{ y(11) }}L{{ x(909) }} 40"
  stroke="#bbb" stroke-dasharray="4 3" fill="none"/>
<text x="330" y="624" text-anchor="middle">measured, milliseconds a step (dashed: ten per cent off)</text>
<text x="18" y="310" text-anchor="middle" transform="rotate(-90 18 310)">simulated, milliseconds a step</text>
{%- for name, colour, points in machines %}
<circle cx="80" cy="{{ 58 + 20 * loop.index0 }}" r="5" fill="{{ colour }}"/>
<text x="92" y="{{ 62 + 20 * loop.index0 }}">{{ name }}</text>
<g fill="{{ colour }}" fill-opacity="0.6">
{%- for row, seconds in points %}
<circle cx="{{ x(1e3 * row.seconds) }}" cy="{{ y(1e3 * seconds) }}" r="{{ 2 + row.gpus / 2 }}">
<title>{{ row.gpus }} {{ name }}, {{ row.model }}, {{ row.dtype }}</title></circle>
{%- endfor %}
</g>
{%- endfor %}
<text x="80" y="142" fill="#555">larger: more GPUs, 1 to 4</text>
</svg>
"""


def plot(values: Mapping[Row, float]) -> str:
    """An SVG of predicted over measured milliseconds, both axes logarithmic from 10 to 1000."""

    def along(value: float) -> float:
        return 540 * math.log10(value / 10) / 2

    machines = [
        (name, colour, [(row, seconds) for row, seconds in values.items() if row.profile == name])
        for name, colour in zip(MACHINES.values(), _COLOURS, strict=True)
    ]
    template = jinja2.Environment(autoescape=True).from_string(_PLOT)
    return template.render(
        machines=machines,
        ticks=(10, 20, 50, 100, 200, 500, 1000),
        x=lambda value: round(60 + along(value), 1),
        y=lambda value: round(580 - along(value), 1),
    )
