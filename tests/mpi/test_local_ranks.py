"""Ranks of one machine that MPI's communicator of shared memory does not show."""

import pytest

from support.runs import run_cases_on_ranks

pytestmark = pytest.mark.mpi


@pytest.fixture(scope="module")
def rank_results(tmp_path_factory):
    return run_cases_on_ranks(2, "open_alone.py", tmp_path_factory.mktemp("alone"))


@pytest.mark.parametrize(
    ("source", "local_ranks"),
    [
        ("launcher", [1, 0]),
        ("containers", [0, 1]),
        ("no launcher", [0, 1]),
        ("at odds", [0, 1]),
    ],
)
def test_ranks_of_a_machine_have_local_ranks_and_threads(rank_results, source, local_ranks):
    ranks = [result[source] for result in rank_results]
    assert [rank["local_rank"] for rank in ranks] == local_ranks
    for rank in ranks:
        assert not rank["shares_memory"]
        assert rank["threads"] == max(1, rank["cpus"] // 2)


def test_all_ranks_report_the_same_conflict(rank_results):
    (conflict,) = {result["at odds"]["conflict"] for result in rank_results}
    assert conflict.startswith(
        "rank 1 is local rank 0 by MV2_COMM_WORLD_LOCAL_RANK and 1 by the host names of the ranks"
    )
    consistent = ("launcher", "containers", "no launcher")
    assert {result[source]["conflict"] for result in rank_results for source in consistent} == {""}
