"""Critical path of an allreduce in closed form: messages, bytes and reductions.

A rank sends one message and receives one message at a time, both at once. A round takes as long as
its busiest rank, and rounds follow each other. These are the terms of Thakur, Rabenseifner and
Gropp (IJHPCA 2005) for chunks of equal size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from spbench_workers.collectives.algorithms.rings import compute_chunk_count
from spbench_workers.collectives.algorithms.trees import group_size
from spbench_workers.collectives.base import MUJI_SIZES
from spbench_workers.collectives.plan import explain_unsupported


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """The critical path of an allreduce of ``M`` bytes.

    Attributes:
        messages: Messages, at a cost of alpha each.
        bytes_factor: Sent bytes over ``M``, at a cost of beta each.
        reduced_factor: Reduced bytes over ``M``, at a cost of gamma each.
    """

    messages: int
    bytes_factor: float
    reduced_factor: float


def compute_path(
    algorithm: str,
    ranks: int,
    count: int,
    group: int | None = None,
    chunks: int | None = None,
) -> CriticalPath:
    """Return the critical path of an allreduce of ``count`` elements.

    Raises:
        ValueError: The algorithm cannot run on this number of ranks.
    """
    reason = explain_unsupported(algorithm, ranks)
    if reason:
        raise ValueError(reason)
    if ranks == 1:
        return CriticalPath(0, 0.0, 0.0)
    if algorithm == "two_level":
        return _two_level(ranks, group_size(ranks, group))
    if algorithm == "chain":
        return _chain(ranks, compute_chunk_count(ranks, count, chunks))
    return _PATHS[algorithm](ranks)


def _ring(ranks: int) -> CriticalPath:
    share = (ranks - 1) / ranks
    return CriticalPath(2 * (ranks - 1), 2 * share, share)


def _bidirectional_ring(ranks: int) -> CriticalPath:
    """Return the path with two successive messages per round; two ranks form a ring."""
    plain = _ring(ranks)
    return (
        plain
        if ranks == 2
        else CriticalPath(2 * plain.messages, plain.bytes_factor, plain.reduced_factor)
    )


def _recursive_doubling(ranks: int) -> CriticalPath:
    depth = ranks.bit_length() - 1
    return _add_fold(ranks, CriticalPath(depth, depth, depth))


def _rabenseifner(ranks: int) -> CriticalPath:
    depth = ranks.bit_length() - 1
    moved_share = 1 - 0.5**depth
    return _add_fold(ranks, CriticalPath(2 * depth, 2 * moved_share, moved_share))


def _add_fold(ranks: int, path: CriticalPath) -> CriticalPath:
    """Return the path with a fold around it if ``ranks`` is not a power of two."""
    if ranks & (ranks - 1) == 0:
        return path
    return CriticalPath(path.messages + 2, path.bytes_factor + 2, path.reduced_factor + 1)


def _binomial(ranks: int) -> CriticalPath:
    depth = (ranks - 1).bit_length()
    return CriticalPath(2 * depth, 2 * depth, depth)


def _flat(ranks: int) -> CriticalPath:
    return CriticalPath(2 * (ranks - 1), 2 * (ranks - 1), ranks - 1)


def _muji(ranks: int) -> CriticalPath:
    return _binomial(ranks) if ranks in MUJI_SIZES else _flat(ranks)


def _two_level(ranks: int, group: int) -> CriticalPath:
    group_path = _binomial(group)
    groups = -(-ranks // group)
    leader_path = _ring(groups)
    return CriticalPath(
        group_path.messages + leader_path.messages,
        group_path.bytes_factor + leader_path.bytes_factor,
        group_path.reduced_factor + leader_path.reduced_factor,
    )


def _chain(ranks: int, chunks: int) -> CriticalPath:
    """Return the path of ``2(n-1) + c-1`` rounds.

    In rounds in which both directions overlap, ranks send two messages.
    """
    extra_messages = chunks - 1 if ranks > 2 and chunks > 2 else 0
    messages = 2 * (ranks - 1) + chunks - 1 + extra_messages
    return CriticalPath(messages, messages / chunks, (ranks - 2 + chunks) / chunks)


_PATHS: dict[str, Callable[[int], CriticalPath]] = {
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
}
