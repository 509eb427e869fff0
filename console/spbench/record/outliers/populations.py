"""Populations of hosts, ranks or links that are tested together for outliers."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spbench.record.number_formatting import format_factor
from spbench.stats.generalised_esd import MIN_ESD_VALUES, find_large_outliers

FALSE_ALARM_PROBABILITY = 0.001
"""The largest probability of reporting an outlier in a run without any."""
MIN_RATIO = 1.02
"""The smallest ratio to the median with which an outlier is reported."""


@dataclass(frozen=True, slots=True)
class Outlier:
    """A host, rank or link that is slower than the median of its kind.

    Attributes:
        key: The host, the rank with its host, or the pair of ranks. The worse one of two outliers
            with the same key is reported.
        ratio: How many times slower it is.
        name: Its name: ``host node03``, ``rank 3 on node03``.
        comparison: Its reference and the case: ``of the median host in a``.
        advice: The next step.
    """

    key: Hashable
    ratio: float
    name: str
    comparison: str
    advice: str

    @property
    def message(self) -> str:
        """``host node03 takes 1.20x the time of the median host in a; ...``."""
        take = "take" if self.name.startswith("links ") else "takes"
        slow = f"{self.name} {take} {format_factor(self.ratio)} the time {self.comparison}"
        return f"{slow}; {self.advice}"


@dataclass(frozen=True, slots=True)
class Population:
    """Hosts, ranks or links that are compared with each other.

    Attributes:
        times: The log of the time of each.
        make_outliers: Returns outliers from the keys of slow ones and their ratios to the median.
    """

    times: Mapping[Any, float]
    make_outliers: Callable[[Mapping[Any, float]], Iterable[Outlier]]

    @property
    def testable(self) -> bool:
        """Whether there are enough of them for the test."""
        return len(self.times) >= MIN_ESD_VALUES


def find_outliers(populations: Sequence[Population]) -> list[Outlier]:
    """Return the outliers of all populations, the slowest first.

    The populations share `FALSE_ALARM_PROBABILITY` (Bonferroni), so that more tests do not lead to
    more false alarms.
    """
    worst_by_key: dict[Hashable, Outlier] = {}
    for population in populations:
        probability = FALSE_ALARM_PROBABILITY / len(populations)
        log_ratio_by_key = find_large_outliers(population.times, probability)
        ratio_by_key = {key: math.exp(log_ratio) for key, log_ratio in log_ratio_by_key.items()}
        notable_ratio_by_key = {
            key: ratio for key, ratio in ratio_by_key.items() if ratio >= MIN_RATIO
        }
        for outlier in population.make_outliers(notable_ratio_by_key):
            if outlier.key not in worst_by_key or worst_by_key[outlier.key].ratio < outlier.ratio:
                worst_by_key[outlier.key] = outlier
    return sorted(worst_by_key.values(), key=lambda outlier: -outlier.ratio)


def advise_host(host: str) -> str:
    """Return how to check a host."""
    return f"check it with: spbench doctor --hosts {host}"


def advise_host_of_rank(host: str) -> str:
    """Return how to check the host of a rank."""
    return f"check its host with: spbench doctor --hosts {host}"
