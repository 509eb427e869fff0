"""Reports in the JUnit dialect that CI servers read."""

from dataclasses import replace
from xml.etree import ElementTree

import pytest

from spbench.report.formats.junit import render_junit
from spbench.report.model import LimitPart
from support.sample_runs import make_case, make_failed_check, make_metric, make_run

FAILED_CHECK = make_failed_check()
TIMESTAMPS = {
    "started": "2026-01-01T00:00:00.000+00:00",
    "finished": "2026-01-01T00:00:01.250+00:00",
}
MIXED_CASES = (
    make_case("a[n=1]", {"time_ms": make_metric(2.0)}, **TIMESTAMPS),
    make_case("b", status="failed", reason="halo: rank 1 differs by 1", checks=[FAILED_CHECK]),
    make_case("c", status="failed", reason="time_ms is 2, at most 1 was expected"),
    make_case("d", {}, status="error", reason="rank 3 died", traceback="Traceback\n  line"),
    make_case("e", {}, status="timeout", reason="60 s passed"),
    make_case("f", {}, status="skipped", reason="not reached"),
    make_case("g", {}, status="cancelled"),
)
# From the schema of Jenkins' xunit plugin (junit-10.xsd), plus the properties of a test and
# the element `error`, which Jenkins and GitLab read and pytest writes.
CHILDREN = {
    "testsuites": {"testsuite"},
    "testsuite": {"properties", "testcase"},
    "testcase": {"properties", "failure", "error", "skipped", "system-out"},
    "properties": {"property"},
}
COUNTS = {"tests", "failures", "errors", "skipped"}
REQUIRED_ATTRIBUTES = {
    "testsuites": {"name", "time", *COUNTS},
    "testsuite": {"name", "time", *COUNTS},
    "testcase": {"name", "classname", "time"},
    "property": {"name", "value"},
    "failure": {"type", "message"},
    "error": {"type", "message"},
    "skipped": {"message"},
}


def parse_junit(*cases, **summary):
    return ElementTree.fromstring(render_junit(make_run(*cases, **summary)))


def junit_tests_by_name(top):
    return {test.get("name"): test for test in top.iter("testcase")}


def find_invalid_elements(element):
    """Yield elements that the dialect lacks or that lack an attribute."""
    if not REQUIRED_ATTRIBUTES.get(element.tag, set()) <= set(element.keys()):
        yield element
    for child in element:
        if child.tag not in CHILDREN.get(element.tag, ()):
            yield child
        else:
            yield from find_invalid_elements(child)


def test_report_has_only_elements_of_the_dialect():
    assert list(find_invalid_elements(parse_junit(*MIXED_CASES))) == []


def test_element_check_finds_invalid_elements():
    broken = ElementTree.fromstring("<testsuites><testcase/></testsuites>")
    assert [element.tag for element in find_invalid_elements(broken)] == ["testsuites", "testcase"]


def test_each_status_has_its_junit_element(messages):
    tests = junit_tests_by_name(parse_junit(*MIXED_CASES))
    outcomes = {
        name: [child.tag for child in test if child.tag in {"failure", "error", "skipped"}]
        for name, test in tests.items()
    }
    assert outcomes == {
        "a[n=1]": [],
        "b": ["failure"],
        "c": ["failure"],
        "d": ["error"],
        "e": ["error"],
        "f": ["skipped"],
        "g": ["skipped"],
    }
    assert tests["b"].find("failure").attrib == {
        "type": "check",
        "message": "halo: rank 1 differs by 1",
    }
    messages.check(tests["b"].find("failure").text)
    assert tests["c"].find("failure").get("type") == "expectation"
    assert tests["d"].find("error").text == "rank 3 died\nTraceback\n  line"
    messages.check(tests["d"].find("error").get("message"))
    assert tests["e"].find("error").get("type") == "timeout"
    assert tests["g"].find("skipped").get("message") == "cancelled"


def test_counts_match_the_tests():
    top = parse_junit(*MIXED_CASES, status="error")
    for element in (top, top.find("testsuite")):
        assert {name: element.get(name) for name in COUNTS} == {
            "tests": "7",
            "failures": "2",
            "errors": "2",
            "skipped": "2",
        }
    assert top.find("testsuite").get("time") == "2.500"
    assert junit_tests_by_name(top)["a[n=1]"].get("time") == "1.250"


def test_metrics_are_properties_and_output_lines(messages):
    limit = LimitPart(value=20.0, unit="GB/s", measured_by="memory.copy")
    figures = {"time_ms": make_metric(2.0), "rate": make_metric(1 / 3, "GB/s", "higher", n=1)}
    (test,) = junit_tests_by_name(
        parse_junit(make_case("a", figures, limits={"rate": limit}))
    ).values()
    values = {element.get("name"): float(element.get("value")) for element in test.iter("property")}
    assert values == {"time_ms": 2.0, "rate": 1 / 3}
    messages.check(test.find("system-out").text)


@pytest.mark.parametrize("hostile", ['<&">', "\x00\x1b[2J\ud800", "]]>", "'", "ends\r\nof lines"])
def test_hostile_names_are_escaped(hostile):
    text = render_junit(
        make_run(make_case(hostile, status="failed", reason=hostile), suite=hostile)
    )
    (test,) = ElementTree.fromstring(text.encode()).iter("testcase")
    printable = "".join(letter for letter in hostile if letter.isprintable())
    assert all(letter in test.get("name") for letter in printable)
    assert "\x1b" not in text


def test_run_error_without_cases_is_a_separate_test(messages):
    refused = replace(make_run(status="error", exit_code=3), errors=("no launcher is installed",))
    top = ElementTree.fromstring(render_junit(refused))
    assert (top.get("tests"), top.get("errors")) == ("1", "1")
    messages.check(junit_tests_by_name(top)["run"].find("error").text)


def test_run_error_explained_by_cases_is_not_a_separate_test():
    lost = replace(make_run(*MIXED_CASES, status="error"), errors=("d: rank 3 died",))
    assert "run" not in junit_tests_by_name(ElementTree.fromstring(render_junit(lost)))
