"""Ranks of one machine, which MPI's communicator of shared memory does not show."""

import pytest

from support.runs import run_cases_on_ranks

pytestmark = pytest.mark.mpi


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    return run_cases_on_ranks(2, "open_alone.py", tmp_path_factory.mktemp("alone"))


@pytest.mark.parametrize(
    ("told", "local_ranks"),
    [
        ("launcher", [1, 0]),
        ("containers", [0, 1]),
        ("no launcher", [0, 1]),
        ("at odds", [0, 1]),
    ],
)
def test_ranks_of_a_machine_have_local_ranks_and_threads_of_their_own(answers, told, local_ranks):
    places = [answer[told] for answer in answers]
    assert [place["local_rank"] for place in places] == local_ranks
    for place in places:
        assert not place["shares_memory"]
        assert place["threads"] == max(1, place["cpus"] // 2)


def test_all_ranks_hear_the_same_doubt(answers):
    (sentence,) = {answer["at odds"]["doubt"] for answer in answers}
    assert sentence.startswith(
        "rank 1 is local rank 0 by MV2_COMM_WORLD_LOCAL_RANK and 1 by the host names of the ranks"
    )
    sure = ("launcher", "containers", "no launcher")
    assert {answer[told]["doubt"] for answer in answers for told in sure} == {""}
