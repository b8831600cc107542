"""The grade as a continuous integration server reads it."""

from __future__ import annotations

from collections.abc import Callable
from xml.etree import ElementTree as Xml

import pytest

from grader.grade import Grade
from grader.report.junit import dump

# The common schema: element -> (required attributes, optional attributes, children).
SCHEMA: dict[str, tuple[set[str], set[str], set[str]]] = {
    "testsuites": (set(), {"name", "time", "tests", "failures", "errors"}, {"testsuite"}),
    "testsuite": (
        {"name", "tests", "failures", "errors"},
        {"time", "skipped", "timestamp", "hostname", "id", "package"},
        {"properties", "testcase", "system-out", "system-err"},
    ),
    "properties": (set(), set(), {"property"}),
    "property": ({"name", "value"}, set(), set()),
    "testcase": (
        {"name", "classname"},
        {"time"},
        {"failure", "error", "skipped", "system-out", "system-err"},
    ),
    "failure": (set(), {"type", "message"}, set()),
    "error": (set(), {"type", "message"}, set()),
    "skipped": (set(), {"message"}, set()),
    "system-out": (set(), set(), set()),
    "system-err": (set(), set(), set()),
}
ORDER = ["properties", "testcase", "system-out", "system-err"]


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("solution", (6, 0, 0, 0)),
        ("stub", (6, 2, 0, 1)),
        ("script_error", (6, 0, 1, 5)),
        ("timeout", (6, 0, 1, 5)),
        ("inconclusive", (6, 0, 0, 1)),
        ("ungradable", (6, 0, 6, 0)),
    ],
)
def test_it_follows_the_schema_and_counts_rightly(
    grade: Callable[[str], Grade], name: str, counts: tuple[int, int, int, int]
) -> None:
    root = Xml.fromstring(dump(grade(name)).encode())
    assert root.tag == "testsuites"
    for element in root.iter():
        required, optional, children = SCHEMA[element.tag]
        assert required <= set(element.attrib) <= required | optional
        assert {child.tag for child in element} <= children
    suite = root[0]
    tags = [child.tag for child in suite]
    assert tags == sorted(tags, key=ORDER.index)
    assert tuple(int(suite.attrib[key]) for key in ("tests", "failures", "errors", "skipped")) == counts


def test_a_failure_says_where_and_why(grade: Callable[[str], Grade]) -> None:
    failure = Xml.fromstring(dump(grade("stub")).encode()).find(".//failure")
    assert failure is not None
    assert failure.attrib["message"].startswith("train.py:42: The model was never wrapped")
    assert "Why it matters" in (failure.text or "")
    assert "0 / 25 points" in (failure.text or "")


def test_control_characters_of_a_script_do_not_break_the_document(grade: Callable[[str], Grade]) -> None:
    output = "".join(map(chr, range(32))) + "\ufffe ]]> <failure/> & \x1b[31mred"
    stub = grade("stub")
    check = stub.checks[1].model_copy(update={"message": output, "location": "a<b>.py:1"})
    root = Xml.fromstring(dump(stub.model_copy(update={"output": output, "checks": [check]})).encode())
    printed = root.findtext(".//system-out")
    assert printed is not None
    assert "]]> <failure/> & red" in printed


def test_the_same_grade_gives_the_same_bytes(grade: Callable[[str], Grade]) -> None:
    assert dump(grade("real_gpus")) == dump(grade("real_gpus"))
