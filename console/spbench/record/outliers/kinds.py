"""Kinds of things that are alike: the hosts, ranks or links whose values are tested together."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spbench.record.number_formatting import format_factor
from spbench.stats.generalised_esd import FEWEST_VALUES, find_large_outliers

FALSE_ALARM_PROBABILITY = 0.001
"""The chance that a run in which nothing is out of line names something nevertheless, at most."""
MIN_RATIO = 1.02
"""Times the median from which on what is out of line is named: less is not worth a look."""


@dataclass(frozen=True, slots=True)
class Outlier:
    """Something slower than the median of its kind.

    Attributes:
        what: A host, a rank or a pair of them: if it is slow twice, the worse one is reported.
        ratio: How many times slower it is.
        name: Its name: ``host node03``, ``rank 3 on node03``.
        comparison: Compared with what, and where: ``as the median host in a``.
        advice: What to do next.
    """

    key: Hashable
    ratio: float
    name: str
    comparison: str
    advice: str

    @property
    def message(self) -> str:
        """Return ``host node03 is 1.20x as slow as the median host in a; check it with: ...``."""
        verb = "are" if self.name.startswith("links ") else "is"
        slow = f"{self.name} {verb} {format_factor(self.ratio)} as slow {self.comparison}"
        return f"{slow}; {self.advice}"


@dataclass(frozen=True, slots=True)
class Population:
    """Things that are compared with each other.

    Attributes:
        times: The log of the time of each.
        told: Says of those that are out of line, with how many times slower each is, what to name.
    """

    times: Mapping[Any, float]
    describe: Callable[[Mapping[Any, float]], Iterable[Outlier]]

    @property
    def testable(self) -> bool:
        """Whether they are as many as the test needs."""
        return len(self.times) >= FEWEST_VALUES


def find_outliers(kinds: Sequence[Population]) -> list[Outlier]:
    """Return what is out of line in any of the kinds, the slowest first.

    The kinds share `CHANCE` (Bonferroni), so that to test more does not name more of the healthy.
    """
    found: dict[Hashable, Outlier] = {}
    for kind in kinds:
        excess = find_large_outliers(kind.times, FALSE_ALARM_PROBABILITY / len(kinds))
        ratios = {key: math.exp(value) for key, value in excess.items()}
        for slow in kind.describe(
            {key: ratio for key, ratio in ratios.items() if ratio >= MIN_RATIO}
        ):
            if slow.key not in found or found[slow.key].ratio < slow.ratio:
                found[slow.key] = slow
    return sorted(found.values(), key=lambda slow: -slow.ratio)


def advise_host(host: str) -> str:
    """Return how to check a host."""
    return f"check it with: spbench doctor --hosts {host}"


def advise_host_of_rank(host: str) -> str:
    """Return how to check the host of a rank."""
    return f"check its host with: spbench doctor --hosts {host}"
