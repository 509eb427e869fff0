"""Statuses as cells of tables."""

from spbench.record.planted_faults import FaultOutcome
from spbench.tui.cells import make_status_cell, make_status_span
from spbench_core.events.statuses import CaseStatus


def test_found_fault_is_not_shown_as_a_failure():
    cell = make_status_cell(CaseStatus.FAILED, FaultOutcome.FOUND)
    assert cell.text == "! fault found"
    assert cell.style == "accent"
    assert make_status_span(CaseStatus.FAILED, FaultOutcome.FOUND)[1] == "$text-accent"
    assert make_status_cell(CaseStatus.FAILED, FaultOutcome.MISSED).style == "failed"
