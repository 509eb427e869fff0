"""Costs of each algorithm in closed form, written apart from the schedules.

With ``n`` ranks, ``L = floor(log2 n)``, ``p = 2^L``, ``C = ceil(log2 n)`` and ``M`` elements
(Thakur, Rabenseifner and Gropp, IJHPCA 2005; Patarasuk and Yuan 2009 for the ring). Chunks have
whole elements, from ``floor(M i / parts)`` on, and messages of no elements are not sent: the
values here are exact for every count, and are the printed formulas where the chunks are equal.

Messages and elements are the busiest sender's. The beta term of a model counts the path instead:
a fold adds ``2M`` to the path, but each of its two ranks sends only ``M``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from spbench_workers.collectives.algorithms.chain import chunk_count
from spbench_workers.collectives.algorithms.two_level import group_size
from spbench_workers.collectives.names import MUJI_SIZES
from spbench_workers.collectives.schedule import ScheduleCosts


@dataclass(frozen=True, slots=True)
class _Run:
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
    """Return the costs of an algorithm on any number of ranks that it can run on.

    Args:
        algorithm: One of `spbench_workers.collectives.plan.ALGORITHMS`.
        ranks: Ranks that reduce together.
        count: Elements of the result.
        group: Ranks of a group of ``two_level``.
        chunks: Chunks of ``chain``.
    """
    if ranks == 1 or count == 0:
        return ScheduleCosts(0, 0, 0, 0)
    return _FORMULAS[algorithm](_Run(ranks, count, group, chunks))


def _ring(run: _Run) -> ScheduleCosts:
    """``2(n-1)`` rounds and messages, ``2(n-1)/n M`` elements, ``(n-1)/n M`` added.

    The busiest sends all but the two smallest chunks in a row, which hold ``floor(2M/n)``.
    """
    elements = 2 * run.count - 2 * run.count // run.ranks
    rounds = 2 * (run.ranks - 1)
    added = run.count - run.count // run.ranks
    return ScheduleCosts(rounds, min(rounds, elements), elements, added)


def _bidirectional_ring(run: _Run) -> ScheduleCosts:
    """As the ring, with two messages a round; with two ranks it is the ring."""
    plain = _ring(run)
    ranks = run.ranks
    if ranks == 2:
        return plain
    # Of the halves of chunks, a rank adds all but one that goes up and one that goes down.
    pairs = ((2 * chunk, 2 * chunk + 7) for chunk in range(ranks))
    kept = min(run.chunk(up, 2 * ranks) + run.chunk(down, 2 * ranks) for up, down in pairs)
    messages = min(2 * plain.rounds, plain.elements)
    return ScheduleCosts(plain.rounds, messages, plain.elements, run.count - kept)


def _recursive_doubling(run: _Run) -> ScheduleCosts:
    """``L`` rounds of ``M``; a fold adds two rounds, one message of ``M`` and ``M`` added."""
    depth = _floor_log2(run.ranks)
    fold = _fold(run.ranks)
    busy = depth + fold
    return ScheduleCosts(depth + 2 * fold, busy, busy * run.count, busy * run.count)


def _rabenseifner(run: _Run) -> ScheduleCosts:
    """``2L`` rounds, ``2(p-1)/p M`` elements, ``(p-1)/p M`` added; a fold as in doubling.

    A rank's windows are ``p/2``, ..., 2, 1 of ``p`` chunks: it sends the other half of each
    window's parent, adds into each window, and sends each window back.
    """
    depth = _floor_log2(run.ranks)
    parts = 1 << depth
    spare = run.ranks - (1 << depth)
    costs = []
    for index in range(parts):
        mine = [run.chunk(index >> level, parts >> level) for level in range(depth)]
        other = [run.chunk((index >> level) ^ 1, parts >> level) for level in range(depth)]
        folded = [run.count] if index < spare else []
        costs.append(([size for size in [*mine, *other, *folded] if size], sum([*mine, *folded])))
    return ScheduleCosts(
        rounds=2 * depth + 2 * _fold(run.ranks),
        messages=max(len(sent) for sent, _ in costs),
        elements=max(sum(sent) for sent, _ in costs),
        added=max(added for _, added in costs),
    )


def _binomial(run: _Run) -> ScheduleCosts:
    """``2C`` rounds; the root sends ``C`` messages of ``M`` and adds as many."""
    depth = _ceil_log2(run.ranks)
    return ScheduleCosts(2 * depth, depth, depth * run.count, depth * run.count)


def _flat(run: _Run) -> ScheduleCosts:
    """``2(n-1)`` rounds; the root sends ``n-1`` messages of ``M`` and adds as many."""
    others = run.ranks - 1
    return ScheduleCosts(2 * others, others, others * run.count, others * run.count)


def _muji(run: _Run) -> ScheduleCosts:
    """The tree for 2, 4 and 8 ranks, and all to the root and back for others."""
    return _binomial(run) if run.ranks in MUJI_SIZES else _flat(run)


def _two_level(run: _Run) -> ScheduleCosts:
    """With ``G`` groups of ``q``: ``2 ceil(log2 q) + 2(G-1)`` rounds.

    A leader sends ``ceil(log2 q) M + 2(G-1)/G M`` and adds ``(ceil(log2 q) + (G-1)/G) M``. The
    last group may be smaller, and its leader then has a shorter tree.
    """
    group = group_size(run.ranks, run.group)
    groups = -(-run.ranks // group)
    last = (run.ranks - 1) % group + 1
    depths = [_ceil_log2(group)] * (groups - 1) + [_ceil_log2(last)]
    messages = []
    elements = []
    added = []
    for leader, depth in enumerate(depths):
        chunks = [run.chunk(leader + further, groups) for further in range(groups)]
        # While it reduces a leader sends all chunks but the next one's, then all but that after.
        left_out = (1, 2 % groups) if groups > 1 else ()
        ring = [size for out in left_out for at, size in enumerate(chunks) if at != out]
        messages.append(depth + sum(size > 0 for size in ring))
        elements.append(depth * run.count + sum(ring))
        added.append(depth * run.count + sum(chunks[1:]))
    rounds = 2 * _ceil_log2(group) + 2 * (groups - 1)
    return ScheduleCosts(rounds, max(messages), max(elements), max(added))


def _chain(run: _Run) -> ScheduleCosts:
    """With ``c`` chunks: ``2(n-1) + c-1`` rounds; inner ranks send ``c`` messages each way."""
    chunks = chunk_count(run.ranks, run.count, run.chunks)
    ways = 1 if run.ranks == 2 else 2
    rounds = 2 * (run.ranks - 1) + chunks - 1
    return ScheduleCosts(rounds, ways * chunks, ways * run.count, run.count)


def _floor_log2(ranks: int) -> int:
    return ranks.bit_length() - 1


def _ceil_log2(ranks: int) -> int:
    return (ranks - 1).bit_length()


def _fold(ranks: int) -> int:
    """1 where the number of ranks is no power of two, else 0."""
    return int(_floor_log2(ranks) != _ceil_log2(ranks))


_FORMULAS: dict[str, Callable[[_Run], ScheduleCosts]] = {
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
