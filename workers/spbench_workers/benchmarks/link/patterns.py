"""Patterns in which all ranks send at once: rings in order and at random, two halves."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pattern:
    """The ranks that one rank sends to, and receives from, at once.

    Attributes:
        name: The pattern in words.
        to: The ranks that get a message of this rank; none where it rests.
        sources: The ranks that it gets one from, in the order of their messages.
    """

    name: str
    targets: tuple[int, ...]
    sources: tuple[int, ...]


def make_ring(order: Sequence[int], rank: int, name: str) -> Pattern:
    """Return a rank's part of a ring: it sends to both neighbours, and receives from both.

    Args:
        order: All ranks, in the order of the ring.
        rank: The rank.
        name: The ring in words.
    """
    at = order.index(rank)
    size = len(order)
    before = order[at - 1]
    after = order[(at + 1) % size]
    # The message that goes forward comes from behind.
    return Pattern(name, (after, before), (before, after))


def make_halves(order: Sequence[int], rank: int, name: str) -> Pattern:
    """Return a rank's part of a bisection: it exchanges with its partner in the other half.

    Of an odd number of ranks the last one rests.
    """
    half = len(order) // 2
    at = order.index(rank)
    if at >= 2 * half:
        return Pattern(name, (), ())
    partner = order[at + half] if at < half else order[at - half]
    return Pattern(name, (partner,), (partner,))


def draw_orders(size: int, count: int, seed: int) -> list[tuple[str, list[int]]]:
    """Return the ranks in order, and so many times shuffled, each with its name."""
    draw = random.Random(seed)
    named = [("in order", list(range(size)))]
    for number in range(count):
        shuffled = list(range(size))
        draw.shuffle(shuffled)
        named.append((f"random {number + 1}", shuffled))
    return named
