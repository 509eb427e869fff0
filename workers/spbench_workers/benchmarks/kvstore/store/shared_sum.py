"""Allreduce in shared memory of a host: each rank sums a part for all ranks.

There are no messages. Each of n ranks reads n parts of size 1/n and writes n parts, the minimum for
an allreduce in one memory.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import cast

import numpy as np
from mpi4py import MPI

from spbench_core.layout.tiles import compute_part_bounds
from spbench_parallel.errors import CannotRunError
from spbench_parallel.groups import is_on_one_host
from spbench_workers.benchmarks.kvstore.arrays import Float32Array
from spbench_workers.benchmarks.kvstore.store.base import make_sum
from spbench_workers.collectives.base import RankTraffic

_BLOCK = 1 << 15
"""Elements summed and written together, which fit in a core's cache."""
_LINE = 64
"""Bytes of a cache line."""


class SharedWindow:
    """Shared memory with two vectors per rank, ``sources`` and ``sums``.

    Args:
        comm: The ranks.
        elements: Elements of each vector.

    Raises:
        CannotRunError: The ranks are not all on one host; all of them raise it.
    """

    def __init__(self, comm: MPI.Intracomm, elements: int) -> None:
        if not is_on_one_host(comm):
            raise CannotRunError(
                "sums in shared memory: the devices are not all on one host; choose another way"
            )
        vector_bytes = -(-4 * elements // _LINE) * _LINE + _LINE
        self._comm = comm
        self._window = MPI.Win.Allocate_shared(2 * vector_bytes, 1, comm=comm)
        self._window.Lock_all()
        memories = [self._window.Shared_query(rank)[0] for rank in range(comm.size)]
        self.sources = [_vector(memory, 0, elements) for memory in memories]
        self.sums = [_vector(memory, vector_bytes, elements) for memory in memories]
        for own_vector in (self.sources[comm.rank], self.sums[comm.rank]):
            own_vector.fill(0.0)

    def open_sum(self, first: int, last: int) -> SharedSum:
        """Return the reduction of the elements from ``first`` to before ``last``."""
        return SharedSum(self._comm, self.synchronize, self.sources, self.sums, first, last)

    def synchronize(self) -> None:
        """Wait for all ranks, and make earlier writes of all ranks visible."""
        self._window.Sync()
        self._comm.Barrier()
        self._window.Sync()

    def free(self) -> None:
        """Free the memory. All ranks must call it, and not use the vectors afterwards."""
        self._window.Unlock_all()
        self._window.Free()


class SharedSum:
    """An allreduce over the vectors of a window, summed in the order of the ranks.

    Args:
        comm: The ranks.
        synchronize: `SharedWindow.synchronize`.
        sources: Each rank's source vector.
        sums: Each rank's result vector.
        first: The first element.
        last: One past the last element.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        synchronize: Callable[[], None],
        sources: list[Float32Array],
        sums: list[Float32Array],
        first: int,
        last: int,
    ) -> None:
        self._synchronize = synchronize
        own_sum = sums[comm.rank]
        others = [*sums[: comm.rank], *sums[comm.rank + 1 :]]
        begin, end = (
            first + bound for bound in compute_part_bounds(comm.rank, comm.size, last - first)
        )
        self._steps: list[Callable[[], object]] = []
        for low in range(begin, end, _BLOCK):
            part = slice(low, min(low + _BLOCK, end))
            self._steps.append(make_sum([vector[part] for vector in sources], own_sum[part], None))
            self._steps += [partial(np.copyto, other[part], own_sum[part]) for other in others]
        self.traffic = RankTraffic(4 * (end - begin) * len(others), 0, 1)

    def run(self) -> None:
        """Sum after a barrier of all ranks; return when all parts are written."""
        self._synchronize()
        for step in self._steps:
            step()
        self._synchronize()

    def start(self) -> None:
        """Run the whole sum, because there is no progress between calls."""
        self.run()

    def poll(self) -> bool:
        """Return True, because `start` completes the sum."""
        return True

    def wait(self) -> None:
        """Return immediately, because `start` completes the sum."""

    def free(self) -> None:
        """Do nothing: the window owns the memory."""


def _vector(memory: MPI.buffer, first: int, elements: int) -> Float32Array:
    return np.frombuffer(cast(memoryview, memory), np.float32, elements, first)
