"""Metrics of an exchange in the halo benchmarks: its traffic, its phases and its limits."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import torch
from mpi4py import MPI

from spbench_core.durations import format_duration
from spbench_parallel.device.streams import is_gpu, synchronize_stream, time_on_device
from spbench_parallel.groups import sleep_at_barrier
from spbench_parallel.spatial.exchange import Exchange
from spbench_workers.context import Context
from spbench_workers.pingpong.device_pair import Path, one_way_device_seconds, open_path
from spbench_workers.pingpong.pair import Peer, one_way_seconds
from spbench_workers.timing import calls_per_sample, repeat_calls, time_batch

PHASE_ROUNDS = 20
LIMIT_TRIPS = 50
COPY_ROUNDS = 20
SMALL_SECONDS = 0.001
"""Copies that take longer are not measured twice."""
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Formats that numpy has, by the bytes of an element."""
_OVER: dict[Path | None, str] = {
    None: "",
    "pinned": " from GPU to GPU by way of pinned memory",
    "pointers": " from GPU to GPU by MPI, given device pointers",
    "cuda-ipc": " from GPU to GPU by CUDA IPC",
    "nccl": " from GPU to GPU by NCCL",
}
"""The path of a ping-pong, as its limit says it."""


@dataclass(frozen=True, slots=True)
class ExchangePhases:
    """Times of one exchange's phases on this rank in ms, medians over rounds."""

    pack: float
    wait: float
    total: float


def report_choice(context: Context, exchange: Exchange) -> None:
    """Report the chosen transport, the times of those that were tried, and the memory of MPI."""
    if context.world.rank != 0:
        return
    tried = ", ".join(
        f"{name} {format_duration(ms / 1e3)}" for name, ms in exchange.tried_ms.items()
    )
    reason = f"the fastest of {tried}" if tried else "asked for"
    context.choice("transport", exchange.transport, reason)
    if exchange.memory_path is not None:
        context.choice("gpu_memory", *exchange.memory_path)


def report_traffic(context: Context, exchange: Exchange, slowest_ms: float) -> None:
    """Report this rank's traffic, as the exchange counts it, and the bandwidth of all.

    All ranks must call it.

    Args:
        context: The case.
        exchange: The exchange.
        slowest_ms: The time of the exchange on the slowest rank.
    """
    traffic = exchange.traffic
    context.metric("bytes_sent", traffic.bytes)
    context.metric("messages_sent", traffic.messages)
    most_bytes = context.largest(traffic.bytes)
    if most_bytes:
        context.metric("bandwidth_gb_s", most_bytes / (slowest_ms * 1e6))


def measure_phases(context: Context, exchange: Exchange, place: torch.device) -> ExchangePhases:
    """Time the phases of the exchange, ranks starting together. All ranks must call it."""
    packs = []
    waits = []
    wholes = []
    for _ in range(PHASE_ROUNDS):
        synchronize_stream(place)
        context.world.comm.Barrier()
        begun = perf_counter()
        exchange.start()
        packed = perf_counter()
        exchange.wait()
        waited = perf_counter()
        exchange.unpack()
        exchange.release()
        synchronize_stream(place)
        wholes.append(perf_counter() - begun)
        packs.append(packed - begun)
        waits.append(waited - packed)
    pack, wait, whole = (median(times) * 1000.0 for times in (packs, waits, wholes))
    return ExchangePhases(pack, wait, whole)


def report_phases(
    context: Context, phases: ExchangePhases, outgoing: Sequence[torch.Tensor], place: torch.device
) -> None:
    """Report the phases' times; on a GPU, whose calls return early, only that of packing."""
    if is_gpu(place):
        copies = [(view.clone(), view) for view in outgoing]
        context.metric("pack_ms", _copy_seconds(copies) * 1000.0)
        return
    context.metric("pack_ms", phases.pack)
    context.metric("wait_ms", phases.wait)


def report_limits(
    context: Context,
    exchange: Exchange,
    outgoing: Sequence[torch.Tensor],
    incoming: Sequence[torch.Tensor],
    slowest_ms: float,
    limited: str,
    place: torch.device,
) -> None:
    """Report MPI's best time for the exchange, and the efficiency. All ranks must call it.

    The limit is that of the rank that sends the most: one message of all its bytes, one way, to
    the rank that gets most of them, over the same path between the same kinds of memory, and
    copies of all its pieces, with nothing else going on.

    Args:
        context: The case.
        exchange: The exchange.
        outgoing: The views that this rank sends from.
        incoming: The views that it receives into.
        slowest_ms: The time of the exchange on the slowest rank.
        limited: The name of the metric of that time.
        place: The device of the pixels.
    """
    comm = context.world.comm
    rank = context.world.rank
    sizes = [(exchange.piece_bytes(piece), -piece.peer) for piece in exchange.outgoing]
    total = sum(size for size, _ in sizes)
    peer = -max(sizes)[1] if sizes else -1
    count, negative, target = max(comm.allgather((total, -rank, peer)))
    source = -negative
    if not count:
        return
    path = find_message_path(exchange)
    seconds = _one_way(comm, source, target, count, place, path)
    sleep_at_barrier(comm)
    if rank == source:
        copies = _copy_seconds([(view.clone(), view) for view in outgoing])
        copies += _copy_seconds([(view, view.clone()) for view in incoming])
        block = torch.zeros(count, dtype=torch.uint8, device=place)
        memory = _copy_seconds([(block.clone(), block)])
        limit_ms = (seconds + copies) * 1000.0
        context.limit(
            limited,
            limit_ms,
            f"one-way ping-pong of {count} B{_OVER[path]}, rank {source} to {target}, "
            f"{format_duration(seconds)}, and copies of rank {source}'s pieces, "
            f"{format_duration(copies)}",
        )
        context.limit("pack_ms", memory * 1000.0, f"a copy of {count} B in one block")
        context.metric("exchange_efficiency", limit_ms / slowest_ms)
    sleep_at_barrier(comm)


def find_message_path(exchange: Exchange) -> Path | None:
    """Return the path of an exchange's messages between GPUs; None between hosts."""
    if exchange.transport == "nccl":
        return "nccl"
    if exchange.transport == "cuda-ipc":
        return "cuda-ipc"
    if exchange.memory_path is None:
        return None
    return "pinned" if exchange.memory_path[0] == "pinned" else "pointers"


def _one_way(
    comm: MPI.Intracomm,
    source: int,
    target: int,
    count: int,
    place: torch.device,
    path: Path | None,
) -> float:
    """Return the seconds of one message from a rank to another; 0 on other ranks."""
    pair = (source, target)
    peer = Peer(comm, source + target - comm.rank, leads=comm.rank == source)
    if path is None:
        return one_way_seconds(peer, count, LIMIT_TRIPS) if comm.rank in pair else 0.0
    with open_path(comm, place, path):
        if comm.rank not in pair:
            return 0.0
        return one_way_device_seconds(peer, count, LIMIT_TRIPS, device=place, path=path)


def _copy_seconds(copies: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> float:
    """Return the median time of all these copies, target first.

    On a CPU, small copies are those of torch or numpy, whichever are faster: a call of torch takes
    longer than a small copy.
    """
    if not copies:
        return 0.0
    place = copies[0][0].device

    def copy_all() -> None:
        for target, source in copies:
            target.copy_(source)

    if is_gpu(place):
        return median(time_on_device(place, copy_all) for _ in range(COPY_ROUNDS))
    arrays = [(_array_of(target), _array_of(source)) for target, source in copies]

    def copy_arrays() -> None:
        for target, source in arrays:
            np.copyto(target, source)

    seconds = _seconds_of_short(copy_all)
    return seconds if seconds > SMALL_SECONDS else min(seconds, _seconds_of_short(copy_arrays))


def _array_of(view: torch.Tensor) -> Any:
    """Return the memory of a view as an array; numpy has not all formats of torch."""
    return view.detach().view(_INTEGERS[view.element_size()]).numpy()


def _seconds_of_short(call: Callable[[], object]) -> float:
    """Return the median time of a call that may be shorter than a reading of the clock."""
    call()
    start = perf_counter()
    call()
    calls = calls_per_sample(perf_counter() - start)
    times = array("d", bytes(8 * COPY_ROUNDS))
    time_batch(repeat_calls(call, calls), times, 0, COPY_ROUNDS, 1.0 / calls)
    return median(times)


def _clock(call: Callable[[], object], keep: Callable[[float], object]) -> Callable[[], None]:
    """Return a call that is timed; it adds as little as possible, for it may be in a timed loop."""
    now = perf_counter

    def timed() -> None:
        start = now()
        call()
        keep(now() - start)

    return timed


CALLS = ("start", "progress", "wait", "release")


@contextmanager
def time_calls(
    exchange: Exchange, names: Sequence[str] = CALLS, into: list[float] | None = None
) -> Iterator[list[float]]:
    """Yield the seconds of each of these calls of the exchange within the block.

    They are appended to ``into``, if it is given.
    """
    seconds: list[float] = [] if into is None else into
    calls = {name: getattr(exchange, name) for name in names}
    for name, call in calls.items():
        setattr(exchange, name, _clock(call, seconds.append))
    try:
        yield seconds
    finally:
        for name, call in calls.items():
            setattr(exchange, name, call)


@contextmanager
def time_waits(exchanges: Iterable[Exchange], place: torch.device) -> Iterator[list[float] | None]:
    """Yield the seconds of each wait of these exchanges within the block.

    Yield None on a GPU: there the host's calls return before the pieces have come.
    """
    if is_gpu(place):
        yield None
        return
    seconds: list[float] = []
    with ExitStack() as stack:
        for exchange in exchanges:
            stack.enter_context(time_calls(exchange, ("wait",), seconds))
        yield seconds
