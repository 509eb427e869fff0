"""The worst difference between a rank's values and their reference."""

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
    """The result of a check so far: the difference that exceeds its bound the most.

    Attributes:
        error: That difference.
        tolerance: Its bound.
        detail: Its place in words.
    """

    error: float = 0.0
    tolerance: float = 0.0
    detail: str = ""
    _beyond: float = -math.inf

    def add(self, error: float, tolerance: float, detail: str) -> None:
        """Add one difference; a NaN in either number is worse than any other."""
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
        """Add the differences of an array.

        Args:
            got: The values, on one axis.
            expected: Their reference, of the same length.
            bound: The largest allowed difference of each.
            where: Returns the place of an index in words.
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
