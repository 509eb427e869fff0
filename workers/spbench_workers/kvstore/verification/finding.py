"""The worst difference between what a rank holds and what it should hold."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spbench_workers.context import Context


@dataclass(slots=True)
class WorstDifference:
    """What a check has found so far: the difference that goes furthest beyond its bound.

    Attributes:
        error: That difference.
        tolerance: Its bound.
        detail: Where it is.
    """

    error: float = 0.0
    tolerance: float = 0.0
    detail: str = ""
    _beyond: float = -math.inf

    def add(self, error: float, tolerance: float, detail: str) -> None:
        """Take in one difference; a NaN, of either number, is worse than any."""
        beyond = error - tolerance
        if math.isnan(beyond):
            error, tolerance, beyond = math.nan, 0.0, math.inf
        if beyond > self._beyond:
            self.error, self.tolerance, self.detail = error, tolerance, detail
            self._beyond = beyond

    def add_all(
        self,
        got: npt.NDArray[np.floating[Any]],
        expected: npt.NDArray[np.float64],
        bound: npt.NDArray[np.float64],
        where: Callable[[int], str],
    ) -> None:
        """Take in the differences of an array.

        Args:
            got: What there is, with one axis.
            expected: What should be, of the same length.
            bound: How far apart they may be.
            where: Says in words what stands at an index.
        """
        if not len(got):
            return
        off = np.abs(np.subtract(got, expected, dtype=np.float64))
        # The greatest of them; numpy takes a NaN for it.
        worst = int(np.argmax(off - bound))
        self.add(float(off[worst]), float(bound[worst]), where(worst))

    def report(self, context: Context, name: str) -> bool:
        """Report it as one of the benchmark's checks."""
        return context.check(name, self.error, self.tolerance, self.detail)
