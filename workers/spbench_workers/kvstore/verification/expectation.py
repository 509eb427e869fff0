"""What a store must hold, computed apart from it: float64, and codes of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spbench_workers.kvstore.case import StoreCase
from spbench_workers.kvstore.gradients import Gradients
from spbench_workers.kvstore.keys.arena import Array
from spbench_workers.kvstore.keys.sharding import Slot
from spbench_workers.kvstore.verification.error_bound import UNIT, ErrorBound
from spbench_workers.kvstore.verification.reference import Replica

Doubles = npt.NDArray[np.float64]
Arrivals = Mapping[Slot, Sequence[int]]
"""The workers whose pushes came to a shard of an asynchronous store, in their order."""


@dataclass(frozen=True, slots=True)
class _Given:
    """What a group of ranks gives of a key.

    Attributes:
        total: The sum of their gradients, and ``size`` that of the absolute values.
        single: The sum in float32, rank after rank, as the first of them compresses it.
        terms: The number of ranks.
    """

    total: Doubles
    size: Doubles
    single: Array
    terms: int


class _Coder:
    """Compression once more: what is said of a gradient, and what is owed from then on."""

    def __init__(self, gc_type: str, threshold: float, elements: int) -> None:
        self._says = {"2bit": self._two_bits, "1bit": self._one_bit}[gc_type]
        self._threshold = np.float32(threshold)
        self._owed: Array = np.zeros(elements, np.float32)

    def say(self, gradient: Array) -> Doubles:
        self._owed = self._owed + gradient
        said = self._says(self._owed).astype(np.float32)
        self._owed = self._owed - said
        return said.astype(np.float64)

    def _two_bits(self, owed: Array) -> Array:
        full = np.abs(owed) >= self._threshold
        return np.where(full, np.copysign(self._threshold, owed), np.float32(0))

    def _one_bit(self, owed: Array) -> Array:
        return np.where(owed > self._threshold, np.float32(1), np.float32(-1))


class _Piece:
    """A key, or one shard of it: what is applied to it at once."""

    def __init__(
        self, case: StoreCase, first: int, last: int, slot: Slot | None, groups: int
    ) -> None:
        self.part, self.slot = slice(first, last), slot
        count = last - first
        self.replica = Replica(case.optimizer, count)
        self.bound = ErrorBound(case.optimizer, count)
        self._coders = [
            _Coder(case.gc_type, case.threshold, count) for _ in range(groups) if case.compressed
        ]

    def take(self, given: Sequence[_Given], turns: Iterable[Sequence[int]]) -> None:
        """Apply turns, one after another: the groups that are summed and applied together."""
        for groups in turns:
            total = np.zeros(self.part.stop - self.part.start)
            size = np.zeros_like(total)
            terms = 0
            for group in groups:
                said, absolute, count = self._said(group, given[group])
                total += said
                size += absolute
                terms += count
            self.replica.apply(total)
            self.bound.apply(total, terms * UNIT * size, self.replica.weight)

    def _said(self, group: int, given: _Given) -> tuple[Doubles, Doubles, int]:
        if not self._coders:
            return given.total[self.part], given.size[self.part], given.terms
        said = self._coders[group].say(given.single[self.part])
        return said, np.abs(said), 1


class KeyExpectation:
    """One key, from zeros, round by round.

    Args:
        case: The case.
        key: The key.
        gradients: What ranks push.
    """

    def __init__(self, case: StoreCase, key: int, gradients: Gradients) -> None:
        self._case, self._key, self._gradients = case, key, gradients
        self._groups = _groups(case)
        self._draw: int | None = None
        slots = case.slots[key] if case.slots else ()
        groups = len(self._groups)
        self._pieces = [_Piece(case, slot.first, slot.last, slot, groups) for slot in slots] or [
            _Piece(case, 0, case.elements[key], None, groups)
        ]

    def advance(self, draw: int, rounds: int, arrivals: Arrivals) -> None:
        """Take in rounds that all pushed the same draw of gradients.

        Args:
            draw: The draw.
            rounds: How many rounds.
            arrivals: In which order pushes came, where that matters.
        """
        case = self._case
        stateless = case.optimizer == "none" and not case.compressed
        if stateless and draw == self._draw:
            return
        self._draw = draw
        given = [self._given(ranks, draw) for ranks in self._groups]
        together = [range(len(self._groups))] * (1 if stateless else rounds)
        for piece in self._pieces:
            if case.store.asynchronous:
                assert piece.slot is not None
                piece.take(given, ([worker] for worker in arrivals[piece.slot]))
            else:
                piece.take(given, together)

    def weight_and_bound(self) -> Doubles:
        """Return the key's value, and below it how far the store's may lie from it."""
        weights = [piece.replica.weight for piece in self._pieces]
        bounds = [piece.bound.value for piece in self._pieces]
        return np.stack([np.concatenate(weights), np.concatenate(bounds)])

    def _given(self, ranks: Sequence[int], draw: int) -> _Given:
        count = self._case.elements[self._key]
        total, size = np.zeros(count), np.zeros(count)
        single: Array = np.zeros(count, np.float32)
        for rank in ranks:
            gradient = self._gradients.of(rank, self._key, draw)
            total += gradient
            size += np.abs(gradient)
            single += gradient
        return _Given(total, size, single, len(ranks))


def _groups(case: StoreCase) -> list[range]:
    """Return the ranks whose gradients are one push: all, where nothing tells them apart."""
    roles = case.roles
    if not (case.compressed or case.store.asynchronous):
        return [roles.device_ranks]
    if case.store.dist:
        return [roles.devices_of(worker) for worker in range(roles.workers)]
    return [range(rank, rank + 1) for rank in roles.device_ranks]
