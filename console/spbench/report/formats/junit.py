"""JUnit XML for Jenkins, GitLab and others: one test per case."""

from __future__ import annotations

from collections.abc import Iterable
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from spbench.record.number_formatting import replace_line_controls
from spbench.report.formats.case_text import (
    compute_case_seconds,
    explain_status,
    list_unexplained_errors,
    metric_lines,
)
from spbench.report.model import CasePart
from spbench.report.recorded import RecordedRun
from spbench.report.times import format_day_and_time
from spbench_core.events.statuses import CaseStatus, CheckOutcome

WHOLE_RUN = "run"
"""The name of the test with errors of the run that no case explains."""


def render_junit(run: RecordedRun) -> str:
    """Return a run as JUnit XML.

    A failed case is a failure with its reason. A case with an error or timeout is an error, and one
    that did not run is skipped. Metrics are properties of their test, and lines of its output,
    since GitLab shows only the output.
    """
    errors = list_unexplained_errors(run)
    statuses = [case.status for case in run.cases.values()]
    count_by_attribute = {
        "tests": len(statuses) + bool(errors),
        "failures": statuses.count(CaseStatus.FAILED),
        "errors": sum(status.is_broken for status in statuses) + bool(errors),
        "skipped": sum(not status.has_result for status in statuses),
    }
    summary = run.summary
    attributes = {name: str(count) for name, count in count_by_attribute.items()}
    attributes["time"] = _format_seconds(summary.duration_s)
    top = Element("testsuites", {"name": "spbench", **attributes})
    if summary.started:
        attributes["timestamp"] = format_day_and_time(summary.started)
    if summary.host:
        attributes["hostname"] = replace_line_controls(summary.host)
    suite_name = replace_line_controls(summary.suite)
    suite = SubElement(top, "testsuite", {"name": suite_name, **attributes})
    _add_properties(suite, _generate_run_properties(run))
    for case in run.cases.values():
        _add_case(suite, summary.suite, case)
    if errors:
        _add_whole_run(suite, summary.suite, errors)
    indent(top, " ")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{tostring(top, encoding="unicode")}\n'


def _generate_run_properties(run: RecordedRun) -> Iterable[tuple[str, str]]:
    yield "run", run.summary.id
    yield "verdict", run.summary.status
    for finding in run.findings:
        yield "finding", finding


def _add_case(suite: Element, suite_name: str, case: CasePart) -> None:
    test = SubElement(
        suite,
        "testcase",
        {
            "classname": replace_line_controls(f"{suite_name}.{case.benchmark}"),
            "name": replace_line_controls(case.id),
            "time": _format_seconds(compute_case_seconds(case)),
        },
    )
    properties = [(name, repr(metric.value)) for name, metric in case.metrics.items()]
    properties += [
        ("slow", replace_line_controls(straggler.sentence)) for straggler in case.stragglers
    ]
    properties += [("noisy", replace_line_controls(case.noisy))] if case.noisy else []
    flaky = case.shown_status == CaseStatus.FLAKY
    _add_properties(test, [("flaky", explain_status(case)), *properties] if flaky else properties)
    if case.status == CaseStatus.FAILED:
        _add_problem(test, "failure", _choose_failure_type(case), explain_status(case))
    elif case.status.is_broken:
        text = "\n".join(
            filter(None, (explain_status(case), replace_line_controls(case.traceback or "")))
        )
        _add_problem(test, "error", case.status, text)
    elif not case.status.has_result:
        SubElement(test, "skipped", {"message": explain_status(case)})
    if lines := "\n".join(metric_lines(case)):
        SubElement(test, "system-out").text = lines


def _add_whole_run(suite: Element, name: str, errors: Iterable[str]) -> None:
    attributes = {
        "classname": replace_line_controls(name),
        "name": WHOLE_RUN,
        "time": _format_seconds(None),
    }
    test = SubElement(suite, "testcase", attributes)
    _add_problem(test, "error", "error", "\n".join(map(replace_line_controls, errors)))


def _add_problem(test: Element, element: str, problem_type: str, text: str) -> None:
    """Add a failure or error, with the first line of the text as its message."""
    message = text.partition("\n")[0]
    SubElement(test, element, {"type": problem_type, "message": message}).text = text


def _add_properties(parent: Element, properties: Iterable[tuple[str, str]]) -> None:
    all_attributes = [
        {"name": replace_line_controls(name), "value": replace_line_controls(value)}
        for name, value in properties
    ]
    if all_attributes:
        element = SubElement(parent, "properties")
        for attributes in all_attributes:
            SubElement(element, "property", attributes)


def _choose_failure_type(case: CasePart) -> str:
    failed = any(check.status == CheckOutcome.FAILED for check in case.checks)
    return "check" if failed else "expectation"


def _format_seconds(seconds: float | None) -> str:
    return f"{seconds or 0.0:.3f}"
