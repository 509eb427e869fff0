"""The cases of a run in numbers."""

import pytest

from spbench.record.case_state import CaseState, CaseVerdict
from spbench.record.run_parts import CaseCounts, count_cases
from spbench_core.events.statuses import CaseStatus


def case(status, started=1.0):
    state = CaseState(identity=None)
    state.verdict = CaseVerdict(status=CaseStatus(status), started=started)
    return state


@pytest.mark.parametrize(
    ("cases", "going", "ended"),
    [
        ([case("passed"), case("running"), case("waiting", None)], "1/3 cases", None),
        (
            [case("passed"), case("cancelled"), case("cancelled", None)],
            None,
            "1/3 passed, 1 did not run",
        ),
        ([case("passed"), case("failed"), case("timeout")], None, "1/3 passed"),
        ([case("passed"), case("skipped", None), case("skipped", None)], None, "1/3 passed, 2 did"),
        ([], "0/0 cases", "0/0 passed"),
    ],
)
def test_what_never_ran_is_not_counted_as_run(cases, going, ended):
    counts = count_cases(cases)
    if going:
        assert counts.describe(ended=False) == going
    if ended:
        assert counts.describe(ended=True).startswith(ended)


def test_a_case_that_was_cut_short_did_begin():
    assert count_cases([case("cancelled"), case("cancelled", None)]) == CaseCounts(2, 0, 0, 1)
