"""The upper bound of a rate, from the number of trials with an event."""

from __future__ import annotations

import math

CONFIDENCE = 0.95
HALVINGS = 60


def upper_bound(count: int, trials: int) -> float:
    """Return the one-sided upper bound of a rate at `CONFIDENCE`.

    Computed after Clopper and Pearson, 1934.

    Args:
        count: The trials with the event.
        trials: All trials.
    """
    if count >= trials:
        return 1.0
    low = count / trials
    high = 1.0
    for _ in range(HALVINGS):
        rate = (low + high) / 2
        chance = sum(
            math.comb(trials, hits) * rate**hits * (1 - rate) ** (trials - hits)
            for hits in range(count + 1)
        )
        low, high = (rate, high) if chance > 1 - CONFIDENCE else (low, rate)
    return high
