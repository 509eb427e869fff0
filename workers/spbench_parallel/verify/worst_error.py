"""The worst error of several comparisons, with its tolerance and its location."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@dataclass(slots=True)
class WorstError:
    """The comparison that exceeds its tolerance the most.

    Among equal ones it is the first. An error that is not a number counts as infinite. So does any
    error if its tolerance is not a number, and an infinite error exceeds even an infinite
    tolerance.

    Attributes:
        error: The difference from the reference; 0 before any comparison.
        tolerance: The largest allowed difference.
        detail: The location of the error, in words.
        wrong: The number of compared elements that exceed their tolerance, if they are counted.
        keeps_first: Whether the first comparison that exceeds its tolerance is kept, since it shows
            where an error begins. Until then the largest error is kept, regardless of tolerances.
        compared: Whether there was a comparison; the first one is kept in any case.
    """

    error: float = 0.0
    tolerance: float = 0.0
    detail: str = ""
    wrong: int = 0
    keeps_first: bool = False
    compared: bool = False

    @classmethod
    def single(cls, error: float, tolerance: float = 0.0, detail: str = "") -> WorstError:
        """Return the result of one comparison."""
        result = cls()
        result.add(error, tolerance, detail)
        return result

    @classmethod
    def with_tolerance(cls, tolerance: float) -> WorstError:
        """Return an error of 0 with a tolerance: only larger errors have a location."""
        return cls(tolerance=tolerance, compared=True)

    @property
    def excess(self) -> float:
        """The error less the tolerance; not above 0 if it is within the tolerance."""
        return self.error - self.tolerance

    @property
    def exceeds(self) -> bool:
        """Whether the error is above its tolerance."""
        return self.excess > 0.0

    def add(self, error: float, tolerance: float = 0.0, detail: str = "", wrong: int = 0) -> None:
        """Add a comparison."""
        self.wrong += wrong
        if math.isnan(tolerance) or tolerance == error == math.inf:
            error = math.inf
            tolerance = 0.0
        elif math.isnan(error):
            error = math.inf
        if self._is_worse(error, tolerance):
            self.error = error
            self.tolerance = tolerance
            self.detail = detail
        self.compared = True

    def merge(self, other: WorstError) -> None:
        """Add the comparisons of another instance."""
        if other.compared:
            self.add(other.error, other.tolerance, other.detail, other.wrong)

    def add_array(
        self,
        errors: npt.NDArray[np.float64],
        tolerances: npt.NDArray[np.float64],
        detail: Callable[[int], str],
    ) -> None:
        """Add the errors of an array's elements.

        Args:
            errors: The differences, on one axis.
            tolerances: The largest allowed difference of each.
            detail: Returns the location of an index in words.
        """
        # A ping-pong compares bytes, and its ranks need no numpy.
        import numpy as np

        if not len(errors):
            return
        excess: Any = errors - tolerances
        index = int(np.argmax(np.where(np.isnan(excess), np.inf, excess)))
        wrong = int(np.count_nonzero(~(excess <= 0.0)))
        self.add(float(errors[index]), float(tolerances[index]), detail(index), wrong)

    def compare_arrays(
        self,
        values: npt.NDArray[np.floating[Any]],
        expected: npt.NDArray[np.float64],
        tolerances: npt.NDArray[np.float64],
        detail: Callable[[int], str],
    ) -> None:
        """Add the comparison of an array with its reference in float64.

        Args:
            values: The values, on one axis.
            expected: Their reference, of the same length.
            tolerances: The largest allowed difference of each.
            detail: Returns the location of an index in words.
        """
        import numpy as np

        errors = np.abs(np.subtract(values, expected, dtype=np.float64))
        self.add_array(errors, tolerances, detail)

    def _is_worse(self, error: float, tolerance: float) -> bool:
        if not self.compared:
            return True
        if not self.keeps_first:
            return error - tolerance > self.excess
        return not self.exceeds and (error > tolerance or error > self.error)
