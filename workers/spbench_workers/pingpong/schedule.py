"""Order in which pairs of ranks are measured.

It is separate from `pair` because it needs no MPI.
"""

from __future__ import annotations

from typing import Literal

MAX_SERIAL = 28
"""The largest number of pairs that are measured one by one, while the other ranks rest.

It is the number of all pairs of eight ranks.
"""

Pairing = Literal["all", "neighbours"]


def pair_rounds(
    size: int, pairs: Pairing, at_once: int | None = None
) -> list[list[tuple[int, int]]]:
    """Return rounds of pairs ``(lower, higher)``; in a round no rank is in two pairs.

    Few pairs are measured one after another, since concurrent pairs disturb each other. More than
    `MAX_SERIAL` are measured in concurrent rounds, to end in reasonable time.

    Args:
        size: The number of ranks.
        pairs: The pairs.
        at_once: The largest number of pairs in a round, instead of that rule.
    """
    concurrent_rounds = (
        _pair_neighbours(size) if pairs == "neighbours" else _pair_by_circle_method(size)
    )
    if at_once is None:
        at_once = size if sum(map(len, concurrent_rounds)) > MAX_SERIAL else 1
    if at_once == 1:
        return [
            [pair]
            for pair in sorted(pair for round_pairs in concurrent_rounds for pair in round_pairs)
        ]
    return [
        round_pairs[first : first + at_once]
        for round_pairs in concurrent_rounds
        for first in range(0, len(round_pairs), at_once)
    ]


def _pair_neighbours(size: int) -> list[list[tuple[int, int]]]:
    """Return two rounds: pairs with an even lower rank, then pairs with an odd one."""
    halves = ([(rank, rank + 1) for rank in range(first, size - 1, 2)] for first in (0, 1))
    return [half for half in halves if half]


def _pair_by_circle_method(size: int) -> list[list[tuple[int, int]]]:
    """Return rounds of all pairs by the circle method of round-robin tournaments."""
    seats: list[int] = list(range(size + size % 2))
    half = len(seats) // 2
    all_rounds = []
    for _ in range(len(seats) - 1):
        opposite = zip(seats[:half], reversed(seats[half:]), strict=True)
        round_pairs = [(min(pair), max(pair)) for pair in opposite]
        all_rounds.append(sorted(pair for pair in round_pairs if pair[1] < size))
        seats.insert(1, seats.pop())
    return all_rounds
