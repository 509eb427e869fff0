"""The law of error feedback: what codes delivered and what is owed is what was given."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from spbench_workers.kvstore.case import StoreCase
from spbench_workers.kvstore.compression import Compression
from spbench_workers.kvstore.gradients import Gradients
from spbench_workers.kvstore.store.pushes import CompressedPush, Push
from spbench_workers.kvstore.verification.error_bound import UNIT
from spbench_workers.kvstore.verification.finding import WorstDifference


class Conservation:
    """Follows this rank's pushes over some rounds. Without any that is compressed it does nothing.

    Args:
        case: The case.
        rank: This rank.
        pushes: What it pushes.
        gradients: What it was to push.
    """

    def __init__(
        self, case: StoreCase, rank: int, pushes: Sequence[Push], gradients: Gradients
    ) -> None:
        self._pushes = [push for push in pushes if isinstance(push, CompressedPush)]
        self._gradients = gradients
        self._decoder: Compression | None = case.compression()
        self._ranks = _givers(case, rank)
        # Starts at what is owed; then what is given is added, and what is delivered taken off.
        self._due = [push.residual.astype(np.float64) for push in self._pushes]
        self._size = [np.abs(due) for due in self._due]
        self._rounds = 0

    def follow(self, draw: int) -> None:
        """Take in a round that pushed a draw of gradients."""
        self._rounds += 1
        for push, due, size in zip(self._pushes, self._due, self._size, strict=True):
            part = slice(push.first, push.first + len(push.gradient))
            for rank in self._ranks:
                gradient = self._gradients.of(rank, push.key, draw)[part]
                due += gradient
                size += np.abs(gradient)
            delivered = np.zeros_like(push.gradient)
            assert self._decoder is not None
            self._decoder.decode(push.code, delivered)
            due -= delivered
            size += np.abs(delivered)

    def check(self, finding: WorstDifference) -> None:
        """Compare what is owed with what must be."""
        # A round sums the ranks' gradients, adds that and takes the code off, each with a rounding.
        roundings = self._rounds * (len(self._ranks) + 2)
        for push, due, size in zip(self._pushes, self._due, self._size, strict=True):
            where = partial(_where, push)
            finding.add_all(push.residual, due, roundings * UNIT * size, where)


def _where(push: CompressedPush, index: int) -> str:
    return f"key {push.key}, element {push.first + index}, which is still owed"


def _givers(case: StoreCase, rank: int) -> Sequence[int]:
    """Return the ranks whose gradients are in what a rank pushes compressed."""
    if not case.store.dist or case.is_server(rank):
        return [rank]
    return case.roles.devices_of(rank // case.roles.devices)
