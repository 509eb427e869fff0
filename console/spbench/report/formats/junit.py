"""JUnit's XML, as Jenkins, GitLab and others read it: a test suite a run, a test a case."""

from __future__ import annotations

from collections.abc import Iterable
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from spbench.record.number_formatting import strip_line_controls
from spbench.report.formats.case_text import compute_case_seconds, explain_status, metric_lines
from spbench.report.formats.case_text import list_unexplained_errors as errors_of
from spbench.report.model import CasePart
from spbench.report.recorded import RecordedRun
from spbench.report.times import format_day_and_time
from spbench_core.events.statuses import CaseStatus, CheckOutcome

WHOLE_RUN = "run"
"""The name of the test that stands for the run, where no case shows why it did not pass."""


def render_junit(run: RecordedRun) -> str:
    """Return a run as JUnit's XML.

    What failed is a failure, with the sentence as its text; what ended in error or timeout is an
    error; what was not run is skipped. Metrics are properties of their test, and lines of its
    output, since GitLab shows that alone.
    """
    errors = errors_of(run)
    statuses = [case.status for case in run.cases.values()]
    counts = {
        "tests": len(statuses) + bool(errors),
        "failures": statuses.count(CaseStatus.FAILED),
        "errors": sum(status.is_broken for status in statuses) + bool(errors),
        "skipped": sum(not status.has_result for status in statuses),
    }
    summary = run.summary
    told = {name: str(count) for name, count in counts.items()}
    told["time"] = _seconds(summary.duration_s)
    top = Element("testsuites", {"name": "spbench", **told})
    told |= {"timestamp": format_day_and_time(summary.started)} if summary.started else {}
    told |= {"hostname": strip_line_controls(summary.host)} if summary.host else {}
    suite = SubElement(top, "testsuite", {"name": strip_line_controls(summary.suite), **told})
    _add_properties(suite, _of_run(run))
    for case in run.cases.values():
        _add_case(suite, summary.suite, case)
    if errors:
        _add_whole_run(suite, summary.suite, errors)
    indent(top, " ")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{tostring(top, encoding="unicode")}\n'


def _of_run(run: RecordedRun) -> Iterable[tuple[str, str]]:
    yield "run", run.summary.id
    yield "verdict", run.summary.verdict
    for finding in run.findings:
        yield "finding", finding


def _add_case(suite: Element, name: str, case: CasePart) -> None:
    test = SubElement(
        suite,
        "testcase",
        {
            "classname": strip_line_controls(f"{name}.{case.benchmark}"),
            "name": strip_line_controls(case.id),
            "time": _seconds(compute_case_seconds(case)),
        },
    )
    properties = [(name, repr(metric.value)) for name, metric in case.metrics.items()]
    properties += [
        ("slow", strip_line_controls(straggler.sentence)) for straggler in case.stragglers
    ]
    properties += [("noisy", strip_line_controls(case.noisy))] if case.noisy else []
    flaky = case.shown_status == CaseStatus.FLAKY
    _add_properties(test, [("flaky", explain_status(case)), *properties] if flaky else properties)
    if case.status == CaseStatus.FAILED:
        _add_why(test, "failure", _kind(case), explain_status(case))
    elif case.status.is_broken:
        why = "\n".join(
            filter(None, (explain_status(case), strip_line_controls(case.traceback or "")))
        )
        _add_why(test, "error", case.status, why)
    elif not case.status.has_result:
        SubElement(test, "skipped", {"message": explain_status(case)})
    if lines := "\n".join(metric_lines(case)):
        SubElement(test, "system-out").text = lines


def _add_whole_run(suite: Element, name: str, errors: Iterable[str]) -> None:
    about = {"classname": strip_line_controls(name), "name": WHOLE_RUN, "time": _seconds(None)}
    test = SubElement(suite, "testcase", about)
    _add_why(test, "error", "error", "\n".join(map(strip_line_controls, errors)))


def _add_why(test: Element, element: str, kind: str, why: str) -> None:
    """Add a failure or error: the first line is its message, and all of it its text."""
    message = why.partition("\n")[0]
    SubElement(test, element, {"type": kind, "message": message}).text = why


def _add_properties(parent: Element, properties: Iterable[tuple[str, str]]) -> None:
    found = [
        {"name": strip_line_controls(name), "value": strip_line_controls(value)}
        for name, value in properties
    ]
    if found:
        element = SubElement(parent, "properties")
        for each in found:
            SubElement(element, "property", each)


def _kind(case: CasePart) -> str:
    """Return what a failed case did not hold: a check, or else an expectation."""
    failed = any(check.status == CheckOutcome.FAILED for check in case.checks)
    return "check" if failed else "expectation"


def _seconds(value: float | None) -> str:
    return f"{value or 0.0:.3f}"
