"""Skip connections of a profile: outputs that pass states which do not read them.

A stage that neither makes nor reads such an output does not need it. The output is passed along
from stage to stage, or it goes straight to the next stage that reads it.
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
    """An output with the states that make and read it, not all neighbours.

    Attributes:
        holders: The state that makes it and those that read it, rising.
        size_bytes: Its bytes.
    """

    holders: tuple[int, ...]
    size_bytes: float


@dataclass(frozen=True, slots=True)
class Skips:
    """The skip connections between a profile's states.

    Attributes:
        connections: The skip connections.
        passing_bytes: By a stage's first state and the state after its last one, the bytes that
            cross both its cuts and that it neither makes nor reads.
    """

    connections: tuple[SkipConnection, ...] = ()
    passing_bytes: tuple[tuple[float, ...], ...] = ()

    def get_bytes_past(self, start: int, end: int) -> float:
        """Return the bytes that pass a stage from state `start` up to `end`, exclusive."""
        return self.passing_bytes[start][end] if self.connections else 0.0

    def find_straight_routes(self, ends: Sequence[int]) -> dict[tuple[int, int], float]:
        """Return the bytes that can go straight past stages, by source and target stage.

        Args:
            ends: The state after the last one of each stage.
        """
        bytes_by_route: dict[tuple[int, int], float] = {}
        for connection in self.connections:
            stages = dict.fromkeys(bisect_right(ends, state) for state in connection.holders)
            for route in pairwise(stages):
                if route[1] - route[0] > 1:
                    bytes_by_route[route] = bytes_by_route.get(route, 0.0) + connection.size_bytes
        return bytes_by_route


NO_SKIPS = Skips()


def find_skips(profile: Profile, graph: LayerGraph, downsets: Sequence[int]) -> Skips:
    """Return the skip connections between the states with these downsets."""
    state_by_layer = {
        layer: state
        for state, (before, after) in enumerate(pairwise((0, *downsets)))
        for layer in iterate_bits(after & ~before)
    }
    connections = []
    for layer, state in state_by_layer.items():
        readers = {state_by_layer[reader] for reader in iterate_bits(graph.successor_masks[layer])}
        holders = tuple(sorted({state, *readers}))
        size_bytes = profile.layers[layer].activation_bytes
        if size_bytes and any(after - before > 1 for before, after in pairwise(holders)):
            connections.append(SkipConnection(holders, size_bytes))
    if not connections:
        return NO_SKIPS
    return Skips(tuple(connections), _sum_passing_bytes(connections, len(downsets)))


def _sum_passing_bytes(
    connections: Sequence[SkipConnection], state_count: int
) -> tuple[tuple[float, ...], ...]:
    """Return the bytes that pass each stage, by first state and end.

    An output passes all stages that begin after holder ``a`` and end before the next holder ``b``.
    These stages are a rectangle of first and last states. Cumulative sums over both axes turn the
    corners of all rectangles into bytes.
    """
    corners = [[0.0] * (state_count + 2) for _ in range(state_count + 1)]
    for connection in connections:
        for holder, next_holder in pairwise(connection.holders):
            if next_holder - holder > 1:
                for start, sign in ((holder + 1, 1.0), (next_holder, -1.0)):
                    corners[start][0] += sign * connection.size_bytes
                    corners[start][next_holder + 1] -= sign * connection.size_bytes
    bytes_by_start_and_end = [[0.0] * (state_count + 2)]
    for corner_row in corners:
        bytes_by_start_and_end.append(
            [
                above + corner
                for above, corner in zip(bytes_by_start_and_end[-1], corner_row, strict=True)
            ]
        )
    return tuple(
        tuple(accumulate(bytes_by_end))[: state_count + 1]
        for bytes_by_end in bytes_by_start_and_end[1:]
    )
