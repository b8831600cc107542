"""The page of a simulated run: complete, self-contained, and readable without seeing the graphics."""

import re
from html.parser import HTMLParser

import pytest

from grader.simgpu.memory import Mark
from grader.simgpu.timeline import Span
from grader.simgpu.view import drawing, holding, page, split
from grader.simgpu.view.record import DeviceRecord
from tests.simgpu.views.runs import made, record, train


class Seen(HTMLParser):
    """What a page consists of."""

    def __init__(self, text):
        super().__init__()
        self.tags = []
        self.open = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def all(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]


@pytest.fixture(scope="module")
def text():
    return page.render(record(lambda: train(5)))


def test_needs_nothing_else(text):
    seen = Seen(text)
    assert not seen.open
    assert not seen.all("script") and not seen.all("img")
    assert not re.search(r"https?://|url\(|@import", text)
    assert all(link["href"] == "data:," for link in seen.all("link"))


def test_has_every_part_and_says_that_it_is_simulated(text):
    headings = re.findall(r"<h2[^>]*>([^<]*)", text)
    assert headings == [
        "What to look at",
        "Where the time of a step goes",
        "Timeline of step 2",
        "GPUs and host, mean of a step",
        "Memory",
        "The costliest operators",
        "Where the figures come from",
    ]
    assert text.count("simulated, profile T4") >= 5
    for words in (
        "compute",
        "replication",
        "launch",
        "parameters and buffers",
        "replicas&#39; parameters",
        "activations",
        "cuda:1 to cuda:0",
    ):
        assert words in text
    assert "module.layers" in text


def test_graphics_have_equivalents_and_tables_captions(text):
    seen = Seen(text)
    assert len(seen.all("caption")) == len(seen.all("table")) >= 6
    for svg in seen.all("svg"):
        assert svg.get("aria-label") or svg.get("aria-hidden") == "true"
    assert {"header", "main"} <= {tag for tag, _ in seen.tags}
    assert all("scope" in attrs for attrs in seen.all("th"))
    identities = [attrs["id"] for _, attrs in seen.tags if "id" in attrs]
    assert len(identities) == len(set(identities))
    assert {attrs["aria-labelledby"] for attrs in seen.all("section")} <= set(identities)


def test_the_same_run_gives_the_same_bytes(text):
    assert page.render(record(lambda: train(5))) == text


def test_names_of_a_script_are_text_and_never_markup():
    spans = [Span("cuda:0", "<b>&", "compute", 0.0, 1.0, "<i>layer")]
    text = page.render(made(spans=spans, with_spans=True, spec="2x<T4>"))
    assert "<b>" not in text and "<i>" not in text and "2x&lt;T4&gt;" in text


@pytest.mark.parametrize("run", [lambda: None, lambda: train(1, parallel=False)], ids=["nothing", "one step"])
def test_short_runs_have_a_page_too(run):
    seen = Seen(page.render(record(run)))
    assert not seen.open


def test_memory_at_the_peak_is_told_apart():
    marks = [
        Mark(0.0, 1000, 1000, "||other"),
        Mark(1.0, 1300, 300, "||other"),
        Mark(2.0, 1700, 400, "layer1|relu|forward"),
        Mark(3.0, 1900, 200, "layer1|mm|backward"),
        Mark(4.0, 2000, 100, "||optimizer"),
        Mark(4.1, 2050, 50, "DataParallel|broadcast|forward"),
        Mark(5.0, 1650, -400, "layer1|relu|forward"),
    ]
    held = holding.at_peak(DeviceRecord(0, 10_000, 2050, marks, parameters=1000))
    assert (held.seconds, held.allocated) == (4.1, 2050)
    assert held.kinds == {
        "parameters and buffers": 1000,
        "replicas' parameters": 50,
        "gradients": 200,
        "optimizer state": 100,
        "activations": 400,
        "inputs and others": 300,
    }
    assert list(held.modules.items()) == [("layer1", 600), ("DataParallel", 50)]
    assert holding.at_peak(DeviceRecord(0, 10_000, 0)) is None


def test_what_was_held_before_the_recording_counts():
    held = holding.at_peak(DeviceRecord(0, 10_000, 900, [Mark(0.0, 900, 100, "a|b|forward")]))
    assert held.kinds == {"activations": 100, "inputs and others": 800}


def test_boxes_too_close_to_tell_apart_are_drawn_as_one():
    spans = [Span("cuda:0", f"op{i}", "compute", i * 1e-4, i * 1e-4 + 5e-5) for i in range(10)]
    spans.append(Span("cuda:0", "late", "compute", 0.5, 1.0))
    [lane] = drawing.lanes(spans, 1.0)
    assert [box.title.split(":")[0] for box in lane.boxes] == ["op0, op1, op2 and 7 more", "late"]
    assert lane.boxes[1].x == 500 and lane.boxes[1].width == 500
    assert lane.boxes[0].density < lane.boxes[1].density == 1
    assert lane.summary == "cuda:0 computes for 500 ms of 1 s"


def test_the_bar_adds_up():
    parts = drawing.bar({**dict.fromkeys(split.TERMS, 0.0), "compute": 3.0, "waiting": 1.0})
    assert [(part.name, part.x, part.width, part.share) for part in parts] == [
        ("compute", 0, 750, "75 %"),
        ("waiting", 750, 250, "25 %"),
    ]


def test_a_memory_chart_keeps_the_highest_of_what_falls_together():
    marks = [Mark(0.5, 100, 100), Mark(0.5000001, 400, 300), Mark(0.5000002, 50, -350), Mark(2.0, 900, 850)]
    chart = drawing.memory("cuda:0", marks, split.Window(0.0, 1.0, 0), [0.25, 1.5])
    assert chart.path == "M0 100H500V6H501V88.25H1000V100Z"
    assert chart.steps == [250] and chart.scale == "400 B"
    assert chart.summary == "cuda:0: memory rises to 400 B and ends at 50 B"
