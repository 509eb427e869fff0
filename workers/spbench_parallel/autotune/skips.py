"""The skips that go straight past stages: as asked for, or those that cost less that way.

Tensors that are passed along are received, kept and sent by each stage between. Straight, they
take a message more. So they go straight where the bytes that the stages between are spared take
longer than a message without any, by the time of messages between the first two stages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from time import perf_counter

import torch
from mpi4py import MPI

from spbench_core.durations import time_text
from spbench_core.models.routes import Route, StageRoutes, stage_routes
from spbench_parallel.alternatives import time_alternatives
from spbench_parallel.p2p import P2P, Pending
from spbench_parallel.p2p.opening import open_p2p
from spbench_parallel.plan import ModelPlan
from spbench_parallel.progress import NO_PROGRESS, Progress

ALONG = "along"
STRAIGHT = "straight"
_SIZES = _SMALL, _LARGE = 1 << 10, 1 << 20
_ROUNDS = 8
_TAGS = (0, 1)


@dataclass(frozen=True, slots=True)
class ChosenSkips:
    """The skips that go straight, and why.

    Attributes:
        straight: Their stages, source and target.
        words: What is chosen.
        reason: Why.
    """

    straight: frozenset[tuple[int, int]]
    words: str
    reason: str


def chosen_skips(
    comm: MPI.Intracomm,
    plan: ModelPlan,
    asked: str | None = None,
    progress: Progress = NO_PROGRESS,
) -> ChosenSkips | None:
    """Return which skips go straight; None where there are none. All ranks must call it.

    Args:
        comm: The ranks of the layout.
        plan: The model over them, with its balance.
        asked: ``straight``, ``along``; else what costs less.
        progress: The progress over the timed rounds of messages.
    """
    routes = plan.routes()
    skips = [one for one in _all_straight(routes).skips if _can_go(plan, one)]
    if not skips:
        return None
    if asked == ALONG:
        return ChosenSkips(frozenset(), ALONG, "as asked for")
    ends = frozenset((one.source, one.target) for one in skips)
    if asked == STRAIGHT:
        return ChosenSkips(ends, STRAIGHT, "as asked for")
    message, byte = _message_times(comm, plan, progress)
    chosen = frozenset(
        (one.source, one.target)
        for one in skips
        if one.passed * _bytes(plan, routes, one) * byte >= message
    )
    reason = f"a message takes {time_text(message)}, and a MB {time_text(1e6 * byte)} more"
    return ChosenSkips(chosen, _words(chosen, ends), reason)


def _words(chosen: frozenset[tuple[int, int]], ends: frozenset[tuple[int, int]]) -> str:
    if chosen == ends:
        return STRAIGHT
    if not chosen:
        return ALONG
    told = ", ".join(f"{source} to {target}" for source, target in sorted(chosen))
    return f"{STRAIGHT} from stage {told}, the others {ALONG}"


def _all_straight(routes: StageRoutes) -> StageRoutes:
    return stage_routes(routes.table, routes.stages, None)


def _can_go(plan: ModelPlan, route: Route) -> bool:
    """Return whether a route's messages can be carried: only MPI has any from a rank to itself."""
    layout = plan.layout
    shared = set(layout.ranks_of(route.source)) & set(layout.ranks_of(route.target))
    return plan.backend == "mpi" or not shared


def _bytes(plan: ModelPlan, routes: StageRoutes, route: Route) -> float:
    """Return the bytes of a route's tensors, of the largest micro-batch, from one rank."""
    images = max(batch.size for batch in plan.batches)
    values = sum(prod(data.shape) for data in routes.table.flow(route.tensors))
    return images * values * plan.dtype.itemsize / plan.layout.stages[route.source].ranks


def _message_times(comm: MPI.Intracomm, plan: ModelPlan, progress: Progress) -> tuple[float, float]:
    """Return the seconds of a message, and those of each byte, between the first two stages."""
    own = comm.Dup()
    p2p = open_p2p(plan.backend, own, plan.device, _TAGS)
    pair = plan.layout.ranks_of(0)[0], plan.layout.ranks_of(1)[0]
    times = [0.0, 0.0]
    if comm.rank in pair:
        other = pair[1 - pair.index(comm.rank)]
        progress.begin(_ROUNDS + 1)
        first = comm.rank == pair[0]
        sizes = {size: partial(_round, p2p, plan, other, size, first=first) for size in _SIZES}
        trips = time_alternatives(sizes, rounds=_ROUNDS, progress=progress)
        times = [trips[size] / 2 for size in _SIZES]
    small, large = comm.bcast(times, root=pair[0])
    p2p.free()
    own.Free()
    return small, max(large - small, 0.0) / (_LARGE - _SMALL)


def _round(p2p: P2P, plan: ModelPlan, other: int, size: int, *, first: bool) -> float:
    """Return the seconds in which a message goes to another rank, and one comes back."""
    place = plan.device if p2p.on_device else torch.device("cpu")
    sent, received = (torch.zeros(size, dtype=torch.uint8, device=place) for _ in range(2))
    there, back = _TAGS if first else reversed(_TAGS)
    began = perf_counter()
    coming = p2p.receive([(received, other)], back)
    if not first:
        _wait(coming)
    going = p2p.send([(sent, other)], there)
    if first:
        _wait(coming)
    _wait(going)
    if place.type == "cuda":
        torch.cuda.synchronize(place)
    return perf_counter() - began


def _wait(pending: Sequence[Pending]) -> None:
    for one in pending:
        one.wait()
