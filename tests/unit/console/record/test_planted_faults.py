"""The status and the reason that people see for a planted fault."""

import pytest

from spbench.record.judge import describe_failed_checks, judge
from spbench.record.planted_faults import (
    FaultOutcome,
    blames_fault,
    find_fault_outcome,
    find_run_outcome,
)
from spbench.record.runs.folder import RunFolder
from spbench.record.runs.history import update_known_runs
from spbench.report.comparison.compare import compare
from spbench.report.formats.case_text import format_tally
from spbench.report.recorded import load_run
from spbench.tui.feed import Feed, ReplaySource
from spbench.tui.hosts.details_pane import _list_runs
from spbench.tui.results.cases_view import RecordedCaseRows
from spbench.tui.results.compared_sides import build_heading
from spbench.tui.run.details import read_case_details
from spbench.tui.run.findings import RunFindings
from support.sample_events import (
    build_state,
    case_judged,
    describe_case,
    make_started_run,
    rank_event,
    record_run,
    run_end,
)


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("fault found, as planted: rank 1 on node01 is slow", FaultOutcome.FOUND),
        ("check halo failed on rank 1; fault found, as planted: drop-halo", FaultOutcome.FOUND),
        ("planted fault noticed: rank 1 on node01 is slow", FaultOutcome.FOUND),
        ("check halo failed on rank 1; planted fault drop-halo noticed", FaultOutcome.FOUND),
        ("nothing noticed the planted fault slow; take more iterations", FaultOutcome.MISSED),
        ("planted fault slow not confirmed: rank 1 takes 2.00x the time", FaultOutcome.MISSED),
        ("rank 1 on a, 2 s into b, was killed; fault found, as planted: kill", FaultOutcome.FOUND),
        ("check halo failed on rank 1", None),
        (None, None),
    ],
)
def test_reason_says_whether_a_fault_was_found(reason, expected):
    assert find_fault_outcome(reason) is expected


def test_failed_check_finds_the_planted_fault():
    checks = [
        rank_event("check", rank, name="halo", passed=not rank, max_abs_error=0.5, tolerance=0.0)
        for rank in (0, 1)
    ]
    cases = (describe_case("a", inject=fault) for fault in (None, "drop-halo"))
    plain, planted = (
        judge(build_state([*make_started_run(case), *checks]).cases["a"]).reason for case in cases
    )
    assert planted == f"{plain}; fault found, as planted: drop-halo"
    assert not blames_fault(planted), "a failed check makes a comparison fail"


def test_findings_name_a_check_that_found_the_fault_once(tmp_path):
    checks = [
        rank_event("check", 0, name=name, passed=False, max_abs_error=0.5, tolerance=0.0)
        for name in ("halo", "sum")
    ]
    started = make_started_run(describe_case("a", 1, inject="drop-halo"))
    reason = judge(build_state([*started, *checks]).cases["a"]).reason
    feed = Feed(RunFolder(tmp_path), ReplaySource([], None))
    for event in (*started, *checks, case_judged("a", "failed", reason)):
        feed._apply(event)
    failures = [finding.message for finding in RunFindings(feed).collect()]
    assert failures == [reason, describe_failed_checks(feed.state.cases["a"])[1]]
    details = read_case_details(feed, "a")
    assert [text for title, text in details.lines if title == "check"] == [
        f"✗ failed: {failures[1]}"
    ]


def test_tables_and_tallies_tell_found_from_missed_faults(tmp_path):
    reasons = {
        "a": "fault found, as planted: rank 1 is slow",
        "b": "nothing noticed the planted fault slow",
        "c": "check halo failed on rank 1",
    }
    cases = [describe_case(name) for name in reasons]
    judged = [case_judged(name, "failed", reason) for name, reason in reasons.items()]
    run = load_run(record_run(tmp_path, [*make_started_run(*cases), *judged, run_end("failed", 1)]))
    rows = RecordedCaseRows(run)
    assert [rows.cells(name)[0].text for name in reasons] == [
        "! fault found",
        "✗ fault missed",
        "✗ failed",
    ]
    assert format_tally(run) == "1 fault found, 1 fault missed, 1 failed"


KILLED = ("error", "rank 1 on a was killed by SIGKILL; fault found, as planted: kill")
PASSED = ("passed", None)


@pytest.mark.parametrize(
    ("status", "cases", "errors", "expected"),
    [
        ("error", [KILLED, PASSED], [], FaultOutcome.FOUND),
        ("failed", [("failed", "fault found, as planted: rank 1 is slow")], [], FaultOutcome.FOUND),
        ("error", [KILLED, ("failed", "check halo failed")], [], None),
        ("error", [KILLED, ("skipped", "did not run: no host")], [], None),
        ("error", [KILLED], ["host node03 was left out"], None),
        ("cancelled", [KILLED], [], None),
        ("failed", [PASSED], [], None),
        ("passed", [], [], None),
    ],
)
def test_run_with_only_found_faults_is_found(status, cases, errors, expected):
    assert find_run_outcome(status, cases, errors) is expected


@pytest.mark.parametrize("recorded", [{"fault_outcome": "fault found"}, {}])
def test_lists_of_runs_show_that_faults_were_found(tmp_path, recorded):
    events = [
        *make_started_run(describe_case("a", inject="kill")),
        case_judged("a", *KILLED),
        run_end("error", 4, errors=[f"a: {KILLED[1]}"] if recorded else []),
    ]
    fields = {"verdict": "error", "exit_code": 4, "finished": 1010.0, "counts": {"error": 1}}
    folder = record_run(tmp_path, events, **fields, **recorded)
    run = load_run(folder)
    assert run.summary.status_text == "fault found"
    side_b = build_heading(compare(run, run, lambda *_: {}))[-1].plain
    assert f"{folder.id}  ! fault found" in side_b
    expected = "fault found" if recorded else "error"  # an older run.json lacks it
    for _ in range(2):  # the second time from the index
        (summary,) = (summary for _, summary in update_known_runs(tmp_path).values())
        assert summary.status_text == expected
        (fact,) = _list_runs([summary])
        assert f"made-up: {expected}" in fact.text
