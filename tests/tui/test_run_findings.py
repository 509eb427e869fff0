"""Findings on the Run page: their order, grouping and next steps."""

from pathlib import Path

import pytest

from spbench.record.runs.folder import RunFolder
from spbench.tui.feed import Feed, LiveSource
from spbench.tui.run.findings import FindingKind, RunFindings
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
    has_step = "; 5 shows predicted and measured times, 3 compares" in findings[0].message
    assert has_step is (planned_suite == "made-up.yaml")
