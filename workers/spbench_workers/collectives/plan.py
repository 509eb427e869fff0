"""The allreduce algorithms by name, and the schedule of a rank in each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from spbench_workers.collectives.algorithms.doubling import rabenseifner, recursive_doubling
from spbench_workers.collectives.algorithms.position import AlgorithmRank
from spbench_workers.collectives.algorithms.rings import bidirectional_ring, chain, ring
from spbench_workers.collectives.algorithms.trees import (
    binomial,
    flat,
    muji,
    muji_2,
    muji_4,
    muji_8,
    muji_fallback,
    two_level,
)
from spbench_workers.collectives.base import FIXED_SIZES
from spbench_workers.collectives.schedule import Schedule, ScheduleStep

ALGORITHMS: dict[str, Callable[[AlgorithmRank], Schedule]] = {
    "ring": ring,
    "bidirectional_ring": bidirectional_ring,
    "recursive_doubling": recursive_doubling,
    "rabenseifner": rabenseifner,
    "binomial": binomial,
    "muji": muji,
    "muji_2": muji_2,
    "muji_4": muji_4,
    "muji_8": muji_8,
    "muji_fallback": muji_fallback,
    "flat": flat,
    "two_level": two_level,
    "chain": chain,
}
"""Functions that return the schedule of one rank, by the algorithm's name."""


def build_schedule(
    algorithm: str,
    ranks: int,
    rank: int,
    count: int,
    *,
    order: Sequence[int] | None = None,
    group: int | None = None,
    chunks: int | None = None,
) -> Schedule:
    """Return the schedule of one rank.

    All ranks must call it with equal arguments except ``rank``. Transfers without elements are left
    out, on both sides alike.

    Args:
        algorithm: One of `ALGORITHMS`.
        ranks: Ranks that reduce together, at least 1.
        rank: This rank, from 0.
        count: Elements of the result, from 0.
        order: The ranks by position in the algorithm: ``order[p]`` is at position ``p`` (default:
            0, 1, 2, ...).
        group: Ranks per group of ``two_level``; ignored by others.
        chunks: Chunks of ``chain``; ignored by others.

    Raises:
        ValueError: The algorithm cannot run on this number of ranks, or an argument is out of
            range.
    """
    reason = explain_unsupported(algorithm, ranks) or _explain_out_of_range(
        ranks, rank, count, group, chunks
    )
    if reason:
        raise ValueError(reason)
    members = _list_members(ranks, order)
    position = AlgorithmRank(members, members.index(rank), count, group, chunks)
    steps = [_drop_empty(step) for step in ALGORITHMS[algorithm](position)]
    return [step for step in steps if step.sends or step.receives]


def explain_unsupported(algorithm: str, ranks: int) -> str:
    """Return a message why an algorithm cannot run on a number of ranks.

    It is empty if it can.
    """
    if algorithm not in ALGORITHMS:
        return f"{algorithm!r} is no algorithm; there are {', '.join(ALGORITHMS)}"
    size = FIXED_SIZES.get(algorithm, ranks)
    if size != ranks:
        return f"{algorithm} is drawn for {size} ranks, not {ranks}; binomial is its tree for any"
    return ""


def _explain_out_of_range(
    ranks: int, rank: int, count: int, group: int | None, chunks: int | None
) -> str:
    if not 0 <= rank < ranks:
        return f"rank {rank} is not one of {ranks} ranks"
    if count < 0:
        return f"count is {count}; it must be at least 0"
    for name, value in (("group", group), ("chunks", chunks)):
        if value is not None and value < 1:
            return f"{name} is {value}; it must be at least 1"
    return ""


def _list_members(ranks: int, order: Sequence[int] | None) -> list[int]:
    members = list(range(ranks)) if order is None else list(order)
    if sorted(members) != list(range(ranks)):
        raise ValueError(f"order {members} is no permutation of the ranks 0 to {ranks - 1}")
    return members


def _drop_empty(step: ScheduleStep) -> ScheduleStep:
    sends = tuple(transfer for transfer in step.sends if transfer.count)
    receives = tuple(transfer for transfer in step.receives if transfer.count)
    return replace(step, sends=sends, receives=receives)
