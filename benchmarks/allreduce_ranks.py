"""Ranks that time mpi4py's calls of an allreduce in a bare loop; rank 0 prints.

Takes the numbers of samples and of bytes. The same sum is computed with each form of arguments that
mpi4py takes for memory and type, which are all built beforehand. The forms are interleaved. A
sample has as many calls as `spbench_workers.timing` chooses; its time is that of the slowest rank.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

from mpi4py import MPI

from spbench_workers.timing import compute_calls_per_sample, repeat_calls, time_batch

_TRIAL_CALLS = 200  # timed to choose the number of calls of a sample


def main() -> None:
    samples, size = map(int, sys.argv[1:])
    comm = MPI.COMM_WORLD.Dup()
    source, target = (MPI.buffer.frombuffer(bytearray(size)) for _ in range(2))
    arrays = array("f", bytes(size)), array("f", bytes(size))
    count = size // MPI.FLOAT.size
    arguments: dict[str, tuple[Any, Any]] = {
        "arrays": arrays,
        "buffer, type": ([source, MPI.FLOAT], [target, MPI.FLOAT]),
        "buffer, count, type": ([source, count, MPI.FLOAT], [target, count, MPI.FLOAT]),
    }
    calls = {name: partial(comm.Allreduce, *pair, MPI.SUM) for name, pair in arguments.items()}
    times_us = {name: array("d", bytes(8 * samples)) for name in calls}
    call_count = comm.allreduce(_count_calls(comm, calls["arrays"]), MPI.MIN)
    for sample in range(samples):
        for name, call in calls.items():
            body = repeat_calls(call, call_count)
            call()
            comm.Barrier()
            time_batch(body, times_us[name], sample, 1, 1e6 / call_count)
    for name, call_us in times_us.items():
        comm.Allreduce(MPI.IN_PLACE, call_us, MPI.MAX)
        if comm.rank == 0:
            print(f"{median(call_us):.4f} {name}")
    comm.Free()


def _count_calls(comm: MPI.Intracomm, call: Callable[[], object]) -> int:
    """Return the number of calls of a sample."""
    seconds = array("d", bytes(8))
    comm.Barrier()
    time_batch(repeat_calls(call, _TRIAL_CALLS), seconds, 0, 1, 1.0 / _TRIAL_CALLS)
    return compute_calls_per_sample(seconds[0])


if __name__ == "__main__":
    main()
