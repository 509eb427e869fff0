"""Local ranks of all ranks, by the machine and the launcher of each."""

import pytest

from spbench_workers.binding.local_rank import RankLocation, assign_local_ranks

NAME = "OMPI_COMM_WORLD_LOCAL_RANK"


def make_locations(*texts):
    """Return locations from texts of host, boot id and local rank.

    A dash means a missing boot id or local rank.
    """
    split = (word.split() for word in texts)
    return [
        RankLocation(
            host, boot.strip("-"), None if local_rank == "-" else (int(local_rank), NAME), (0, 1)
        )
        for host, boot, local_rank in split
    ]


@pytest.mark.parametrize(
    ("descriptions", "local_ranks", "machines"),
    [
        (("a 1 0", "a 1 1", "b 2 0"), (0, 1, 0), (0, 0, 2)),
        # Open MPI on one host with more ranks than slots
        (("a 1 0", "a 1 2", "a 1 1"), (0, 2, 1), (0, 0, 0)),
        # two machines with the same name
        (("a 1 0", "a 2 0", "a 1 1"), (0, 0, 1), (0, 1, 0)),
        # one container per rank, each with a different host name
        (("box1 1 0", "box2 1 1", "box3 2 0"), (0, 1, 0), (0, 0, 2)),
        # "nodes" on one machine, with different host names and local ranks per node
        (("a 1 0", "a 1 1", "b 1 0", "b 1 1"), (0, 1, 0, 1), (0, 0, 2, 2)),
        # local ranks from no launcher, or for only some ranks
        (("a 1 -", "b 2 -", "a 1 -"), (0, 0, 1), (0, 1, 0)),
        (("a 1 0", "a 1 -", "a 1 2"), (0, 1, 2), (0, 0, 0)),
        # a kernel without a boot id
        (("a - 0", "a - 1", "b - 0"), (0, 1, 0), (0, 0, 2)),
    ],
)
def test_local_ranks_follow_launcher_and_machines(descriptions, local_ranks, machines):
    assignment = assign_local_ranks(make_locations(*descriptions))
    assert (assignment.local_ranks, assignment.machines, assignment.conflict) == (
        local_ranks,
        machines,
        "",
    )


@pytest.mark.parametrize(
    ("descriptions", "local_ranks", "expected"),
    [
        # one machine with two names in a hostfile
        (("a 1 0", "a 1 1", "a 1 0", "a 1 1"), (0, 1, 2, 3), f"rank 2 is local rank 0 by {NAME}"),
        # a variable from an earlier launch
        (("a 1 0", "a 1 0"), (0, 1), f"rank 1 is local rank 0 by {NAME} and 1 by the host names"),
        # containers on several machines without a boot id
        (("box1 - 0", "box2 - 1"), (0, 0), f"rank 1 is local rank 1 by {NAME} and 0 by the host"),
    ],
)
def test_reports_the_first_rank_with_a_conflict(descriptions, local_ranks, expected):
    assignment = assign_local_ranks(make_locations(*descriptions))
    assert assignment.local_ranks == local_ranks
    assert assignment.conflict.startswith(expected)
