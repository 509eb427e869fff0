"""The noise of a case's launches, and random launches with this noise."""

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
        """Return the launches with each iteration longer by a share."""
        return Launches(
            [time * (1 + share) for time in self.medians],
            [time * (1 + share) for time in self.fastest],
        )


@dataclass(frozen=True, slots=True)
class Noise:
    """The spread of a case's launches, between runs and within a run.

    All values are logarithms of times.

    Attributes:
        levels: The median of each run.
        residuals: The distances of launches from the median of their run.
        fastest: The distances of each launch's fastest iteration from their median, in the order of
            `residuals`.
    """

    levels: tuple[float, ...]
    residuals: tuple[float, ...]
    fastest: tuple[float, ...]

    def draw(self, rng: Random, launches: int) -> Launches:
        """Return random launches of a run: a level, and a residual for each launch."""
        level = rng.choice(self.levels)
        pairs = rng.choices(list(zip(self.residuals, self.fastest, strict=True)), k=launches)
        return Launches(
            [math.exp(level + residual) for residual, _ in pairs],
            [math.exp(level + fastest) for _, fastest in pairs],
        )


def estimate_noise(
    runs: Sequence[Sequence[float]], fastest: Sequence[float] | None = None
) -> Noise | None:
    """Return the noise of runs of one case; None if only one launch is known.

    Args:
        runs: The launches of each run, all above 0. If each run has only one, the noise between
            runs and between launches cannot be separated. All launches are then drawn from one run.
        fastest: The fastest iteration of each launch of the first run, if known. Those of the
            other runs are assumed to differ as much as their medians.
    """
    log_runs = [[math.log(launch) for launch in run] for run in runs]
    residuals = [
        residual for run in log_runs if len(run) > 1 for residual in _compute_residuals(run)
    ]
    log_medians = [median(run) for run in log_runs]
    if residuals:
        log_levels = _remove_launch_noise(log_medians, log_runs, residuals)
        fastest_residuals: list[float] = []
        if fastest and len(log_runs[0]) > 1:
            fastest_residuals = _compute_residuals([math.log(time) for time in fastest])
        return Noise(
            tuple(log_levels),
            tuple(residuals),
            (*fastest_residuals, *residuals[len(fastest_residuals) :]),
        )
    if len(log_medians) < 2:
        return None
    run_residuals = tuple(_compute_residuals(log_medians))
    return Noise((median(log_medians),), run_residuals, run_residuals)


def _compute_residuals(logs: Sequence[float]) -> list[float]:
    """Return the distances from the median, corrected for the size of the sample.

    The factor is that of Davison and Hinkley (1997), section 2.3.
    """
    middle_log = median(logs)
    correction = math.sqrt(len(logs) / (len(logs) - 1))
    return [(log - middle_log) * correction for log in logs]


def _remove_launch_noise(
    medians: Sequence[float], runs: Sequence[Sequence[float]], residuals: Sequence[float]
) -> list[float]:
    """Return the medians of runs without the spread that comes from their launches.

    The variance of a median of n launches is about pi / 2 times that of their mean.
    """
    middle = median(medians)
    variance_between = _mean_square(_compute_residuals(medians)) if len(medians) > 1 else 0.0
    if variance_between == 0.0:
        return list(medians)
    variance_shares = [min(1.0, math.pi / 2 / len(run)) for run in runs]
    variance_within = _mean_square(residuals) * sum(variance_shares) / len(variance_shares)
    shrinkage = math.sqrt(max(0.0, 1 - variance_within / variance_between))
    return [middle + (level - middle) * shrinkage for level in medians]


def _mean_square(values: Sequence[float]) -> float:
    return sum(value * value for value in values) / len(values)
