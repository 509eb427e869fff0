"""Session of a rank that runs a program: its rank from the launcher, and one case."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn, cast

from spbench_parallel.errors import CannotRunError
from spbench_workers.benchmarks.program.run import run
from spbench_workers.binding.local_rank import read_local_rank
from spbench_workers.channel.file import FileChannel
from spbench_workers.channel.opening import read_launcher_rank
from spbench_workers.comm import World
from spbench_workers.session import connect_or_exit, report_failure, run_case, start_reporting
from spbench_workers.shared_memory import set_private_folder

if TYPE_CHECKING:
    from mpi4py import MPI


BROKE_OFF_STATUS = 1


class NoCommunicator:
    """The communicator of a rank without MPI; each use of it is an error."""

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"this rank has started no MPI: it has no {name}")


def serve() -> None:
    """Run only the job's first case, because MPI can start once per launch."""
    channel = connect_or_exit()
    # The program inherits the variables, which its MPI reads as it starts.
    set_private_folder(os.environ)
    try:
        world = read_launched_world(os.environ)
        start_reporting(channel, world, {"mpi": None, "mpi4py": None})
        case = channel.receive_cases()[0]
    except BaseException as error:
        report_failure(channel, error)
        raise
    failed: list[bool] = []
    world = replace(world, hosts=tuple(case.get("hosts", ())))
    run_case(world, channel, case, lambda context: failed.append(run(context, channel)))
    channel.close()
    if any(failed) and isinstance(channel, FileChannel):
        # Without a console, only the exit status makes the launcher end the other ranks.
        sys.exit(BROKE_OFF_STATUS)


def read_launched_world(environ: Mapping[str, str]) -> World:
    """Return this rank and its host from the launcher's environment.

    Raises:
        CannotRunError: The launcher does not set the rank.
    """
    rank, size = read_launcher_rank(environ)
    if rank is None or size is None:
        raise CannotRunError(
            "the launcher does not tell a rank's number and how many there are, without which no "
            "program can take a rank's place; take another launcher"
        )
    local = read_local_rank(environ)
    cpus = tuple(sorted(os.sched_getaffinity(0)))
    return World(
        comm=cast("MPI.Intracomm", NoCommunicator()),
        rank=rank,
        size=size,
        local_rank=local[0] if local else rank,
        host=socket.gethostname(),
        cpus=cpus,
        threads=len(cpus),
    )
