"""The ratio beyond which two times differ, for too few launches for a rank test."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import stdev

MIN_RECORDED_LAUNCHES = 5
"""The fewest recorded launches from which their spread is estimated."""
DEFAULT_FACTOR = 3.0
"""The factor with fewer recorded launches."""
MIN_FACTOR = 1.5
"""The smallest factor, because launches of one day do not show how days differ."""
_QUANTILES = {
    **{4: 8.610, 5: 6.869, 6: 5.959, 7: 5.408, 8: 5.041, 9: 4.781, 10: 4.587, 12: 4.318},
    **{15: 4.073, 20: 3.850, 30: 3.646, 60: 3.460, 120: 3.373},
}
"""By degrees of freedom: Student's t is further from 0 with a probability of 0.1 %."""


@dataclass(frozen=True, slots=True)
class DecidingFactor:
    """A ratio of two times that about 1 of 1000 equal pairs exceeds by chance.

    Attributes:
        value: The factor, above 1.
        recorded: The number of recorded launches that it follows from.
    """

    value: float
    recorded: int

    @property
    def source(self) -> str:
        """The origin of the factor, as text for a note."""
        if self.recorded < MIN_RECORDED_LAUNCHES:
            return f"fewer than {MIN_RECORDED_LAUNCHES} recorded launches"
        return f"from {self.recorded} recorded launches"


def estimate_deciding_factor(recorded_times: Sequence[float]) -> DecidingFactor:
    """Return the factor that recorded launches of a case support.

    It is the end of the 99.9 % prediction interval of the ratio of two further launches, if
    logarithms of times are normally distributed. It is never below the ratio of the slowest to the
    fastest recorded launch, which is larger if the distribution has a heavy tail.

    Args:
        recorded_times: The times of launches of one case on one set of machines, all above 0.
    """
    log_times = list(map(math.log, recorded_times))
    count = len(log_times)
    log_range = max(log_times, default=0.0) - min(log_times, default=0.0)
    if count < MIN_RECORDED_LAUNCHES:
        return DecidingFactor(max(DEFAULT_FACTOR, _finite_exp(log_range)), count)
    quantile = next(_QUANTILES[n] for n in reversed(_QUANTILES) if n < count)
    log_prediction_range = quantile * math.sqrt(2) * stdev(log_times)
    return DecidingFactor(max(MIN_FACTOR, _finite_exp(max(log_range, log_prediction_range))), count)


def _finite_exp(logarithm: float) -> float:
    return math.exp(min(logarithm, 700.0))  # larger logarithms overflow
