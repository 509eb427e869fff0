"""Skips that bypass stages: as requested, or those that cost less that way.

Tensors that are passed along are received, kept and sent by each stage between. Straight tensors
take one more message. So a tensor goes straight if its bytes, times the stages between, take longer
than a message without data. Both times are measured between the first two stages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from time import perf_counter

import torch
from mpi4py import MPI

from spbench_core.models.routes import Route, StageRoutes, find_routes
from spbench_core.number_text import format_duration
from spbench_parallel.alternatives import time_alternatives
from spbench_parallel.p2p import P2P, Pending
from spbench_parallel.p2p.opening import open_p2p
from spbench_parallel.plan import ModelPlan
from spbench_parallel.progress import NO_PROGRESS, Progress

ALONG = "along"
STRAIGHT = "straight"
_SMALL_BYTES = 1 << 10
_LARGE_BYTES = 1 << 20
_MESSAGE_BYTES = (_SMALL_BYTES, _LARGE_BYTES)
"""Bytes of two messages: latency and time per byte are computed from their times."""
_ROUNDS = 8
_TAGS = (0, 1)


@dataclass(frozen=True, slots=True)
class SkipChoice:
    """The skips that go straight, and the reason.

    Attributes:
        straight: Their stages, source and target.
        label: The choice in words.
        reason: The reason in words.
    """

    straight: frozenset[tuple[int, int]]
    label: str
    reason: str


def choose_skips(
    comm: MPI.Intracomm,
    plan: ModelPlan,
    requested: str | None = None,
    progress: Progress = NO_PROGRESS,
) -> SkipChoice | None:
    """Choose the skips that go straight; None without skips. All ranks must call it.

    Args:
        comm: The ranks of the layout.
        plan: The model over them, with its balance.
        requested: ``straight`` or ``along``; otherwise the one that costs less is chosen.
        progress: The progress over the timed rounds of messages.
    """
    routes = plan.routes()
    all_straight = find_routes(routes.table, routes.stages, None)
    skips = [route for route in all_straight.skips if _can_go_straight(plan, route)]
    if not skips:
        return None
    if requested == ALONG:
        return SkipChoice(frozenset(), ALONG, "as asked for")
    all_stage_pairs = frozenset((route.source, route.target) for route in skips)
    if requested == STRAIGHT:
        return SkipChoice(all_stage_pairs, STRAIGHT, "as asked for")
    message_seconds, seconds_per_byte = _time_messages(comm, plan, progress)
    straight_pairs = frozenset(
        (route.source, route.target)
        for route in skips
        if route.stages_passed * _count_bytes(plan, routes, route) * seconds_per_byte
        >= message_seconds
    )
    reason = (
        f"a message takes {format_duration(message_seconds)}, and a MB "
        f"{format_duration(1e6 * seconds_per_byte)} more"
    )
    return SkipChoice(straight_pairs, _describe_choice(straight_pairs, all_stage_pairs), reason)


def _describe_choice(
    straight_pairs: frozenset[tuple[int, int]], all_stage_pairs: frozenset[tuple[int, int]]
) -> str:
    if straight_pairs == all_stage_pairs:
        return STRAIGHT
    if not straight_pairs:
        return ALONG
    pairs = ", ".join(f"{source} to {target}" for source, target in sorted(straight_pairs))
    return f"{STRAIGHT} from stage {pairs}, the others {ALONG}"


def _can_go_straight(plan: ModelPlan, route: Route) -> bool:
    """Return whether a route can be sent; only MPI sends from a rank to itself."""
    layout = plan.layout
    shared = set(layout.list_stage_ranks(route.source)) & set(layout.list_stage_ranks(route.target))
    return plan.backend == "mpi" or not shared


def _count_bytes(plan: ModelPlan, routes: StageRoutes, route: Route) -> float:
    """Return the bytes that one rank sends on a route for the largest micro-batch."""
    images = max(batch.size for batch in plan.batches)
    values = sum(prod(data.shape) for data in routes.table.select_flow(route.tensors))
    return images * values * plan.dtype.itemsize / plan.layout.stages[route.source].rank_count


def _time_messages(comm: MPI.Intracomm, plan: ModelPlan, progress: Progress) -> tuple[float, float]:
    """Return the seconds of a message, and per byte, between the first two stages."""
    pair_comm = comm.Dup()
    p2p = open_p2p(plan.backend, pair_comm, plan.device, _TAGS)
    pair = plan.layout.list_stage_ranks(0)[0], plan.layout.list_stage_ranks(1)[0]
    one_way_seconds = [0.0, 0.0]
    if comm.rank in pair:
        other_rank = pair[1 - pair.index(comm.rank)]
        progress.begin(_ROUNDS + 1)
        is_first = comm.rank == pair[0]
        round_trips = {
            message_bytes: partial(
                _time_round_trip, p2p, plan, other_rank, message_bytes, is_first=is_first
            )
            for message_bytes in _MESSAGE_BYTES
        }
        round_trip_seconds = time_alternatives(round_trips, rounds=_ROUNDS, progress=progress)
        one_way_seconds = [
            round_trip_seconds[message_bytes] / 2 for message_bytes in _MESSAGE_BYTES
        ]
    small_seconds, large_seconds = comm.bcast(one_way_seconds, root=pair[0])
    p2p.free()
    pair_comm.Free()
    return small_seconds, max(large_seconds - small_seconds, 0.0) / (_LARGE_BYTES - _SMALL_BYTES)


def _time_round_trip(
    p2p: P2P, plan: ModelPlan, other_rank: int, message_bytes: int, *, is_first: bool
) -> float:
    """Return the seconds of a round trip to another rank."""
    device = plan.device if p2p.on_device else torch.device("cpu")
    outgoing, incoming = (
        torch.zeros(message_bytes, dtype=torch.uint8, device=device) for _ in range(2)
    )
    send_tag, receive_tag = _TAGS if is_first else reversed(_TAGS)
    start_seconds = perf_counter()
    receives = p2p.receive([(incoming, other_rank)], receive_tag)
    if not is_first:
        _wait(receives)
    sends = p2p.send([(outgoing, other_rank)], send_tag)
    if is_first:
        _wait(receives)
    _wait(sends)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return perf_counter() - start_seconds


def _wait(operations: Sequence[Pending]) -> None:
    for operation in operations:
        operation.wait()
