"""Metrics of a halo exchange: its traffic, its phases and its limits."""

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

from spbench_core.number_text import format_duration
from spbench_parallel.device.streams import is_gpu, synchronize_stream, time_on_device
from spbench_parallel.groups import sleep_at_barrier
from spbench_parallel.spatial.exchange import Exchange
from spbench_workers.context import Context
from spbench_workers.pingpong.device_pair import MessagePath, measure_one_way_on_devices, open_path
from spbench_workers.pingpong.pair import Peer, measure_one_way
from spbench_workers.timing import compute_calls_per_sample, repeat_calls, time_batch

PHASE_ROUNDS = 20
LIMIT_TRIPS = 50
COPY_ROUNDS = 20
SMALL_SECONDS = 0.001
"""Copies that take longer are timed only by torch, not also by numpy."""
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integer formats of the same size as an element, for formats that numpy lacks."""
_PATH_TEXTS: dict[MessagePath | None, str] = {
    None: "",
    "pinned": " from GPU to GPU by way of pinned memory",
    "pointers": " from GPU to GPU by MPI, given device pointers",
    "cuda-ipc": " from GPU to GPU by CUDA IPC",
    "nccl": " from GPU to GPU by NCCL",
}
"""Text of a limit about the path of its ping-pong."""


@dataclass(frozen=True, slots=True)
class ExchangePhases:
    """Times of one exchange's phases on this rank in ms, medians over rounds."""

    pack: float
    wait: float
    total: float


def report_choice(context: Context, exchange: Exchange) -> None:
    """Report the transport, the times of all tried ones, and the memory path of MPI."""
    if context.world.rank != 0:
        return
    tried_text = ", ".join(
        f"{name} {format_duration(ms / 1e3)}" for name, ms in exchange.tried_ms.items()
    )
    reason = f"the fastest of {tried_text}" if tried_text else "asked for"
    context.choice("transport", exchange.transport, reason)
    if exchange.memory_path is not None:
        context.choice("gpu_memory", *exchange.memory_path)


def report_traffic(context: Context, exchange: Exchange, slowest_ms: float) -> None:
    """Report this rank's traffic as counted by the exchange, and the bandwidth of all.

    All ranks must call it.

    Args:
        context: The case.
        exchange: The exchange.
        slowest_ms: The time of the exchange on the slowest rank.
    """
    traffic = exchange.traffic
    context.metric("bytes_sent", traffic.bytes)
    context.metric("messages_sent", traffic.messages)
    max_bytes = context.largest(traffic.bytes)
    if max_bytes:
        context.metric("bandwidth_gb_s", max_bytes / (slowest_ms * 1e6))


def measure_phases(context: Context, exchange: Exchange, device: torch.device) -> ExchangePhases:
    """Time the phases of the exchange from a common start. All ranks must call it."""
    pack_seconds = []
    wait_seconds = []
    total_seconds = []
    for _ in range(PHASE_ROUNDS):
        synchronize_stream(device)
        context.world.comm.Barrier()
        start = perf_counter()
        exchange.start()
        packed = perf_counter()
        exchange.wait()
        waited = perf_counter()
        exchange.unpack()
        exchange.release()
        synchronize_stream(device)
        total_seconds.append(perf_counter() - start)
        pack_seconds.append(packed - start)
        wait_seconds.append(waited - packed)
    pack_ms, wait_ms, total_ms = (
        median(seconds) * 1000.0 for seconds in (pack_seconds, wait_seconds, total_seconds)
    )
    return ExchangePhases(pack_ms, wait_ms, total_ms)


def report_phases(
    context: Context, phases: ExchangePhases, outgoing: Sequence[torch.Tensor], device: torch.device
) -> None:
    """Report the times of the phases; on a GPU, with asynchronous calls, only packing."""
    if is_gpu(device):
        buffer_pairs = [(view.clone(), view) for view in outgoing]
        context.metric("pack_ms", _measure_copies(buffer_pairs) * 1000.0)
        return
    context.metric("pack_ms", phases.pack)
    context.metric("wait_ms", phases.wait)


def report_limits(
    context: Context,
    exchange: Exchange,
    outgoing: Sequence[torch.Tensor],
    incoming: Sequence[torch.Tensor],
    slowest_ms: float,
    metric: str,
    device: torch.device,
) -> None:
    """Report the limit of the exchange and its efficiency. All ranks must call it.

    The limit is for the rank that sends the most. It is the sum of one one-way message with all its
    bytes to the rank that receives most of them, and of copies of all its pieces. The message takes
    the same path between the same kinds of memory, and all other ranks are idle.

    Args:
        context: The case.
        exchange: The exchange.
        outgoing: The views that this rank sends from.
        incoming: The views that it receives into.
        slowest_ms: The time of the exchange on the slowest rank.
        metric: The metric that the limit belongs to.
        device: The device of the pixels.
    """
    comm = context.world.comm
    rank = context.world.rank
    # The lowest rank and the lowest peer win a tie.
    bytes_and_peers = [
        (exchange.count_piece_bytes(piece), -piece.peer) for piece in exchange.outgoing
    ]
    sent_bytes = sum(nbytes for nbytes, _ in bytes_and_peers)
    peer = -max(bytes_and_peers)[1] if bytes_and_peers else -1
    max_bytes, negative_rank, target = max(comm.allgather((sent_bytes, -rank, peer)))
    source = -negative_rank
    if not max_bytes:
        return

    path = find_message_path(exchange)
    one_way = _measure_one_way(comm, source, target, max_bytes, device, path)
    sleep_at_barrier(comm)
    if rank == source:
        copy_seconds = _measure_copies([(view.clone(), view) for view in outgoing])
        copy_seconds += _measure_copies([(view, view.clone()) for view in incoming])
        block = torch.zeros(max_bytes, dtype=torch.uint8, device=device)
        block_seconds = _measure_copies([(block.clone(), block)])
        limit_ms = (one_way + copy_seconds) * 1000.0
        context.limit(
            metric,
            limit_ms,
            f"one-way ping-pong of {max_bytes} B{_PATH_TEXTS[path]}, rank {source} to {target}, "
            f"{format_duration(one_way)}, and copies of rank {source}'s pieces, "
            f"{format_duration(copy_seconds)}",
        )
        context.limit("pack_ms", block_seconds * 1000.0, f"a copy of {max_bytes} B in one block")
        context.metric("exchange_efficiency", limit_ms / slowest_ms)
    sleep_at_barrier(comm)


def find_message_path(exchange: Exchange) -> MessagePath | None:
    """Return the path of an exchange's messages between GPUs; None on hosts."""
    if exchange.transport == "nccl":
        return "nccl"
    if exchange.transport == "cuda-ipc":
        return "cuda-ipc"
    if exchange.memory_path is None:
        return None
    return "pinned" if exchange.memory_path[0] == "pinned" else "pointers"


def _measure_one_way(
    comm: MPI.Intracomm,
    source: int,
    target: int,
    count: int,
    device: torch.device,
    path: MessagePath | None,
) -> float:
    """Return the one-way seconds of a message between two ranks; 0 on other ranks."""
    pair = (source, target)
    peer = Peer(comm, source + target - comm.rank, leads=comm.rank == source)
    if path is None:
        return measure_one_way(peer, count, LIMIT_TRIPS) if comm.rank in pair else 0.0
    with open_path(comm, device, path):
        if comm.rank not in pair:
            return 0.0
        return measure_one_way_on_devices(peer, count, LIMIT_TRIPS, device=device, path=path)


def _measure_copies(buffer_pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> float:
    """Return the median time of all copies, given as pairs of target and source.

    On a CPU the faster of torch and numpy counts for small copies, because a call of torch takes
    longer than a small copy.
    """
    if not buffer_pairs:
        return 0.0
    device = buffer_pairs[0][0].device

    def copy_all() -> None:
        for target, source in buffer_pairs:
            target.copy_(source)

    if is_gpu(device):
        return median(time_on_device(device, copy_all) for _ in range(COPY_ROUNDS))
    arrays = [(_view_as_array(target), _view_as_array(source)) for target, source in buffer_pairs]

    def copy_arrays() -> None:
        for target, source in arrays:
            np.copyto(target, source)

    seconds = _time_short_call(copy_all)
    return seconds if seconds > SMALL_SECONDS else min(seconds, _time_short_call(copy_arrays))


def _view_as_array(view: torch.Tensor) -> Any:
    """Return a numpy view of a tensor's memory; numpy lacks some formats of torch."""
    return view.detach().view(_INTEGERS[view.element_size()]).numpy()


def _time_short_call(call: Callable[[], object]) -> float:
    """Return the median time of a call that may be shorter than the clock's own time."""
    call()
    start = perf_counter()
    call()
    calls = compute_calls_per_sample(perf_counter() - start)
    seconds = array("d", bytes(8 * COPY_ROUNDS))
    time_batch(repeat_calls(call, calls), seconds, 0, COPY_ROUNDS, 1.0 / calls)
    return median(seconds)


def _wrap_with_timer(
    call: Callable[[], object], record: Callable[[float], object]
) -> Callable[[], None]:
    """Return a timed call; it adds little, because it may run in a timed loop."""
    now = perf_counter

    def call_and_record() -> None:
        start = now()
        call()
        record(now() - start)

    return call_and_record


CALLS = ("start", "progress", "wait", "release")


@contextmanager
def time_calls(
    exchange: Exchange, names: Sequence[str] = CALLS, into: list[float] | None = None
) -> Iterator[list[float]]:
    """Yield the seconds of each named call of the exchange within the block.

    They are appended to ``into`` if it is given.
    """
    seconds: list[float] = [] if into is None else into
    calls = {name: getattr(exchange, name) for name in names}
    for name, call in calls.items():
        setattr(exchange, name, _wrap_with_timer(call, seconds.append))
    try:
        yield seconds
    finally:
        for name, call in calls.items():
            setattr(exchange, name, call)


@contextmanager
def time_waits(exchanges: Iterable[Exchange], device: torch.device) -> Iterator[list[float] | None]:
    """Yield the seconds of each wait of these exchanges within the block.

    Yield None on a GPU: there the host's calls return before the pieces have come.
    """
    if is_gpu(device):
        yield None
        return
    seconds: list[float] = []
    with ExitStack() as stack:
        for exchange in exchanges:
            stack.enter_context(time_calls(exchange, ("wait",), seconds))
        yield seconds
