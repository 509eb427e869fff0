"""Findings on the Run page: their order, grouping and next steps."""

from pathlib import Path

import pytest

from spbench.record.runs.folder import RunFolder
from spbench.tui.feed import Feed, LiveSource
from spbench.tui.run.findings import FindingKind, RunFindings
from spbench.tui.run.panes.headline import list_for_headline
from support import sample_events as make


def make_feed(events):
    """Make the feed of a run after these events."""
    folder = RunFolder(Path("made-up-run"))
    feed = Feed(folder, LiveSource(folder))
    for event in events:
        feed._apply(event)
    return feed


@pytest.mark.parametrize("planned_suite", ["made-up.yaml", "other.yaml"])
def test_run_of_a_plan_points_to_its_predicted_times(planned_suite):
    findings = RunFindings(make_feed(make.make_complete_run()), Path(planned_suite)).collect()
    assert findings[0].kind is FindingKind.SUMMARY
    steps = [finding.line for finding in list_for_headline(findings)]
    expected = ["→ c shows predicted and measured times"]
    assert steps[:1] == (expected if planned_suite == "made-up.yaml" else [])


def make_cancelled_run(*reasons):
    """Return a cancelled run of two cases with these statuses and reasons."""
    judged = zip(("a", "b"), reasons, strict=True)
    return [
        make.run_start(make.describe_case("a"), make.describe_case("b")),
        *(make.case_judged(case, *reason) for case, reason in judged),
        make.run_end("cancelled", 130),
    ]


@pytest.mark.parametrize(
    ("reasons", "expected"),
    [
        (
            (
                ("cancelled", "cancelled by Ctrl-C"),
                ("cancelled", "did not run: cancelled by Ctrl-C"),
            ),
            "- cancelled by Ctrl-C: a and b",
        ),
        (
            (("cancelled", "cancelled by Ctrl-C"), ("skipped", "the run ended before this case")),
            "- cancelled by Ctrl-C: a and b",
        ),
        (
            (("cancelled", "the budget is used up"), ("skipped", "did not run: no budget")),
            "- cancelled: a and b: the budget is used up",
        ),
    ],
)
def test_cancelled_run_has_one_finding_on_its_open_cases(reasons, expected):
    findings = RunFindings(make_feed(make_cancelled_run(*reasons))).collect()
    assert [finding.line for finding in findings[1:]] == [expected]
