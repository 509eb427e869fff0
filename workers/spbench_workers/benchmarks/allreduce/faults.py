"""Fault injection in a collective, to show that the checks notice."""

from __future__ import annotations

import torch

from spbench_parallel.errors import CannotRunError
from spbench_workers.collectives.base import RankTraffic, Reduction


class WrongElement:
    """A collective with one wrong element in its result after each run.

    Args:
        reduction: The collective.
        result: Its result.

    Raises:
        CannotRunError: The result has no elements.
    """

    def __init__(self, reduction: Reduction, result: torch.Tensor) -> None:
        if not result.numel():
            raise CannotRunError("wrong-element: the result has no elements; take a larger size")
        self._reduction = reduction
        self._victim = result[result.numel() // 2]

    @property
    def traffic(self) -> RankTraffic | None:
        return self._reduction.traffic

    def run(self) -> None:
        self._reduction.run()
        self._spoil()

    def start(self) -> None:
        self._reduction.start()

    def poll(self) -> bool:
        return self._reduction.poll()

    def wait(self) -> None:
        self._reduction.wait()
        self._spoil()

    def free(self) -> None:
        self._reduction.free()

    def _spoil(self) -> None:
        """Give the element the wrong sign; a zero becomes one."""
        value = self._victim
        value.copy_(torch.where(value == 0, torch.ones_like(value), -value))
