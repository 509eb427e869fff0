"""Benchmark ``link.pingpong``: latency and bandwidth of every pair of ranks."""

from __future__ import annotations

from array import array
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

from spbench_core.events.rank_events import BATCH_INTERVAL
from spbench_core.events.statuses import Activity
from spbench_parallel.groups import sleep_at_barrier
from spbench_parallel.verify.worst_error import WorstError
from spbench_workers.benchmarks.link.entry import PingpongParams
from spbench_workers.benchmarks.link.messages import (
    MessageBuffers,
    PingPongPair,
    compare_bytes,
    open_messages,
    random_bytes,
)
from spbench_workers.context import Context
from spbench_workers.pingpong.pair import Peer
from spbench_workers.pingpong.schedule import pair_rounds
from spbench_workers.timing import MAX_BATCH, compute_calls_per_sample, time_batch

_COUNT_TAG = 78


class PingPong:
    """The ping-pongs of one rank, and their results.

    Args:
        context: The case.
        messages: The message buffers of this rank.
        pairs: The number of pairs with this rank.

    Attributes:
        slowest_trip_ms: Time of the largest message's round trip by iteration, the slowest
            of the pairs.
        one_way_s_by_peer_and_size: Median one-way seconds by ``(peer, bytes)`` of the pairs that
            this rank leads.
        difference: The first wrong echo.
    """

    def __init__(self, context: Context, messages: MessageBuffers, pairs: int) -> None:
        params = context.read_params(PingpongParams)
        self._context = context
        self._messages = messages
        self._comm = context.world.comm
        self._sizes: list[int] = params.sizes
        self._iterations: int = params.iterations
        self._done = 0
        self._total = pairs * len(self._sizes) * self._iterations
        self.slowest_trip_ms = array("d", bytes(8 * self._iterations))
        self.one_way_s_by_peer_and_size: dict[tuple[int, int], float] = {}
        self.difference = WorstError(keeps_first=True)

    def measure_peer(self, peer: int) -> None:
        """Check and time all sizes with one peer, which must call it too."""
        other = Peer(self._comm, peer, leads=self._context.world.rank < peer)
        for count in self._sizes:
            pair = self._messages.open_pair(other, count)
            self._check(pair, "before")
            trip_seconds = self._time(pair)
            self._check(pair, "after")
            pair.free()
            if other.leads:
                self.one_way_s_by_peer_and_size[peer, count] = median(trip_seconds) / 2.0
            if count == self._sizes[-1]:
                pairs = zip(self.slowest_trip_ms, trip_seconds, strict=True)
                slowest_ms = [max(old, 1000.0 * new) for old, new in pairs]
                self.slowest_trip_ms = array("d", slowest_ms)

    def _time(self, pair: PingPongPair) -> array[float]:
        """Return the seconds of one round trip, iteration by iteration."""
        trips, seconds_per_trip = self._warm_up(pair)
        body = self._context.with_fault(
            partial(pair.make_round_trips, trips), seconds_per_trip * trips
        )
        trip_seconds = array("d", bytes(8 * self._iterations))
        batch_size = max(1, int(BATCH_INTERVAL / (seconds_per_trip * trips)))
        for first in range(0, self._iterations, batch_size):
            # An empty message in each direction lets both ranks begin a batch together.
            other = pair.peer.rank
            self._comm.sendrecv(None, dest=other, sendtag=_COUNT_TAG, source=other)
            count = min(batch_size, self._iterations - first)
            time_batch(body, trip_seconds, first, count, 1.0 / trips)
            self._done += count
            self._context.progress(Activity.TIMING, self._done, self._total)
        return trip_seconds

    def _warm_up(self, pair: PingPongPair) -> tuple[int, float]:
        """Return the round trips of a sample, and the seconds of one of them."""
        trips = 1
        seconds_per_trip = 0.0
        samples = self._context.read_params(PingpongParams).warmup
        for repeats in (1, samples) if samples else (1,):
            start = perf_counter()
            for _ in range(repeats):
                pair.make_round_trips(trips)
            seconds_per_trip = (perf_counter() - start) / (repeats * trips)
            trips, seconds_per_trip = self._agree(
                pair, compute_calls_per_sample(seconds_per_trip), seconds_per_trip
            )
        return trips, seconds_per_trip

    def _agree(self, pair: PingPongPair, trips: int, seconds_per_trip: float) -> tuple[int, float]:
        """Send the leading rank's trips and seconds to its peer; return them on both."""
        if pair.peer.leads:
            self._comm.send((trips, seconds_per_trip), dest=pair.peer.rank, tag=_COUNT_TAG)
            return trips, seconds_per_trip
        agreed: tuple[int, float] = self._comm.recv(source=pair.peer.rank, tag=_COUNT_TAG)
        return agreed

    def _check(self, pair: PingPongPair, phase: str) -> None:
        """Send fresh bytes to the peer and back, and compare them on both sides."""
        rank = self._context.world.rank
        count = pair.count
        messages = self._messages
        ends = sorted((rank, pair.peer.rank))
        expected = random_bytes(self._context.seed_for("echo", *ends, count, phase), count)
        messages.poison_incoming(expected)
        if pair.peer.leads:
            messages.write_outgoing(expected)
            pair.send()
            pair.receive()
        else:
            pair.receive()
            messages.forward(count)
            pair.send()
        if self._context.planted("corrupt-message"):
            messages.corrupt_incoming(count // 2)
        error = compare_bytes(messages.read_incoming(count), expected)
        if error.exceeds:
            detail = f"{count} B from rank {pair.peer.rank}: {error.detail}"
            self.difference.add(error.error, 0.0, detail)


def run(context: Context) -> None:
    """Run the case."""
    with open_messages(context) as messages:
        _run(context, messages)


def _run(context: Context, messages: MessageBuffers) -> None:
    params = context.read_params(PingpongParams)
    world = context.world
    sizes = params.sizes
    hosts = world.comm.allgather(world.host)

    schedule = pair_rounds(world.size, params.pairs, params.at_once)
    peers = [_find_peer(world.rank, pairs) for pairs in schedule]
    pingpong = PingPong(context, messages, sum(peer is not None for peer in peers))

    for peer in peers:
        sleep_at_barrier(world.comm)
        if peer is not None:
            pingpong.measure_peer(peer)
        # No rank reports before all have measured, so that reports do not disturb the times.
        sleep_at_barrier(world.comm)
        if peer is not None and world.rank < peer:
            _report_pair(context, pingpong, peer, hosts)

    for first in range(0, len(pingpong.slowest_trip_ms), MAX_BATCH):
        context.samples("time_ms", pingpong.slowest_trip_ms[first : first + MAX_BATCH])
    context.check_worst("echo", pingpong.difference)
    _report_slowest(context, pingpong.one_way_s_by_peer_and_size)

    sleep_at_barrier(world.comm)
    if world.rank == 0:
        copy_seconds = messages.measure_copy(sizes[-1])
        origin = f"a memory copy of {sizes[-1]} B by rank 0 alone"
        if params.device != "cpu":
            origin = f"a copy of {sizes[-1]} B within {messages.memory} by rank 0 alone"
        context.limit("time_ms", 2 * copy_seconds * 1e3, f"{origin}, there and back")
        context.limit("bandwidth_gb_s", sizes[-1] / copy_seconds / 1e9, origin)
    sleep_at_barrier(world.comm)


def _find_peer(rank: int, pairs: list[tuple[int, int]]) -> int | None:
    return next((sum(pair) - rank for pair in pairs if rank in pair), None)


def _report_pair(context: Context, pingpong: PingPong, peer: int, hosts: list[str]) -> None:
    rank = context.world.rank
    for count in context.read_params(PingpongParams).sizes:
        one_way_seconds = pingpong.one_way_s_by_peer_and_size[peer, count]
        labels: dict[str, Any] = {"source": rank, "target": peer, "bytes": count}
        labels |= {"host_a": hosts[rank], "host_b": hosts[peer]}
        context.metric("latency_us", one_way_seconds * 1e6, **labels)
        context.metric("bandwidth_gb_s", count / one_way_seconds / 1e9, **labels)


def _report_slowest(context: Context, one_way: dict[tuple[int, int], float]) -> None:
    sizes = context.read_params(PingpongParams).sizes
    slowest_seconds = [
        max((seconds for (_, count), seconds in one_way.items() if count == size), default=0.0)
        for size in (sizes[0], sizes[-1])
    ]
    seconds_by_rank = context.world.comm.gather(slowest_seconds)
    if seconds_by_rank is not None:
        smallest_seconds, largest_seconds = (
            max(column) for column in zip(*seconds_by_rank, strict=True)
        )
        context.metric("latency_us", smallest_seconds * 1e6)
        context.metric("bandwidth_gb_s", sizes[-1] / largest_seconds / 1e9)
