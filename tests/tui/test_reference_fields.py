"""Expectations with references on the screens of a case."""

from io import StringIO

from rich.console import Console

from spbench.report.model import ExpectationPart, ReferencePart
from spbench.tui.results import case_screen
from support import sample_runs as results

REFERENCE = ReferencePart(value=0.35, unit="ms", lower=-0.1, upper=0.05, system="big")


def test_expectations_table_shows_the_reference_of_a_bound():
    bounds = {"metric": "time_ms.p50", "value": 0.36, "status": "passed", "reference": REFERENCE}
    case = results.make_case(
        expectations=[
            ExpectationPart(op="max", limit=0.3675, **bounds),
            ExpectationPart(op="min", limit=0.315, **bounds),
        ]
    )
    output = StringIO()
    Console(file=output, width=200).print(case_screen._build_expectations(case))
    text = output.getvalue()
    assert "max 368 us (reference 350 us +5 %)" in text
    assert "min 315 us (reference 350 us -10 %)" in text
