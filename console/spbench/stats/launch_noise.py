"""The noise of a case's launches, and launches drawn with it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from spbench.stats.summary import median


class Launches(NamedTuple):
    """The launches of one run: the median of each, and its fastest iteration."""

    medians: list[float]
    fastest: list[float]

    def slow_down(self, share: float) -> Launches:
        """Return them with each iteration longer by a share."""
        return Launches(*([value * (1 + share) for value in of] for of in self))


@dataclass(frozen=True, slots=True)
class Noise:
    """The spread of a case's launches, between runs and within one. All as logarithms.

    Attributes:
        levels: The median of each run.
        residuals: The distances of launches from the median of their run.
        fastest: The same of their fastest iterations, launch for launch.
    """

    levels: tuple[float, ...]
    residuals: tuple[float, ...]
    fastest: tuple[float, ...]

    def draw(self, chance: Random, launches: int) -> Launches:
        """Return the launches of a run: a level, and a distance from it for each of them."""
        level = chance.choice(self.levels)
        drawn = chance.choices(list(zip(self.residuals, self.fastest, strict=True)), k=launches)
        sides = zip(*drawn, strict=True)
        return Launches(*([math.exp(level + each) for each in of] for of in sides))


def estimate_noise(
    runs: Sequence[Sequence[float]], fastest: Sequence[float] | None = None
) -> Noise | None:
    """Return the noise of runs of one case; None where one launch alone is known.

    Args:
        runs: The launches of each run, all above 0. Where each run has but one, runs and launches
            cannot be told apart, and each launch is drawn as one of one run.
        fastest: The fastest iteration of each launch of the first run, where they are known. Those
            of the other runs are taken to differ as much as their medians.
    """
    logs = [[math.log(launch) for launch in run] for run in runs]
    residuals = [each for run in logs if len(run) > 1 for each in _residuals(run)]
    medians = [median(run) for run in logs]
    if residuals:
        levels = _without_launches(medians, logs, residuals)
        known = [math.log(each) for each in fastest] if fastest and logs[0][1:] else []
        first = _residuals(known) if known else []
        return Noise(tuple(levels), tuple(residuals), (*first, *residuals[len(first) :]))
    if len(medians) < 2:
        return None
    between = tuple(_residuals(medians))
    return Noise((median(medians),), between, between)


def _residuals(logs: Sequence[float]) -> list[float]:
    """Return the distances from the median, as wide as a sample of so many leaves them too narrow.

    The factor is that of Davison and Hinkley (1997), section 2.3.
    """
    middle = median(logs)
    wider = math.sqrt(len(logs) / (len(logs) - 1))
    return [(each - middle) * wider for each in logs]


def _without_launches(
    medians: Sequence[float], runs: Sequence[Sequence[float]], residuals: Sequence[float]
) -> list[float]:
    """Return the medians of runs as wide as they would be if launches of a run were equal.

    The variance of a median of n launches is about pi / 2 of that of their mean.
    """
    middle = median(medians)
    between = _mean_square(_residuals(medians)) if medians[1:] else 0.0
    if between == 0.0:
        return list(medians)
    shares = [min(1.0, math.pi / 2 / len(run)) for run in runs]
    within = _mean_square(residuals) * sum(shares) / len(shares)
    narrower = math.sqrt(max(0.0, 1 - within / between))
    return [middle + (each - middle) * narrower for each in medians]


def _mean_square(values: Sequence[float]) -> float:
    return sum(value * value for value in values) / len(values)
