"""References with tolerances in suites: parsing, and the choice by system."""

import re
from pathlib import Path

import jsonschema
import pytest
import yaml

from spbench.errors import SuiteError
from spbench.suites.case import PerformanceReference
from spbench.suites.expectations import choose_references, depends_on_system
from spbench.suites.json_schema import build_suite_schema
from spbench.suites.loader import load_suite_text
from support.paths import DOCS

HEAD = "schema: spbench.suite/1\nname: s\ncases:\n"
ENTRY = "  - {name: a, benchmark: link.pingpong, np: 2, expect: {TIME: EXPECT}}\n"
SYSTEMS = (
    "{systems: {big: {reference: 0.35, lower: -0.1, upper: 0.05}, vm: {reference: 2, upper: 1}}}"
)


def suite_text(expect, metric="time_ms.p50"):
    return HEAD + ENTRY.replace("TIME", metric).replace("EXPECT", expect)


def load_case(expect, metric="time_ms.p50"):
    (case,) = load_suite_text(suite_text(expect, metric), Path("s.yaml")).cases
    return case


def list_bounds(case):
    return [(item.metric, item.op, item.limit) for item in case.expect]


@pytest.mark.parametrize(
    ("expect", "expected"),
    [
        ("{reference: 100, lower: -0.1, upper: 0.05}", [("max", 105.0), ("min", 90.0)]),
        ("{reference: 100, upper: 0}", [("max", 100.0)]),
        ("{reference: 100, lower: 0}", [("min", 100.0)]),
        ("{reference: 1.0e+308, upper: 9}", [("max", 1.7976931348623157e308)]),
    ],
)
def test_reference_bounds_each_side_that_has_a_tolerance(expect, expected):
    assert [(item.op, item.limit) for item in load_case(expect).expect] == expected


def test_bounds_are_exact_in_decimal_digits():
    # In binary, 1.1 * 1.1 is 1.2100000000000002 and 3 * 0.9 is 2.7.
    (upper,) = load_case("{reference: 1.1, upper: 0.1}").expect
    (lower,) = load_case("{reference: 0.7, lower: -0.1}").expect
    assert (upper.limit, lower.limit) == (1.21, 0.63)


def test_bound_has_its_reference():
    upper, lower = load_case("{reference: 0.35, lower: -0.1, upper: 0.05}").expect
    assert upper.reference == lower.reference == PerformanceReference(0.35, -0.1, 0.05)


def test_bounds_depend_on_the_system():
    case = load_case(SYSTEMS)
    assert depends_on_system([case])
    (big,) = choose_references([case], "big")
    (small,) = choose_references([case], "vm")
    assert not depends_on_system([big])
    assert list_bounds(big) == [("time_ms.p50", "max", 0.3675), ("time_ms.p50", "min", 0.315)]
    assert list_bounds(small) == [("time_ms.p50", "max", 4.0)]
    assert small.expect[0].reference == PerformanceReference(2, None, 1, "vm")


def test_expectation_without_reference_is_skipped_with_reason(messages):
    (case,) = choose_references([load_case(SYSTEMS)], "laptop")
    (item,) = case.expect
    assert (item.limit, item.systems) == (None, None)
    messages.check(item.skipped)


def test_expectations_without_systems_are_unchanged():
    case = load_case("{max: 5}")
    assert not depends_on_system([case])
    assert choose_references([case], "vm") == (case,)


WRONG = [
    ("{reference: ^fast, upper: 1}", "reference must be a number, not 'fast'"),
    ("{reference: ^0, upper: 1}", "reference must be above 0, not 0"),
    ("{reference: ^-1, upper: 1}", "reference must be above 0, not -1"),
    ("{reference: ^null, upper: 1}", "reference is empty"),
    ("{reference: ^.inf, lower: -0.5}", "reference must be a finite number"),
    ("{reference: 1, lower: ^0.1}", "lower must be at most 0, not 0.1 (such as -0.1)"),
    ("{reference: 1, lower: ^-10}", "lower must be above -1, not -10 (such as -0.1)"),
    ("{reference: 1, upper: ^-0.1}", "upper must be at least 0, not -0.1 (such as 0.05)"),
    ("{reference: 1, upper: ^null}", "upper is empty"),
    ("{^reference: 1}", "reference has no tolerance: give lower, upper or both"),
    ("{^lower: -0.1}", "lower is a share of a reference: add the key reference"),
    ("{reference: 1, upper: 1, ^max: 3}", "max follows from the reference; leave out one"),
    ("{^refrence: 1, upper: 1}", "unknown key 'refrence' in "),
    ("{systems: ^{}}", "systems must be a mapping with at least one item"),
    ("{systems: ^null}", "systems must be a mapping, not empty"),
    ("{systems: {vm: {reference: 1, ^uper: 1}}}", "(did you mean upper?)"),
    ("{systems: {vm: ^{upper: 1}}}", "systems.vm lacks the key 'reference'"),
    ("{systems: {vm: {^reference: 1}}}", "reference has no tolerance"),
    ("{systems: {vm: {reference: 1, lower: ^1}}}", "systems.vm.lower must be at most 0"),
    ("{systems: {^a b: {reference: 1, upper: 1}}}", "use letters, digits and . _ -"),
    ("{systems: {vm: {reference: 1, upper: 1}}, ^max: 3}", "systems has a reference for each"),
    ("{systems: {vm: {reference: 1, upper: 1}}, ^upper: 3}", "leave out upper"),
]


@pytest.mark.parametrize(("marked", "message"), WRONG)
def test_error_has_line_and_column(marked, message):
    column = suite_text(marked).splitlines()[-1].index("^") + 1
    with pytest.raises(SuiteError) as caught:
        load_case(marked.replace("^", ""))
    (diagnostic,) = caught.value.diagnostics
    assert (diagnostic.line, diagnostic.column) == (4, column)
    assert message in diagnostic.message


def test_rejects_values_that_are_not_finite():
    with pytest.raises(SuiteError) as caught:
        load_case("{reference: .inf, lower: -1, upper: .nan}")
    assert len(caught.value.diagnostics) == 3


def is_valid(expect):
    data = yaml.safe_load(suite_text(expect))
    return jsonschema.Draft202012Validator(build_suite_schema()).is_valid(data)


@pytest.mark.parametrize(
    "expect",
    [
        SYSTEMS,
        "{reference: 0.35, lower: -0.1}",
        "{reference: 0.35, upper: 0.5}",
        "{max: 1, min: 0}",
    ],
)
def test_schema_accepts_what_the_loader_accepts(expect):
    assert load_case(expect)
    assert is_valid(expect)


# JSON has no infinity.
@pytest.mark.parametrize("marked", [marked for marked, _ in WRONG if ".inf" not in marked])
def test_schema_rejects_what_the_loader_rejects(marked):
    assert not is_valid(marked.replace("^", ""))


def test_example_in_the_docs_is_valid():
    page = (DOCS / "suites.md").read_text().partition("## References with tolerances")[2]
    (example, *_) = re.findall(r"^```yaml\n(.*?)^```", page, re.S | re.M)
    text = f"{HEAD}  - name: a\n    benchmark: link.pingpong\n    np: 2\n{example}"
    cases = load_suite_text(text, Path("s.yaml")).cases
    (case,) = choose_references(cases, "mycluster")
    assert list_bounds(case) == [
        ("time_ms.p50", "max", 0.3675),
        ("time_ms.p50", "min", 0.315),
        ("bandwidth_gb_s", "min", 10.8),
    ]
