"""Simultaneous exchanges of all ranks by persistent requests, checked and timed."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from time import perf_counter

from mpi4py import MPI

from spbench_parallel.groups import sleep_at_barrier
from spbench_parallel.verify.worst_error import WorstError
from spbench_workers.benchmarks.link.entry import LoopParams
from spbench_workers.benchmarks.link.messages import compare_bytes, invert_bytes, random_bytes
from spbench_workers.benchmarks.link.patterns import Pattern
from spbench_workers.comm import World
from spbench_workers.context import Context
from spbench_workers.pingpong.pair import Peer, measure_one_way
from spbench_workers.timing import compute_calls_per_sample, measure, repeat_calls, time_batch

_TAG = 81
_TRIPS = 50


class Exchanges:
    """The exchanges of a case on one rank, in memory that MPI allocates.

    Args:
        context: The case.
        largest: Bytes of the largest message.

    Attributes:
        difference: The first wrong message.
    """

    def __init__(self, context: Context, largest: int) -> None:
        self._context = context
        self._comm = context.world.comm
        self._buffers = [MPI.Alloc_mem(largest) for _ in range(4)]
        for buffer in self._buffers:
            buffer[:] = bytes(largest)
        self.difference = WorstError(keeps_first=True)

    def time_pattern(self, pattern: Pattern, count: int) -> float:
        """Check and time a pattern with messages of ``count`` bytes.

        All ranks must call it.

        Returns:
            The seconds of one exchange: the median over exchanges of the slowest rank.
        """
        return self._check_and_time(pattern, count, self._time_batches)

    def sample_pattern(self, pattern: Pattern, count: int) -> float:
        """Check and time a pattern like `time_pattern`, and report a sample per exchange."""
        return self._check_and_time(pattern, count, self._time_samples)

    def _check_and_time(
        self, pattern: Pattern, count: int, time: Callable[[Callable[[], object]], array[float]]
    ) -> float:
        requests = self._open(pattern, count)

        def exchange() -> None:
            MPI.Prequest.Startall(requests)
            MPI.Prequest.Waitall(requests)

        self._check(exchange, pattern, count, "before")
        times_ms = time(exchange)
        self._check(exchange, pattern, count, "after")
        for request in requests:
            request.Free()
        return self._context.median_of_slowest(times_ms) / 1000.0

    def _open(self, pattern: Pattern, count: int) -> list[MPI.Prequest]:
        outgoing = self._buffers[:2]
        incoming = self._buffers[2:]
        # Between two ranks the messages of both directions differ only by their tag.
        receives = [
            self._comm.Recv_init(
                [incoming[direction], count, MPI.BYTE], source=source, tag=_TAG + direction
            )
            for direction, source in enumerate(pattern.sources)
        ]
        sends = [
            self._comm.Send_init(
                [outgoing[direction], count, MPI.BYTE], dest=target, tag=_TAG + direction
            )
            for direction, target in enumerate(pattern.targets)
        ]
        return [*receives, *sends]

    def _time_samples(self, exchange: Callable[[], object]) -> array[float]:
        return measure(self._context, exchange)

    def _time_batches(self, exchange: Callable[[], object]) -> array[float]:
        """Return samples in ms, each over enough exchanges to hide the clock's own time."""
        params = self._context.read_params(LoopParams)
        for _ in range(max(1, params.warmup)):
            exchange()
        self._comm.Barrier()
        start = perf_counter()
        exchange()
        calls = compute_calls_per_sample(self._context.largest(perf_counter() - start))
        iterations: int = params.iterations
        times_ms = array("d", bytes(8 * iterations))
        self._comm.Barrier()
        time_batch(repeat_calls(exchange, calls), times_ms, 0, iterations, 1000.0 / calls)
        return times_ms

    def _check(
        self, exchange: Callable[[], object], pattern: Pattern, count: int, phase: str
    ) -> None:
        """Exchange fresh bytes into poisoned buffers, and compare the received ones."""
        rank = self._context.world.rank
        for direction, target in enumerate(pattern.targets):
            self._buffers[direction][:count] = self._message(
                pattern, count, phase, direction, rank, target
            )
        expected = [
            self._message(pattern, count, phase, direction, source, rank)
            for direction, source in enumerate(pattern.sources)
        ]
        for buffer, message in zip(self._buffers[2:], expected, strict=False):
            buffer[:count] = invert_bytes(message)
        exchange()
        if self._context.planted("corrupt-message") and expected:
            self._buffers[2][count // 2] ^= 0xFF
        for direction, message in enumerate(expected):
            error = compare_bytes(self._buffers[2 + direction][:count].tobytes(), message)
            if error.exceeds:
                source = f"{count} B from rank {pattern.sources[direction]} ({pattern.name})"
                self.difference.add(error.error, 0.0, f"{source}: {error.detail}")

    def _message(
        self, pattern: Pattern, count: int, phase: str, direction: int, source: int, target: int
    ) -> bytes:
        seed = self._context.seed_for(
            "exchange", pattern.name, phase, direction, source, target, count
        )
        return random_bytes(seed, count)

    def free(self) -> None:
        """Free the memory."""
        for buffer in self._buffers:
            MPI.Free_mem(buffer)


def find_far_rank(world: World) -> int:
    """Return the first rank on another host than rank 0, or rank 1 if there is none.

    All ranks must call it.
    """
    hosts = world.comm.allgather(world.host)
    return next((rank for rank, host in enumerate(hosts) if host != hosts[0]), 1)


def measure_lone_link(context: Context, sizes: list[int]) -> tuple[list[float], str]:
    """Measure one link while other ranks sleep; exchanges are compared with it.

    All ranks must call it.

    Returns:
        The one-way seconds of a message of each size on the two ranks of the link, zeros on other
        ranks, and a description of the measurement.
    """
    world = context.world
    far = find_far_rank(context.world)
    sleep_at_barrier(world.comm)
    seconds = [0.0] * len(sizes)
    if world.rank in (0, far):
        peer = Peer(world.comm, far - world.rank, leads=world.rank == 0)
        seconds = [measure_one_way(peer, size, _TRIPS) for size in sizes]
    sleep_at_barrier(world.comm)
    return seconds, f"ping-pong of ranks 0 and {far} alone"
