"""Ranks that share cores, in one sentence."""

import pytest

from spbench.record.machine.core_sharing import (
    describe_sharing,
    shares_cores,
    summarize_sharing,
)
from spbench.record.noise import is_disturbed
from unit.events import described, job_start, judged, rank_event, run_start, state_of

EFFECT = "times and efficiencies are not those of the hardware"


def ready(*ranks, job=1):
    """A job whose ranks have these hosts and CPUs."""
    return [
        rank_event("ready", rank, job=job, host=host, cpus=cpus, size=len(ranks))
        for rank, (host, cpus) in enumerate(ranks)
    ]


def job_of(*ranks, np=None, oversubscribed=False):
    events = [
        run_start(described(np=np or len(ranks))),
        job_start(np=np or len(ranks)) | {"oversubscribed": oversubscribed},
        *ready(*ranks),
    ]
    return state_of(events).jobs[1]


@pytest.mark.parametrize(
    ("ranks", "sharing"),
    [
        ([("vm", [0, 1])] * 4, "4 ranks share 2 cores"),
        ([("vm", [0])] * 2, "2 ranks share 1 core"),
        # bound to one core each, by turns
        ([("vm", [rank % 2]) for rank in range(4)], "4 ranks share 2 cores"),
        # all on one core although the host has more
        ([("vm", [0]), ("vm", [0]), ("vm", [1])], "2 ranks share 1 core"),
        ([("a", [0]), ("b", [0]), ("b", [0]), ("c", [0])], "2 ranks share 1 core on b"),
        ([("a", [0]), ("a", [0]), ("b", [0]), ("b", [0])], "2 ranks share 1 core on a and b"),
    ],
)
def test_ranks_that_share_cores_are_one_sentence(ranks, sharing):
    assert describe_sharing(job_of(*ranks)) == f"{sharing}: {EFFECT}"


@pytest.mark.parametrize(
    "ranks",
    [
        [("vm", [0]), ("vm", [1])],
        [("vm", [0, 1])] * 2,
        [("a", [0]), ("b", [0])],
        [("vm", [])] * 3,  # CPUs that are not known
    ],
)
def test_ranks_with_cores_of_their_own_share_none(ranks):
    job = job_of(*ranks)
    assert describe_sharing(job) is None
    assert not shares_cores(job)


def test_an_oversubscribed_job_is_known_before_its_ranks_are_ready():
    job = job_of(("vm", [0]), np=4, oversubscribed=True)
    assert describe_sharing(job) == f"4 ranks share fewer cores: {EFFECT}"
    assert describe_sharing(job_of(("vm", [0]), np=4)) is None


def two_jobs(first, second):
    """A judged run of case a on the first ranks and case b on the second."""
    events = [run_start(described("a", len(first)), described("b", len(second)))]
    for job, (case, ranks) in enumerate((("a", first), ("b", second)), 1):
        events += [job_start(case, np=len(ranks), job=job), *ready(*ranks, job=job)]
        events += [rank_event("case_start", rank, case=case) for rank in range(len(ranks))]
        events.append(judged(case))
    return state_of(events)


def test_a_run_has_one_sentence_over_its_jobs():
    state = two_jobs([("vm", [0, 1])] * 4, [("vm", [0, 1])] * 3)
    assert summarize_sharing(state) == f"up to 4 ranks share 2 cores: {EFFECT}"
    state = two_jobs([("vm", [0, 1])] * 4, [("vm", [0, 1])] * 2)
    assert summarize_sharing(state) == f"4 ranks share 2 cores in a: {EFFECT}"
    assert summarize_sharing(two_jobs([("vm", [0])], [("vm", [1])])) is None


def test_cases_of_jobs_that_share_cores_are_disturbed():
    state = two_jobs([("vm", [0, 1])] * 4, [("vm", [0, 1])] * 2)
    assert [is_disturbed(case, state.jobs) for case in state.cases.values()] == [True, False]
