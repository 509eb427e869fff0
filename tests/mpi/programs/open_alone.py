"""Opens the world where MPI's communicator of shared memory has one rank, as with ch3:sock.

    mpirun -n 2 python -m mpi4py open_alone.py RESULTS.json

A stand-in for that communicator is put in place, and host names as containers have them. A result
is one list of ranks' places, by what host and launcher tell.
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


class Alone(MPI.Intracomm):
    """The ranks of a job, none of which shares memory with another as far as MPI sees."""

    def Split_type(self, *_, **__):  # noqa: N802 - MPI's word
        return MPI.COMM_SELF.Dup()


def opened(host, **variables):
    """Return this rank's place where host and launcher tell this."""
    for name in (*VARIABLES, "OMP_NUM_THREADS"):
        os.environ.pop(name, None)
    os.environ.update(variables)
    with mock.patch.object(socket, "gethostname", return_value=host):
        world = open_world()
    return {
        "local_rank": world.local_rank,
        "cpus": len(world.cpus),
        "threads": world.threads,
        "doubt": getattr(world, "local_rank_conflict", ""),
        "shares_memory": is_on_one_host(world.comm),
    }


def main():
    rank = MPI.COMM_WORLD.rank
    with mock.patch.object(MPI, "COMM_WORLD", Alone(MPI.COMM_WORLD)):
        places = {
            "launcher": opened("node", **{NAME: str(1 - rank)}),
            "containers": opened(f"box{rank}", **{NAME: str(rank)}),
            "no launcher": opened("node"),
            "at odds": opened("node", **{NAME: "0"}),
        }
    every = MPI.COMM_WORLD.gather(places)
    if rank == 0:
        Path(sys.argv[1]).write_text(json.dumps(every))


main()
