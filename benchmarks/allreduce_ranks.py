"""Ranks that time mpi4py's own calls of an allreduce, in a bare loop; rank 0 prints each time.

It takes the numbers of samples and of bytes. The same sum is asked for by each way in which mpi4py
takes memory and type, none of which makes them anew; the ways are timed by turns. Of a sample,
which has as many calls as `spbench_workers.timing` gives it, the slowest rank counts.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

from mpi4py import MPI

from spbench_workers.timing import calls_per_sample, repeat_calls, time_batch

_FEW = 200
"""Calls that tell how many make a sample."""


def main() -> None:
    samples, size = map(int, sys.argv[1:])
    comm = MPI.COMM_WORLD.Dup()
    given, gotten = (MPI.buffer.frombuffer(bytearray(size)) for _ in range(2))
    arrays = array("f", bytes(size)), array("f", bytes(size))
    count = size // MPI.FLOAT.size
    arguments: dict[str, tuple[Any, Any]] = {
        "arrays": arrays,
        "buffer, type": ([given, MPI.FLOAT], [gotten, MPI.FLOAT]),
        "buffer, count, type": ([given, count, MPI.FLOAT], [gotten, count, MPI.FLOAT]),
    }
    calls = {name: partial(comm.Allreduce, *pair, MPI.SUM) for name, pair in arguments.items()}
    times = {name: array("d", bytes(8 * samples)) for name in calls}
    number = comm.allreduce(_number(comm, calls["arrays"]), MPI.MIN)
    for at in range(samples):
        for name, call in calls.items():
            body = repeat_calls(call, number)
            call()
            comm.Barrier()
            time_batch(body, times[name], at, 1, 1e6 / number)
    for name, own in times.items():
        comm.Allreduce(MPI.IN_PLACE, own, MPI.MAX)
        if comm.rank == 0:
            print(f"{median(own):.4f} {name}")
    comm.Free()


def _number(comm: MPI.Intracomm, call: Callable[[], object]) -> int:
    """Return how many calls make a sample."""
    own = array("d", bytes(8))
    comm.Barrier()
    time_batch(repeat_calls(call, _FEW), own, 0, 1, 1.0 / _FEW)
    return calls_per_sample(own[0])


if __name__ == "__main__":
    main()
