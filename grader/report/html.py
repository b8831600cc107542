"""A grade as one HTML page that needs nothing else: no script, no font, no request."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from grader.grade import Grade
from grader.report import chart, words

_PACKAGE = Path(__file__).resolve().parents[1]
# Inside the package once installed, beside it in a checkout.
TEMPLATES = (_PACKAGE / "templates", _PACKAGE.parent / "templates")
_TEMPLATE = "grade.html.j2"


def render(grade: Grade) -> str:
    """Return the page; the same grade gives the same bytes."""
    usages = grade.baseline_usage, grade.submission_usage
    longest = max(grade.epoch_seconds.baseline or 0.0, grade.epoch_seconds.submission or 0.0)
    return (
        environment()
        .get_template(_TEMPLATE)
        .render(
            grade=grade,
            words=words,
            marks=words.MARKS,
            origin=words.origin(grade.devices),
            longest=longest,
            before_after=list(zip(("Before", "After"), chart.timelines(*usages), strict=True)),
            ticks=chart.ticks(*usages),
        )
    )


@cache
def environment() -> Environment:
    """The templates, with every value escaped that is not markup of ours."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["clean"] = words.clean
    environment.filters["prose"] = prose
    return environment


def prose(text: str) -> Markup:
    """Return a text for people as HTML: lines kept, what stands between backticks as code."""
    escaped = str(escape(words.clean(text).strip()))
    return Markup(re.sub(r"`([^`\n]+)`", r"<code>\1</code>", escaped).replace("\n", "<br>\n"))  # noqa: S704
