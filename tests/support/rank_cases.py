"""The cases of a test on the first ranks of one job, one after the other.

    mpirun -n 6 python -m mpi4py PROGRAM.py CASES.json RESULTS.json

Ranks are more than cores here: those that wait for others sleep. On SIGUSR1 a rank prints its
stacks: see `end_with_stacks` in support.runs.
"""

import faulthandler
import json
import signal
import sys
import time
import traceback
from pathlib import Path

from mpi4py import MPI

from spbench_parallel.groups import sleep_at_barrier


def read_cases():
    """The cases in the file that the first word names."""
    return json.loads(Path(sys.argv[1]).read_text())


def run_each_case(ranks_of, answer_of, idle=None):
    """Write to the file of the second word, for each case, what its ranks answer, by rank.

    A rank without a part in a case answers ``idle``, and nothing where that is None.
    """
    faulthandler.register(signal.SIGUSR1)
    world = MPI.COMM_WORLD
    said = []
    for case in read_cases():
        start = time.monotonic()
        takes_part = world.rank < ranks_of(case)
        comm = world.Split(0 if takes_part else MPI.UNDEFINED)
        answer = answer_of(case, comm) if takes_part else idle
        sleep_at_barrier(world)
        if takes_part:
            comm.Free()
        answers = world.gather(answer)
        if world.rank == 0:
            said.append([one for one in answers if one is not None])
            print(f"{time.monotonic() - start:.2f} s", case, flush=True)
    if world.rank == 0:
        Path(sys.argv[2]).write_text(json.dumps(said))


def return_exceptions(compare):
    """Return ``compare``, which answers with its exception where it raises one."""

    def answer_of(case, comm):
        try:
            return compare(case, comm)
        except Exception as error:
            # At once: where the others go on, they wait for this rank and nobody answers.
            traceback.print_exc()
            sys.stderr.flush()
            return {"exception": f"{type(error).__name__}: {error}"}

    return answer_of


def make_on_first_rank(comm, make):
    """Return what the first rank makes, and leaves to the others."""
    made = make() if comm.rank == 0 else None
    sleep_at_barrier(comm)
    return comm.bcast(made)
