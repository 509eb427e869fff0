"""The critical path of an allreduce in closed form: messages, bytes and reductions in sequence.

A rank sends one message at a time and receives one at a time, both at once. A round takes as long
as its busiest rank, and rounds follow each other. These are the terms of Thakur, Rabenseifner and
Gropp (IJHPCA 2005), for chunks of equal size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from spbench_workers.collectives.algorithms.chain import chunk_count
from spbench_workers.collectives.algorithms.two_level import group_size
from spbench_workers.collectives.names import MUJI_SIZES
from spbench_workers.collectives.plan import refusal


@dataclass(frozen=True, slots=True)
class Path:
    """The critical path of an allreduce of ``M`` bytes.

    Attributes:
        messages: Messages, each of which costs alpha.
        sent: Sent bytes, each of which costs beta, as a multiple of ``M``.
        added: Reduced bytes, each of which costs gamma, as a multiple of ``M``.
    """

    messages: int
    sent: float
    added: float


def path_of(
    algorithm: str,
    ranks: int,
    count: int,
    group: int | None = None,
    chunks: int | None = None,
) -> Path:
    """Return the critical path of an allreduce of ``count`` elements.

    Raises:
        ValueError: The algorithm cannot run on so many ranks.
    """
    reason = refusal(algorithm, ranks)
    if reason:
        raise ValueError(reason)
    if ranks == 1:
        return Path(0, 0.0, 0.0)
    if algorithm == "two_level":
        return _two_level(ranks, group_size(ranks, group))
    if algorithm == "chain":
        return _chain(ranks, chunk_count(ranks, count, chunks))
    return _PATHS[algorithm](ranks)


def _ring(ranks: int) -> Path:
    share = (ranks - 1) / ranks
    return Path(2 * (ranks - 1), 2 * share, share)


def _bidirectional_ring(ranks: int) -> Path:
    """Return the path: two messages a round leave a rank in sequence; two ranks have a ring."""
    plain = _ring(ranks)
    return plain if ranks == 2 else Path(2 * plain.messages, plain.sent, plain.added)


def _recursive_doubling(ranks: int) -> Path:
    depth = ranks.bit_length() - 1
    return _folded(ranks, Path(depth, depth, depth))


def _rabenseifner(ranks: int) -> Path:
    depth = ranks.bit_length() - 1
    share = 1 - 0.5**depth
    return _folded(ranks, Path(2 * depth, 2 * share, share))


def _folded(ranks: int, path: Path) -> Path:
    """Return a path with the fold around it, where ``ranks`` is no power of two."""
    if ranks & (ranks - 1) == 0:
        return path
    return Path(path.messages + 2, path.sent + 2, path.added + 1)


def _binomial(ranks: int) -> Path:
    depth = (ranks - 1).bit_length()
    return Path(2 * depth, 2 * depth, depth)


def _flat(ranks: int) -> Path:
    return Path(2 * (ranks - 1), 2 * (ranks - 1), ranks - 1)


def _muji(ranks: int) -> Path:
    return _binomial(ranks) if ranks in MUJI_SIZES else _flat(ranks)


def _two_level(ranks: int, group: int) -> Path:
    inside = _binomial(group)
    groups = -(-ranks // group)
    across = _ring(groups)
    return Path(
        inside.messages + across.messages, inside.sent + across.sent, inside.added + across.added
    )


def _chain(ranks: int, chunks: int) -> Path:
    """Return the path of ``2(n-1) + c-1`` rounds; where both ways meet, ranks send two a round."""
    double = chunks - 1 if ranks > 2 and chunks > 2 else 0
    messages = 2 * (ranks - 1) + chunks - 1 + double
    return Path(messages, messages / chunks, (ranks - 2 + chunks) / chunks)


_PATHS: dict[str, Callable[[int], Path]] = {
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
