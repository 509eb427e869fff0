"""Helpers for programs that run the cases of a test on the first ranks of one job.

    mpirun -n 6 python -m mpi4py PROGRAM.py CASES.json RESULTS.json

There are more ranks than cores, so waiting ranks sleep. On SIGUSR1 a rank prints its stacks: see
`end_with_stacks` in support.runs.
"""

import faulthandler
import gc
import json
import signal
import sys
import time
import traceback
from pathlib import Path

from mpi4py import MPI

from spbench_parallel.groups import sleep_at_barrier


def read_cases():
    """Return the cases in the file that the first argument names."""
    return json.loads(Path(sys.argv[1]).read_text())


def run_each_case(count_ranks, run_case, idle=None):
    """Run each case on its ranks, and write results to the second argument's file.

    Args:
        count_ranks: Returns the number of ranks of a case.
        run_case: Takes a case and its communicator, and returns the result of this rank.
        idle: The result of a rank that takes no part; None: it has no result.
    """
    faulthandler.register(signal.SIGUSR1)
    world = MPI.COMM_WORLD
    results = []
    for case in read_cases():
        gc.freeze()  # collections of a case skip all modules and earlier cases
        start = time.monotonic()
        takes_part = world.rank < count_ranks(case)
        comm = world.Split(0 if takes_part else MPI.UNDEFINED)
        rank_result = run_case(case, comm) if takes_part else idle
        sleep_at_barrier(world)
        if takes_part:
            comm.Free()
        rank_results = world.gather(rank_result)
        if world.rank == 0:
            results.append([result for result in rank_results if result is not None])
            print(f"{time.monotonic() - start:.2f} s", case, flush=True)
    if world.rank == 0:
        Path(sys.argv[2]).write_text(json.dumps(results))


def return_exceptions(compare):
    """Return a function that calls ``compare`` and returns its exception, if any."""

    def run_case(case, comm):
        try:
            return compare(case, comm)
        except Exception as error:
            # Print at once: if the other ranks wait for this one, no result is ever written.
            traceback.print_exc()
            sys.stderr.flush()
            return {"exception": f"{type(error).__name__}: {error}"}

    return run_case


def make_on_first_rank(comm, make):
    """Call ``make`` on the first rank, and return its result on all ranks."""
    result = make() if comm.rank == 0 else None
    sleep_at_barrier(comm)
    return comm.bcast(result)
