"""The warning about ranks that share cores."""

import pytest

from spbench.record.machine.core_sharing import (
    describe_sharing,
    shares_cores,
    summarize_sharing,
)
from spbench.record.noise import is_disturbed
from support.sample_events import (
    build_state,
    case_judged,
    describe_case,
    job_start,
    rank_event,
    run_start,
)

EFFECT = "times and efficiencies are not those of the hardware"


def ready_events(*ranks, job=1):
    """Build the events of ranks that are ready on these hosts and CPUs."""
    return [
        rank_event("ready", rank, job=job, host=host, cpus=cpus, size=len(ranks))
        for rank, (host, cpus) in enumerate(ranks)
    ]


def build_job(*ranks, np=None, oversubscribed=False):
    events = [
        run_start(describe_case(np=np or len(ranks))),
        job_start(np=np or len(ranks)) | {"oversubscribed": oversubscribed},
        *ready_events(*ranks),
    ]
    return build_state(events).jobs[1]


@pytest.mark.parametrize(
    ("ranks", "sharing"),
    [
        ([("vm", [0, 1])] * 4, "4 ranks share 2 cores"),
        ([("vm", [0])] * 2, "2 ranks share 1 core"),
        # bound to one core each, round-robin
        ([("vm", [rank % 2]) for rank in range(4)], "4 ranks share 2 cores"),
        # all on one core although the host has more
        ([("vm", [0]), ("vm", [0]), ("vm", [1])], "2 ranks share 1 core"),
        ([("a", [0]), ("b", [0]), ("b", [0]), ("c", [0])], "2 ranks share 1 core on b"),
        ([("a", [0]), ("a", [0]), ("b", [0]), ("b", [0])], "2 ranks share 1 core on a and b"),
    ],
)
def test_describes_ranks_that_share_cores(ranks, sharing):
    assert describe_sharing(build_job(*ranks)) == f"{sharing}: {EFFECT}"


@pytest.mark.parametrize(
    "ranks",
    [
        [("vm", [0]), ("vm", [1])],
        [("vm", [0, 1])] * 2,
        [("a", [0]), ("b", [0])],
        [("vm", [])] * 3,  # unknown CPUs
    ],
)
def test_ranks_with_separate_cores_share_none(ranks):
    job = build_job(*ranks)
    assert describe_sharing(job) is None
    assert not shares_cores(job)


def test_describes_oversubscribed_job_before_ranks_are_ready():
    job = build_job(("vm", [0]), np=4, oversubscribed=True)
    assert describe_sharing(job) == f"4 ranks share fewer cores: {EFFECT}"
    assert describe_sharing(build_job(("vm", [0]), np=4)) is None


def run_two_jobs(first, second):
    """Return a judged run of case a on the first ranks and case b on the second."""
    events = [run_start(describe_case("a", len(first)), describe_case("b", len(second)))]
    for job, (case, ranks) in enumerate((("a", first), ("b", second)), 1):
        events += [job_start(case, np=len(ranks), job=job), *ready_events(*ranks, job=job)]
        events += [rank_event("case_start", rank, case=case) for rank in range(len(ranks))]
        events.append(case_judged(case))
    return build_state(events)


def test_summarizes_core_sharing_of_all_jobs():
    state = run_two_jobs([("vm", [0, 1])] * 4, [("vm", [0, 1])] * 3)
    assert summarize_sharing(state) == f"up to 4 ranks share 2 cores: {EFFECT}"
    state = run_two_jobs([("vm", [0, 1])] * 4, [("vm", [0, 1])] * 2)
    assert summarize_sharing(state) == f"4 ranks share 2 cores in a: {EFFECT}"
    assert summarize_sharing(run_two_jobs([("vm", [0])], [("vm", [1])])) is None


def test_cases_of_jobs_that_share_cores_are_disturbed():
    state = run_two_jobs([("vm", [0, 1])] * 4, [("vm", [0, 1])] * 2)
    assert [is_disturbed(case, state.jobs) for case in state.cases.values()] == [True, False]
