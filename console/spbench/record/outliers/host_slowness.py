"""The slowness of hosts in a case, by their slowest ranks."""

from __future__ import annotations

from collections.abc import Mapping

from spbench.record.case_state import CaseState
from spbench.record.stragglers import has_enough_samples


def compute_host_slowness(case: CaseState) -> dict[str, float]:
    """Return the slowness of the hosts of a case, compared over all its samples."""
    return find_host_slowness(case, case.compute_rank_skews())


def find_host_slowness(case: CaseState, ratios: Mapping[int, float]) -> dict[str, float]:
    """Return for each host the largest ratio of its ranks to those with the same work.

    Benchmarks of links have none, because a rank's time depends on its partner. Cases with too few
    samples have none either.

    Args:
        case: The case.
        ratios: The ratio of each rank to the typical one with the same work.
    """
    slowness: dict[str, float] = {}
    if case.identity.measures == "link" or not has_enough_samples(case):
        return slowness
    for rank, ratio in ratios.items():
        recorded = case.measured.ranks.get(rank)
        if recorded is not None:
            slowness[recorded.host] = max(ratio, slowness.get(recorded.host, 0.0))
    return slowness
