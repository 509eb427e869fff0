"""Expectations with references on the page of a report."""

from spbench.report.formats.page.case_details import case_details
from spbench.report.model import ExpectationPart, ReferencePart
from support import sample_runs as results


def test_expectation_shows_its_reference_or_skip_reason():
    reference = ReferencePart(value=0.35, unit="ms", lower=-0.1, upper=0.05, system="big")
    skipped = "no reference for system vm (suite has big)"
    case = results.make_case(
        "a",
        {"time_ms": results.make_metric(0.36)},
        expectations=[
            ExpectationPart(
                metric="time_ms.p50",
                op="max",
                limit=0.3675,
                value=0.36,
                status="passed",
                reference=reference,
            ),
            ExpectationPart(
                metric="time_ms", op="max", limit=None, value=1, status="skipped", reason=skipped
            ),
        ],
    )
    text = str(case_details(case, 0))
    assert "reference 350 us (allowed: -10 % to +5 %)" in text
    assert "<td>time p50 at most</td>" in text
    assert skipped in text
