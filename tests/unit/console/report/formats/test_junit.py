from dataclasses import replace
from xml.etree import ElementTree

import pytest

from spbench.report.formats.junit import render_junit
from spbench.report.model import LimitPart
from unit.results import case, figure, run, wrong_check

WRONG = wrong_check()
SECOND = {"started": "2026-01-01T00:00:00.000+00:00", "finished": "2026-01-01T00:00:01.250+00:00"}
MIXED = (
    case("a[n=1]", {"time_ms": figure(2.0)}, **SECOND),
    case("b", status="failed", reason="halo: rank 1 differs by 1", checks=[WRONG]),
    case("c", status="failed", reason="time_ms is 2, at most 1 was expected"),
    case("d", {}, status="error", reason="rank 3 died", traceback="Traceback\n  line"),
    case("e", {}, status="timeout", reason="60 s passed"),
    case("f", {}, status="skipped", reason="not reached"),
    case("g", {}, status="cancelled"),
)
# As the schema of Jenkins' xunit plugin (junit-10.xsd) has them, with the properties of a test and
# the element `error`, which Jenkins and GitLab read and pytest writes.
CHILDREN = {
    "testsuites": {"testsuite"},
    "testsuite": {"properties", "testcase"},
    "testcase": {"properties", "failure", "error", "skipped", "system-out"},
    "properties": {"property"},
}
COUNTS = {"tests", "failures", "errors", "skipped"}
NEEDED = {
    "testsuites": {"name", "time", *COUNTS},
    "testsuite": {"name", "time", *COUNTS},
    "testcase": {"name", "classname", "time"},
    "property": {"name", "value"},
    "failure": {"type", "message"},
    "error": {"type", "message"},
    "skipped": {"message"},
}


def tree(*cases, **summary):
    return ElementTree.fromstring(render_junit(run(*cases, **summary)))


def by_name(top):
    return {test.get("name"): test for test in top.iter("testcase")}


def wrong_elements(element):
    """The elements that the dialect does not have, or that lack an attribute."""
    if not NEEDED.get(element.tag, set()) <= set(element.keys()):
        yield element
    for child in element:
        if child.tag not in CHILDREN.get(element.tag, ()):
            yield child
        else:
            yield from wrong_elements(child)


def test_the_elements_are_those_of_the_dialect():
    assert list(wrong_elements(tree(*MIXED))) == []


def test_the_check_of_elements_finds_what_is_wrong():
    broken = ElementTree.fromstring("<testsuites><testcase/></testsuites>")
    assert [element.tag for element in wrong_elements(broken)] == ["testsuites", "testcase"]


def test_each_status_is_told_as_servers_read_it():
    found = by_name(tree(*MIXED))
    told = {
        name: [e.tag for e in test if e.tag in {"failure", "error", "skipped"}]
        for name, test in found.items()
    }
    assert told == {
        "a[n=1]": [],
        "b": ["failure"],
        "c": ["failure"],
        "d": ["error"],
        "e": ["error"],
        "f": ["skipped"],
        "g": ["skipped"],
    }
    assert found["b"].find("failure").attrib == {
        "type": "check",
        "message": "halo: rank 1 differs by 1",
    }
    assert found["b"].find("failure").text == "halo: rank 1 differs by 1"
    assert found["c"].find("failure").get("type") == "expectation"
    assert found["d"].find("error").text == "rank 3 died\nTraceback\n  line"
    assert found["d"].find("error").get("message") == "rank 3 died"
    assert found["e"].find("error").get("type") == "timeout"
    assert found["g"].find("skipped").get("message") == "cancelled"


def test_the_counts_are_those_of_the_tests():
    top = tree(*MIXED, verdict="error")
    for element in (top, top.find("testsuite")):
        assert {name: element.get(name) for name in COUNTS} == {
            "tests": "7",
            "failures": "2",
            "errors": "2",
            "skipped": "2",
        }
    assert top.find("testsuite").get("time") == "2.500"
    assert by_name(top)["a[n=1]"].get("time") == "1.250"


def test_metrics_are_properties_and_lines():
    limit = LimitPart(value=20.0, unit="GB/s", measured_by="memory.copy")
    figures = {"time_ms": figure(2.0), "rate": figure(1 / 3, "GB/s", "higher", n=1)}
    (test,) = by_name(tree(case("a", figures, limits={"rate": limit}))).values()
    found = {item.get("name"): float(item.get("value")) for item in test.iter("property")}
    assert found == {"time_ms": 2.0, "rate": 1 / 3}
    assert test.find("system-out").text == ("time_ms 2 ms, p95 3, n 3\nrate 0.333 GB/s, limit 20")


@pytest.mark.parametrize("hostile", ['<&">', "\x00\x1b[2J\ud800", "]]>", "'", "ends\r\nof lines"])
def test_names_are_data(hostile):
    told = render_junit(run(case(hostile, status="failed", reason=hostile), suite=hostile))
    (test,) = ElementTree.fromstring(told.encode()).iter("testcase")
    letters = "".join(letter for letter in hostile if letter.isprintable())
    assert all(letter in test.get("name") for letter in letters)
    assert "\x1b" not in told


def test_a_run_that_no_case_explains_is_a_test_of_its_own():
    refused = replace(run(verdict="error", exit_code=3), errors=("no launcher is installed",))
    top = ElementTree.fromstring(render_junit(refused))
    assert (top.get("tests"), top.get("errors")) == ("1", "1")
    assert by_name(top)["run"].find("error").text == "no launcher is installed"


def test_a_run_whose_cases_explain_it_has_no_test_of_its_own():
    lost = replace(run(*MIXED, verdict="error"), errors=("d: rank 3 died",))
    assert "run" not in by_name(ElementTree.fromstring(render_junit(lost)))
