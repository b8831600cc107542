"""A grade as JUnit XML, the format in which continuous integration servers read test results.

One test suite per submission and one test case per check, in the dialect that Jenkins and GitLab
both accept (elements `properties`, `testcase`, `system-out` in that order). A check that did not
decide, because another failed or the measurement was too noisy, is `skipped`; where the grader itself
is at fault it is an `error`, so that nobody takes it for a failed submission.
"""

from __future__ import annotations

from xml.etree import ElementTree as Xml

from grader.grade import CheckResult, Grade, Outcome
from grader.report.words import MARKS, check_points, clean, origin

_ELEMENTS = {
    Outcome.FAILED: "failure",
    Outcome.SKIPPED: "skipped",
    Outcome.INCONCLUSIVE: "skipped",
    Outcome.ERROR: "error",
    Outcome.TIMEOUT: "error",
    Outcome.OUT_OF_MEMORY: "error",
    Outcome.UNGRADABLE: "error",
}


def dump(grade: Grade) -> str:
    """Return the grade as an XML document that ends in a newline."""
    cases = [_case(grade, check) for check in grade.checks]
    counts = {"tests": str(len(cases))}
    for attribute, element in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        counts[attribute] = str(sum(case.find(element) is not None for case in cases))
    suite = Xml.Element(
        "testsuite", {"name": f"{grade.exercise}: {clean(grade.submission)}", **counts, "time": "0"}
    )
    suite.append(_properties(grade))
    suite.extend(cases)
    if grade.output:
        aside = f"(times are {origin(grade.devices)} times)\n" if grade.devices.simulated else ""
        Xml.SubElement(suite, "system-out").text = aside + clean(grade.output)
    if grade.error:
        Xml.SubElement(suite, "system-err").text = clean(grade.error.traceback)
    root = Xml.Element("testsuites")
    root.append(suite)
    Xml.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{Xml.tostring(root, encoding="unicode")}\n'


def _properties(grade: Grade) -> Xml.Element:
    values = {
        "outcome": grade.outcome.value,
        "score": f"{grade.score:g}",
        "max_score": f"{grade.max_score:g}",
        "devices": grade.devices.label,
        "devices.kind": grade.devices.kind.value,
    }
    properties = Xml.Element("properties")
    for name, value in values.items():
        Xml.SubElement(properties, "property", {"name": name, "value": value})
    return properties


def _case(grade: Grade, check: CheckResult) -> Xml.Element:
    case = Xml.Element(
        "testcase", {"classname": grade.exercise, "name": f"{check.id}: {check.title}", "time": "0"}
    )
    if check.outcome in _ELEMENTS:
        place = f"{check.location}: " if check.location else ""
        message = clean(place + check.message)
        attributes = {"message": message.partition("\n")[0]}
        if _ELEMENTS[check.outcome] != "skipped":
            attributes["type"] = check.outcome.value
        detail = [f"{MARKS[check.outcome].word}, {check_points(check)} points", message]
        if check.why:
            detail.append(f"Why it matters: {clean(check.why)}")
        Xml.SubElement(case, _ELEMENTS[check.outcome], attributes).text = "\n".join(detail)
    return case
