"""Opens the world if MPI's shared-memory communicator has one rank (ch3:sock).

    mpirun -n 2 python -m mpi4py open_alone.py RESULTS.json

A stand-in replaces that communicator, and the host names are those of containers. The result has a
dictionary per rank: its local rank and cores, by the source of that information.
"""

import json
import os
import socket
import sys
from pathlib import Path
from unittest import mock

from mpi4py import MPI

from spbench_parallel.groups import is_on_one_host
from spbench_workers.binding.local_rank import VARIABLES
from spbench_workers.comm import open_world

NAME = "MV2_COMM_WORLD_LOCAL_RANK"


class SeparateRanks(MPI.Intracomm):
    """The ranks of a job, which share no memory according to MPI."""

    def Split_type(self, *_, **__):  # noqa: N802 - the name in MPI
        return MPI.COMM_SELF.Dup()


def read_local_rank(host, **variables):
    """Return local rank and cores for a host name and variables of a launcher."""
    for name in (*VARIABLES, "OMP_NUM_THREADS"):
        os.environ.pop(name, None)
    os.environ.update(variables)
    with mock.patch.object(socket, "gethostname", return_value=host):
        world = open_world()
    return {
        "local_rank": world.local_rank,
        "cpus": len(world.cpus),
        "threads": world.threads,
        "conflict": getattr(world, "local_rank_conflict", ""),
        "shares_memory": is_on_one_host(world.comm),
    }


def main():
    rank = MPI.COMM_WORLD.rank
    with mock.patch.object(MPI, "COMM_WORLD", SeparateRanks(MPI.COMM_WORLD)):
        result = {
            "launcher": read_local_rank("node", **{NAME: str(1 - rank)}),
            "containers": read_local_rank(f"box{rank}", **{NAME: str(rank)}),
            "no launcher": read_local_rank("node"),
            "at odds": read_local_rank("node", **{NAME: "0"}),
        }
    rank_results = MPI.COMM_WORLD.gather(result)
    if rank == 0:
        Path(sys.argv[1]).write_text(json.dumps(rank_results))


main()
