"""The noise of a case's launches, and launches drawn with it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from spbench.record.statistics import median


@dataclass(frozen=True, slots=True)
class Noise:
    """The spread of a case's launches, between runs and within one. All as logarithms.

    Attributes:
        levels: The median of each run.
        residuals: The distances of launches from the median of their run.
    """

    levels: tuple[float, ...]
    residuals: tuple[float, ...]

    def draw(self, chance: Random, launches: int) -> list[float]:
        """Return the launches of a run: a level, and a distance from it for each of them."""
        level = chance.choice(self.levels)
        return [math.exp(level + each) for each in chance.choices(self.residuals, k=launches)]


def noise_of(runs: Sequence[Sequence[float]]) -> Noise | None:
    """Return the noise of runs of one case; None where one launch alone is known.

    Args:
        runs: The launches of each run, all above 0. Where each run has but one, runs and launches
            cannot be told apart, and each launch is drawn as one of one run.
    """
    logs = [[math.log(launch) for launch in run] for run in runs]
    residuals = [each for run in logs if len(run) > 1 for each in _residuals(run)]
    medians = [median(run) for run in logs]
    if residuals:
        return Noise(tuple(_without_launches(medians, logs, residuals)), tuple(residuals))
    if len(medians) < 2:
        return None
    return Noise((median(medians),), tuple(_residuals(medians)))


def _residuals(logs: Sequence[float]) -> list[float]:
    """Return the distances from the median, as wide as a sample of so many leaves them too narrow.

    The factor is that of Davison and Hinkley (1997), section 2.3.
    """
    middle, wider = median(logs), math.sqrt(len(logs) / (len(logs) - 1))
    return [(each - middle) * wider for each in logs]


def _without_launches(
    medians: Sequence[float], runs: Sequence[Sequence[float]], residuals: Sequence[float]
) -> list[float]:
    """Return the medians of runs as wide as they would be if launches of a run were equal.

    The variance of a median of n launches is about pi / 2 of that of their mean.
    """
    middle, between = median(medians), _mean_square(_residuals(medians)) if medians[1:] else 0.0
    if between == 0.0:
        return list(medians)
    shares = [min(1.0, math.pi / 2 / len(run)) for run in runs]
    within = _mean_square(residuals) * sum(shares) / len(shares)
    narrower = math.sqrt(max(0.0, 1 - within / between))
    return [middle + (each - middle) * narrower for each in medians]


def _mean_square(values: Sequence[float]) -> float:
    return sum(value * value for value in values) / len(values)
