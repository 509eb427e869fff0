"""Skip connections of a profile: outputs that go past states which do not read them.

A stage between that makes and reads none of such an output need not have it: it is passed along
from stage to stage, or goes straight to the next stage that reads it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

from spbench.planner.profile.graph import LayerGraph, iterate_bits
from spbench.planner.profile.layers import Profile


class SkipConnection(NamedTuple):
    """An output with the states that make and read it, some of which are not neighbours.

    Attributes:
        holders: The states, rising: the one that makes it, and those that read it.
        size: Its bytes.
    """

    holders: tuple[int, ...]
    size: float


@dataclass(frozen=True, slots=True)
class Skips:
    """The skip connections of a profile's states.

    Attributes:
        connections: They themselves.
        passing_bytes: By a stage's first state and the state after its last one, the bytes that
            cross both its cuts and that it neither makes nor reads.
    """

    connections: tuple[SkipConnection, ...] = ()
    passing_bytes: tuple[tuple[float, ...], ...] = ()

    def bytes_past(self, start: int, end: int) -> float:
        """Return the bytes that go past a stage from state ``start`` up to ``end``, left out."""
        return self.passing_bytes[start][end] if self.connections else 0.0

    def straight_routes(self, ends: Sequence[int]) -> dict[tuple[int, int], float]:
        """Return the bytes that can go straight past stages, by their stages, source and target.

        Args:
            ends: The state after the last one of each stage.
        """
        found: dict[tuple[int, int], float] = {}
        for connection in self.connections:
            stages = dict.fromkeys(bisect_right(ends, state) for state in connection.holders)
            for way in pairwise(stages):
                if way[1] - way[0] > 1:
                    found[way] = found.get(way, 0.0) + connection.size
        return found


NO_SKIPS = Skips()


def find_skips(profile: Profile, graph: LayerGraph, downsets: Sequence[int]) -> Skips:
    """Return the skip connections between states, each of which has the layers of its downset."""
    state_of = {
        layer: at
        for at, (before, after) in enumerate(pairwise((0, *downsets)))
        for layer in iterate_bits(after & ~before)
    }
    found = []
    for layer, state in state_of.items():
        readers = {state_of[reader] for reader in iterate_bits(graph.successor_masks[layer])}
        holders = tuple(sorted({state, *readers}))
        size = profile.layers[layer].activation_bytes
        if size and any(after - before > 1 for before, after in pairwise(holders)):
            found.append(SkipConnection(holders, size))
    return Skips(tuple(found), _passing(found, len(downsets))) if found else NO_SKIPS


def _passing(found: Sequence[SkipConnection], count: int) -> tuple[tuple[float, ...], ...]:
    """Return the bytes that go past each stage.

    Between two holders ``a`` and ``b`` all stages are passed that begin after ``a`` and end before
    ``b``: a rectangle of first and last states, whose corners are added up over both.
    """
    corners = [[0.0] * (count + 2) for _ in range(count + 1)]
    for connection in found:
        for before, after in pairwise(connection.holders):
            if after - before > 1:
                for start, sign in ((before + 1, 1.0), (after, -1.0)):
                    corners[start][0] += sign * connection.size
                    corners[start][after + 1] -= sign * connection.size
    rows = [[0.0] * (count + 2)]
    for row in corners:
        rows.append([one + two for one, two in zip(rows[-1], row, strict=True)])
    return tuple(tuple(accumulate(row))[: count + 1] for row in rows[1:])
