"""Costs of each algorithm in closed form, independent of the schedules.

With ``n`` ranks, ``L = floor(log2 n)``, ``p = 2^L``, ``C = ceil(log2 n)`` and ``M`` elements
(Thakur, Rabenseifner and Gropp, IJHPCA 2005; Patarasuk and Yuan 2009 for the ring). Chunks have
whole elements, from ``floor(M i / parts)`` on, and empty messages are not sent. The values here are
exact for every count, and equal the published formulas if the chunks are equal.

Messages and elements are those of the busiest sender. The beta term of a model counts the path
instead: a fold adds ``2M`` to the path, but each of its two ranks sends only ``M``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from spbench_workers.collectives.algorithms.rings import compute_chunk_count
from spbench_workers.collectives.algorithms.trees import group_size
from spbench_workers.collectives.base import MUJI_SIZES
from spbench_workers.collectives.schedule import ScheduleCosts


@dataclass(frozen=True, slots=True)
class _Allreduce:
    ranks: int
    count: int
    group: int | None
    chunks: int | None

    def chunk(self, index: int, parts: int) -> int:
        """Return the elements of a chunk; indices wrap around."""
        index %= parts
        return (index + 1) * self.count // parts - index * self.count // parts


def compute_costs(
    algorithm: str,
    ranks: int,
    count: int,
    *,
    group: int | None = None,
    chunks: int | None = None,
) -> ScheduleCosts:
    """Return the costs of an algorithm on a number of ranks that it supports.

    Args:
        algorithm: One of `spbench_workers.collectives.plan.ALGORITHMS`.
        ranks: Ranks that reduce together.
        count: Elements of the result.
        group: Ranks of a group of ``two_level``.
        chunks: Chunks of ``chain``.
    """
    if ranks == 1 or count == 0:
        return ScheduleCosts(0, 0, 0, 0)
    return _FORMULAS[algorithm](_Allreduce(ranks, count, group, chunks))


def _ring(case: _Allreduce) -> ScheduleCosts:
    """``2(n-1)`` rounds and messages, ``2(n-1)/n M`` elements, ``(n-1)/n M`` added.

    The busiest rank sends all but two adjacent chunks, the smallest pair with ``floor(2M/n)``.
    """
    elements = 2 * case.count - 2 * case.count // case.ranks
    rounds = 2 * (case.ranks - 1)
    added = case.count - case.count // case.ranks
    return ScheduleCosts(rounds, min(rounds, elements), elements, added)


def _bidirectional_ring(case: _Allreduce) -> ScheduleCosts:
    """Like the ring, with two messages per round; two ranks form a ring."""
    plain = _ring(case)
    ranks = case.ranks
    if ranks == 2:
        return plain
    # A rank adds all halves of chunks except one that moves up and one that moves down.
    pairs = ((2 * chunk, 2 * chunk + 7) for chunk in range(ranks))
    smallest_pair = min(
        case.chunk(up, 2 * ranks) + case.chunk(down, 2 * ranks) for up, down in pairs
    )
    messages = min(2 * plain.rounds, plain.elements)
    return ScheduleCosts(plain.rounds, messages, plain.elements, case.count - smallest_pair)


def _recursive_doubling(case: _Allreduce) -> ScheduleCosts:
    """``L`` rounds of ``M``; a fold adds two rounds, one message and ``M`` additions."""
    depth = _floor_log2(case.ranks)
    fold = _count_folds(case.ranks)
    active_rounds = depth + fold
    return ScheduleCosts(
        depth + 2 * fold, active_rounds, active_rounds * case.count, active_rounds * case.count
    )


def _rabenseifner(case: _Allreduce) -> ScheduleCosts:
    """``2L`` rounds, ``2(p-1)/p M`` elements, ``(p-1)/p M`` added.

    A fold is like that of recursive doubling. A rank's windows are ``p/2``, ..., 2, 1 of ``p``
    chunks. It sends the other half of each window's parent, adds into each window, and sends each
    window back.
    """
    depth = _floor_log2(case.ranks)
    parts = 1 << depth
    extra_ranks = case.ranks - (1 << depth)
    messages_and_added = []
    for index in range(parts):
        kept_chunks = [case.chunk(index >> level, parts >> level) for level in range(depth)]
        other_chunks = [case.chunk((index >> level) ^ 1, parts >> level) for level in range(depth)]
        folded_chunks = [case.count] if index < extra_ranks else []
        messages_and_added.append(
            (
                [size for size in [*kept_chunks, *other_chunks, *folded_chunks] if size],
                sum([*kept_chunks, *folded_chunks]),
            )
        )
    return ScheduleCosts(
        rounds=2 * depth + 2 * _count_folds(case.ranks),
        messages=max(len(messages) for messages, _ in messages_and_added),
        elements=max(sum(messages) for messages, _ in messages_and_added),
        added=max(added for _, added in messages_and_added),
    )


def _binomial(case: _Allreduce) -> ScheduleCosts:
    """``2C`` rounds; the root sends ``C`` messages of ``M`` and adds as many."""
    depth = _ceil_log2(case.ranks)
    return ScheduleCosts(2 * depth, depth, depth * case.count, depth * case.count)


def _flat(case: _Allreduce) -> ScheduleCosts:
    """``2(n-1)`` rounds; the root sends ``n-1`` messages of ``M`` and adds as many."""
    others = case.ranks - 1
    return ScheduleCosts(2 * others, others, others * case.count, others * case.count)


def _muji(case: _Allreduce) -> ScheduleCosts:
    """The tree for 2, 4 and 8 ranks, and all to the root and back for others."""
    return _binomial(case) if case.ranks in MUJI_SIZES else _flat(case)


def _two_level(case: _Allreduce) -> ScheduleCosts:
    """With ``G`` groups of ``q``: ``2 ceil(log2 q) + 2(G-1)`` rounds.

    A leader sends ``ceil(log2 q) M + 2(G-1)/G M`` and adds ``(ceil(log2 q) + (G-1)/G) M``. The
    last group may be smaller, and its leader then has a shorter tree.
    """
    group = group_size(case.ranks, case.group)
    groups = -(-case.ranks // group)
    last_group = (case.ranks - 1) % group + 1
    depth_by_group = [_ceil_log2(group)] * (groups - 1) + [_ceil_log2(last_group)]
    messages = []
    elements = []
    added = []
    for leader, depth in enumerate(depth_by_group):
        chunks = [case.chunk(leader + further, groups) for further in range(groups)]
        # Reducing, a leader sends all chunks but the next one; gathering, all but the one after.
        skipped_chunks = (1, 2 % groups) if groups > 1 else ()
        ring_chunks = [
            size
            for skipped in skipped_chunks
            for index, size in enumerate(chunks)
            if index != skipped
        ]
        messages.append(depth + sum(size > 0 for size in ring_chunks))
        elements.append(depth * case.count + sum(ring_chunks))
        added.append(depth * case.count + sum(chunks[1:]))
    rounds = 2 * _ceil_log2(group) + 2 * (groups - 1)
    return ScheduleCosts(rounds, max(messages), max(elements), max(added))


def _chain(case: _Allreduce) -> ScheduleCosts:
    """``2(n-1) + c-1`` rounds with ``c`` chunks; inner ranks send ``c`` per direction."""
    chunks = compute_chunk_count(case.ranks, case.count, case.chunks)
    directions = 1 if case.ranks == 2 else 2
    rounds = 2 * (case.ranks - 1) + chunks - 1
    return ScheduleCosts(rounds, directions * chunks, directions * case.count, case.count)


def _floor_log2(ranks: int) -> int:
    return ranks.bit_length() - 1


def _ceil_log2(ranks: int) -> int:
    return (ranks - 1).bit_length()


def _count_folds(ranks: int) -> int:
    """Return 0 if the number of ranks is a power of two, and 1 otherwise."""
    return int(_floor_log2(ranks) != _ceil_log2(ranks))


_FORMULAS: dict[str, Callable[[_Allreduce], ScheduleCosts]] = {
    "ring": _ring,
    "bidirectional_ring": _bidirectional_ring,
    "recursive_doubling": _recursive_doubling,
    "rabenseifner": _rabenseifner,
    "binomial": _binomial,
    "muji": _muji,
    "muji_2": _binomial,
    "muji_4": _binomial,
    "muji_8": _binomial,
    "muji_fallback": _flat,
    "flat": _flat,
    "two_level": _two_level,
    "chain": _chain,
}
