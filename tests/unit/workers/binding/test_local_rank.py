"""Local ranks of all ranks, by what each says of its machine and of its launcher."""

import pytest

from spbench_workers.binding.local_rank import RankLocation, assign_local_ranks

NAME = "OMPI_COMM_WORLD_LOCAL_RANK"


def ranks(*words):
    """``host boot local-rank``, a dash where no launcher tells."""
    split = (word.split() for word in words)
    return [
        RankLocation(host, boot.strip("-"), None if told == "-" else (int(told), NAME), (0, 1))
        for host, boot, told in split
    ]


@pytest.mark.parametrize(
    ("every", "local_ranks", "machines"),
    [
        (("a 1 0", "a 1 1", "b 2 0"), (0, 1, 0), (0, 0, 2)),
        # Open MPI on one host with more slots asked for than there are
        (("a 1 0", "a 1 2", "a 1 1"), (0, 2, 1), (0, 0, 0)),
        # two machines of one name
        (("a 1 0", "a 2 0", "a 1 1"), (0, 0, 1), (0, 1, 0)),
        # a container a rank, each with a host name of its own
        (("box1 1 0", "box2 1 1", "box3 2 0"), (0, 1, 0), (0, 0, 2)),
        # "nodes" of one machine, each with a host name of its own and ranks counted by it
        (("a 1 0", "a 1 1", "b 1 0", "b 1 1"), (0, 1, 0, 1), (0, 0, 2, 2)),
        # no launcher tells, or only some ranks were told
        (("a 1 -", "b 2 -", "a 1 -"), (0, 0, 1), (0, 1, 0)),
        (("a 1 0", "a 1 -", "a 1 2"), (0, 1, 2), (0, 0, 0)),
        # a kernel that tells no boot id
        (("a - 0", "a - 1", "b - 0"), (0, 1, 0), (0, 0, 2)),
    ],
)
def test_launcher_and_machines_agree(every, local_ranks, machines):
    found = assign_local_ranks(ranks(*every))
    assert (found.local_ranks, found.machines, found.conflict) == (local_ranks, machines, "")


@pytest.mark.parametrize(
    ("every", "local_ranks", "doubt"),
    [
        # one machine under two names of a hostfile
        (("a 1 0", "a 1 1", "a 1 0", "a 1 1"), (0, 1, 2, 3), f"rank 2 is local rank 0 by {NAME}"),
        # a variable that was set long before
        (("a 1 0", "a 1 0"), (0, 1), f"rank 1 is local rank 0 by {NAME} and 1 by the host names"),
        # containers of several machines, none of which tells its boot id
        (("box1 - 0", "box2 - 1"), (0, 0), f"rank 1 is local rank 1 by {NAME} and 0 by the host"),
    ],
)
def test_where_they_differ_the_first_such_rank_is_named(every, local_ranks, doubt):
    found = assign_local_ranks(ranks(*every))
    assert found.local_ranks == local_ranks
    assert found.conflict.startswith(doubt)
