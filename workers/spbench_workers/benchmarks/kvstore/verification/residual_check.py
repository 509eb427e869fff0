"""Check that delivered values and residual together equal the sum of gradients."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from spbench_parallel.verify.worst_error import WorstError
from spbench_workers.benchmarks.kvstore.arrays import Gradients
from spbench_workers.benchmarks.kvstore.case import StoreCase
from spbench_workers.benchmarks.kvstore.compression import Compression
from spbench_workers.benchmarks.kvstore.store.base import CompressedPush, Push
from spbench_workers.benchmarks.kvstore.verification.error_bound import UNIT


class ResidualCheck:
    """The residual check of one rank's pushes; it is empty without compression.

    Args:
        case: The case.
        rank: This rank.
        pushes: Its pushes.
        gradients: The gradients to push.
    """

    def __init__(
        self, case: StoreCase, rank: int, pushes: Sequence[Push], gradients: Gradients
    ) -> None:
        self._pushes = [push for push in pushes if isinstance(push, CompressedPush)]
        self._gradients = gradients
        self._decoder: Compression | None = case.create_compression()
        self._ranks = _list_contributors(case, rank)
        # Starts with the residual; then gradients are added and delivered values are subtracted.
        self._expected = [push.residual.astype(np.float64) for push in self._pushes]
        self._magnitudes = [np.abs(expected) for expected in self._expected]
        self._rounds = 0

    def add_round(self, draw: int) -> None:
        """Add a round that pushed a draw of gradients."""
        self._rounds += 1
        for push, expected, magnitude in zip(
            self._pushes, self._expected, self._magnitudes, strict=True
        ):
            part = slice(push.first, push.first + len(push.gradient))
            for rank in self._ranks:
                gradient = self._gradients.make_gradient(rank, push.key, draw)[part]
                expected += gradient
                magnitude += np.abs(gradient)
            delivered = np.zeros_like(push.gradient)
            assert self._decoder is not None
            self._decoder.decode(push.code, delivered)
            expected -= delivered
            magnitude += np.abs(delivered)

    def check(self, worst: WorstError) -> None:
        """Compare the residuals with the expected ones."""
        # A round sums the ranks' gradients, adds the sum and subtracts the code; each step rounds.
        roundings = self._rounds * (len(self._ranks) + 2)
        for push, expected, magnitude in zip(
            self._pushes, self._expected, self._magnitudes, strict=True
        ):
            describe = partial(_describe_element, push)
            worst.compare_arrays(push.residual, expected, roundings * UNIT * magnitude, describe)


def _describe_element(push: CompressedPush, index: int) -> str:
    return f"key {push.key}, element {push.first + index}, which is still owed"


def _list_contributors(case: StoreCase, rank: int) -> Sequence[int]:
    """Return the ranks that contribute gradients to a rank's compressed pushes."""
    if not case.store.dist or case.is_server(rank):
        return [rank]
    return case.roles.list_worker_ranks(rank // case.roles.devices)
