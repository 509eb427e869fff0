"""Counts of the cases of a run, and their description."""

import pytest

from spbench.record.case_parts import CaseExecution
from spbench.record.case_state import CaseState
from spbench.record.run_parts import CaseCounts, count_cases
from spbench_core.events.statuses import CaseStatus


def build_case(status, started=1.0):
    state = CaseState(identity=None)
    state.execution = CaseExecution(status=CaseStatus(status), started=started)
    return state


@pytest.mark.parametrize(
    ("cases", "running_text", "ended_text"),
    [
        (
            [build_case("passed"), build_case("running"), build_case("waiting", None)],
            "1/3 cases",
            None,
        ),
        (
            [build_case("passed"), build_case("cancelled"), build_case("cancelled", None)],
            None,
            "1/3 passed, 1 did not run",
        ),
        ([build_case("passed"), build_case("failed"), build_case("timeout")], None, "1/3 passed"),
        (
            [build_case("passed"), build_case("skipped", None), build_case("skipped", None)],
            None,
            "1/3 passed, 2 did",
        ),
        ([], "0/0 cases", "0/0 passed"),
    ],
)
def test_description_excludes_cases_that_never_ran(cases, running_text, ended_text):
    counts = count_cases(cases)
    if running_text:
        assert counts.describe(ended=False) == running_text
    if ended_text:
        assert counts.describe(ended=True).startswith(ended_text)


def test_cancelled_case_counts_as_started():
    assert count_cases([build_case("cancelled"), build_case("cancelled", None)]) == CaseCounts(
        2, 0, 0, 1
    )
