"""Patterns in which all ranks send at once: rings and halves, in order or random."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pattern:
    """The ranks that one rank sends to and receives from at once.

    Attributes:
        name: The name of the pattern in messages.
        targets: The ranks that receive a message of this rank; none if it is idle.
        sources: The ranks that it receives from, in the order of their messages.
    """

    name: str
    targets: tuple[int, ...]
    sources: tuple[int, ...]


def make_ring(order: Sequence[int], rank: int, name: str) -> Pattern:
    """Return a rank's part of a ring, where it exchanges with both neighbours.

    Args:
        order: All ranks, in the order of the ring.
        rank: The rank.
        name: The name of the ring in messages.
    """
    position = order.index(rank)
    size = len(order)
    before = order[position - 1]
    after = order[(position + 1) % size]
    # The message sent to the next rank matches the one received from the previous rank.
    return Pattern(name, (after, before), (before, after))


def make_halves(order: Sequence[int], rank: int, name: str) -> Pattern:
    """Return a rank's part of a bisection, where it exchanges with the other half.

    With an odd number of ranks, the last one is idle.
    """
    half = len(order) // 2
    position = order.index(rank)
    if position >= 2 * half:
        return Pattern(name, (), ())
    partner = order[position + half] if position < half else order[position - half]
    return Pattern(name, (partner,), (partner,))


def draw_orders(size: int, count: int, seed: int) -> list[tuple[str, list[int]]]:
    """Return the ranks in order and ``count`` random orders, each with its name."""
    generator = random.Random(seed)
    orders = [("in order", list(range(size)))]
    for number in range(count):
        shuffled = list(range(size))
        generator.shuffle(shuffled)
        orders.append((f"random {number + 1}", shuffled))
    return orders
