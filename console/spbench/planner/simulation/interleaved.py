"""The schedule ``interleaved``: each group of devices has a stage in each of several rounds.

Of ``S`` groups and ``rounds`` times ``S`` stages, group ``p`` has the stages ``p``, ``p + S`` and
so on, and each micro-batch goes round all groups several times. Stages are shorter, so groups wait
less at both ends of a step, for more messages and more micro-batches in flight.

Source: Narayanan et al., "Efficient large-scale language model training on GPU clusters using
Megatron-LM", SC21, section 2.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple


class Turn(NamedTuple):
    """A pass of a group of devices."""

    forward: bool
    stage: int
    micro_batch: int


def divides(groups: int, micro_batches: int) -> bool:
    """Return whether a step has micro-batches for every group in turn."""
    return micro_batches % groups == 0


@lru_cache(maxsize=64)
def turns(group: int, groups: int, rounds: int, micro_batches: int) -> tuple[Turn, ...]:
    """Return what a group runs in a step, from first to last.

    As many micro-batches as there are groups go through one round, and then through the next.
    Before its first backward pass a group runs as many forward passes as others still have to
    run until then; after that a forward and a backward pass in turn.

    Args:
        group: Which one.
        groups: How many there are.
        rounds: Stages of each.
        micro_batches: A multiple of ``groups``.
    """
    every = rounds * micro_batches
    ahead = min(2 * (groups - 1 - group) + (rounds - 1) * groups, every)
    forward = list(_passes(True, group, groups, range(rounds), micro_batches))
    backward = list(_passes(False, group, groups, range(rounds - 1, -1, -1), micro_batches))
    steady = zip(forward[ahead:], backward, strict=False)
    alternating = [turn for both in steady for turn in both]
    return (*forward[:ahead], *alternating, *backward[every - ahead :])


def _passes(
    forward: bool, group: int, groups: int, rounds: Sequence[int], micro_batches: int
) -> Iterator[Turn]:
    for first in range(0, micro_batches, groups):
        for each in rounds:
            for micro_batch in range(first, first + groups):
                yield Turn(forward, each * groups + group, micro_batch)


@lru_cache(maxsize=4096)
def flights(
    group: int, groups: int, rounds: int, micro_batches: int
) -> tuple[tuple[int, ...], ...]:
    """Return what a group keeps at once: micro-batches in flight, by round.

    Of all combinations that a step comes to, those that no other exceeds in every round.
    """
    held = [0] * rounds
    seen = set()
    for turn in turns(group, groups, rounds, micro_batches):
        held[turn.stage // groups] += 1 if turn.forward else -1
        if turn.forward:
            seen.add(tuple(held))
    return tuple(each for each in sorted(seen) if not any(_exceeds(other, each) for other in seen))


def _exceeds(one: Sequence[int], other: Sequence[int]) -> bool:
    return one != other and all(a >= b for a, b in zip(one, other, strict=True))
