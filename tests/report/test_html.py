"""The page: self-contained, safe with whatever a script prints, and readable without seeing it."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser

import pytest

from grader.evidence import ScriptError
from grader.grade import Grade
from grader.report.html import TEMPLATES, render

NAMES = ["solution", "stub", "script_error", "timeout", "inconclusive", "ungradable", "real_gpus"]
VOID = {"meta", "link", "br", "rect", "path"}

Grades = Callable[[str], Grade]


class Page(HTMLParser):
    """Elements in order, and proof that every one is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID or tag == "rect":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data if "style" not in self.open else ""

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.mark.parametrize("name", NAMES)
def test_the_page_is_whole_and_asks_for_nothing(grade: Grades, name: str) -> None:
    text = render(grade(name))
    page = Page(text)
    assert text.startswith("<!doctype html>")
    assert {"script", "img", "iframe", "object", "form"}.isdisjoint(tag for tag, _ in page.elements)
    links = [v for _, attributes in page.elements for k, v in attributes.items() if k in ("href", "src")]
    assert links == ["data:,"]
    assert "http:" not in text
    assert "https:" not in text
    assert "url(" not in text
    assert "default-src 'none'" in text


@pytest.mark.parametrize("name", NAMES)
def test_headings_tables_and_pictures_can_be_read_aloud(grade: Grades, name: str) -> None:
    page = Page(render(grade(name)))
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in zip(levels, levels[1:], strict=False))
    assert len(page.all("caption")) == len(page.all("table"))
    assert all("scope" in attributes for attributes in page.all("th"))
    for picture in page.all("svg"):
        assert picture.get("aria-hidden") == "true" or (picture["role"] == "img" and picture["aria-label"])
    assert ("html", {"lang": "en"}) in page.elements


def test_the_timeline_shows_every_gpu_before_and_after_and_says_it_is_simulated(grade: Grades) -> None:
    page = Page(render(grade("solution")))
    spoken = [attributes.get("aria-label") or "" for attributes in page.all("svg")]
    for gpu in ("cuda:0", "cuda:1"):
        assert sum(bool(re.match(f"{gpu} (computes|copies|is idle)", label)) for label in spoken) == 2
        assert sum(f"{gpu} holds" in label for label in spoken) == 2
    assert any(label.startswith("cuda:1 computes for") for label in spoken)
    assert any(label.startswith("cuda:1 is idle") for label in spoken)
    assert "a step, simulated T4" in page.text
    assert "on 2 simulated T4" in page.text


def test_real_gpus_get_figures_without_a_timeline(grade: Grades) -> None:
    page = Page(render(grade("real_gpus")))
    assert page.all("svg") == []
    assert "22 GiB" in page.text
    assert "simulated" not in page.text.replace("(2 simulated T4)", "")


def test_what_a_script_says_stays_text(grade: Grades) -> None:
    evil = "<script>alert(1)</script><b>`<i>`</b>\x1b[31m{{ 7 * 7 }}"
    stub = grade("stub")
    error = ScriptError(type=evil, message=evil, traceback=evil, explanation=evil, look_at=evil)
    check = stub.checks[1].model_copy(update={"message": evil, "location": evil, "why": evil, "title": evil})
    update = {
        "output": evil,
        "error": error,
        "checks": [check],
        "notes": [evil],
        "submission": evil,
        "title": evil,
    }
    page = Page(render(stub.model_copy(update=update)))
    assert {"script", "b", "i"}.isdisjoint(tag for tag, _ in page.elements)
    assert page.text.count("<script>alert(1)</script>") >= 8
    assert "\x1b" not in page.text
    assert "49" not in page.text


def test_every_check_is_there_with_mark_word_and_points(grade: Grades) -> None:
    stub = grade("stub")
    text = " ".join(Page(render(stub)).text.split())
    for check in stub.checks:
        assert f"{check.outcome.value} {check.title}" in text
    assert "30 / 100 points" in text
    assert "At train.py:42" in text


def test_the_same_grade_gives_the_same_bytes(grade: Grades) -> None:
    assert render(grade("solution")) == render(grade("solution"))


def test_text_contrasts_with_the_page_in_light_and_dark() -> None:
    """At least 4.5 to 1 for text and 3 to 1 for the marks of charts, as WCAG AA asks."""
    style = (TEMPLATES[1] / "page.html.j2").read_text(encoding="utf-8")
    schemes = re.findall(r":root \{(.*?)\}", style, re.S)
    colours = [dict(re.findall(r"--(\w+): (#\w{6})", scheme)) for scheme in schemes[:2]]
    for scheme in colours:
        for ground in (scheme["page"], scheme["panel"]):
            for name in ("text", "quiet", "good", "bad", "unsure"):
                assert _contrast(scheme[name], ground) >= 4.5, name
            for name in ("compute", "copy", "host", "wait", "before"):
                assert _contrast(scheme[name], ground) >= 3, name


def _contrast(a: str, b: str) -> float:
    """Contrast ratio of two colours by WCAG 2.1."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    light, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_times_that_do_not_compare_are_not_drawn_as_a_success(grade: Grades) -> None:
    solved = grade("solution")
    times = solved.epoch_seconds.model_copy(
        update={"incomparable": "the work is not the same", "saving": None}
    )
    page = render(solved.model_copy(update={"epoch_seconds": times}))
    assert 'class="after incomparable"' in page
    assert "not comparable: the work is not the same" in page
    assert "less time per epoch" not in page


def test_the_memory_of_a_gpu_has_a_scale(grade: Grades) -> None:
    assert "full height" in render(grade("solution"))
