"""Counts of the cases of a run, and their description."""

import pytest

from spbench.record.case_parts import CaseExecution, CaseIdentity
from spbench.record.case_state import CaseState
from spbench.record.run_parts import CaseCounts, count_cases
from spbench_core.events.statuses import CaseStatus
from support.sample_events import describe_case


def build_case(status, started=1.0, *, repeat=1, ended_repeats=0):
    """Return a case on two ranks."""
    state = CaseState(CaseIdentity.from_event(describe_case(repeat=repeat)))
    state.measured.ended = {(number, rank) for number in range(ended_repeats) for rank in range(2)}
    state.measured.jobs = dict.fromkeys(range(ended_repeats), 1)
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
            "1/3 passed, 2 cancelled",
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


def test_failed_cases_are_counted_next_to_cancelled_ones():
    cases = [build_case("passed"), build_case("error"), build_case("cancelled")]
    assert count_cases(cases).describe(ended=True) == "1/3 passed, 1 error, 1 cancelled"
    assert count_cases(cases[:2]).describe(ended=True) == "1/2 passed"


def test_counts_all_cancelled_cases():
    counts = count_cases([build_case("cancelled"), build_case("cancelled", None)])
    assert counts == CaseCounts(
        total=2, ran=0, passed=0, cancelled=2, idle=0, repeats=2, ended_repeats=0, bad_repeats=0
    )


def test_counts_the_ended_repeats_of_running_cases():
    cases = [
        build_case("failed", repeat=4, ended_repeats=2),
        build_case("running", repeat=4, ended_repeats=3),
        build_case("waiting", None, repeat=4),
        build_case("cancelled", repeat=4, ended_repeats=1),
    ]
    counts = count_cases(cases)
    assert (counts.repeats, counts.ended_repeats, counts.bad_repeats) == (16, 7, 4)
    assert counts.describe(ended=False) == "7/16 repeats"


@pytest.mark.parametrize(
    ("status", "repeat", "ended_repeats", "expected"),
    [
        ("running", 4, 2, True),
        ("running", 4, 0, False),
        ("running", 4, 4, False),
        ("cancelled", 4, 2, False),
    ],
)
def test_running_case_waits_between_its_launches(status, repeat, ended_repeats, expected):
    case = build_case(status, repeat=repeat, ended_repeats=ended_repeats)
    assert case.waits_for_launch is expected
    case.measured.jobs[ended_repeats] = 2
    assert not case.waits_for_launch
