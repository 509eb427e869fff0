"""Populations of hosts and ranks, from cases that measure ranks."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from spbench.record.case_state import CaseState
from spbench.record.outliers.populations import (
    Outlier,
    Population,
    advise_host,
    advise_host_of_rank,
)
from spbench.stats.summary import lower_median


def make_rank_populations(cases: Sequence[CaseState]) -> list[Population]:
    """Return the hosts and ranks of each case, and the hosts over all cases.

    A host that is slightly slow in each case is found only over all cases.
    """
    populations = []
    host_logs: list[dict[str, float]] = []
    for case in cases:
        median_by_rank = case.compute_rank_medians()
        if not median_by_rank or min(median_by_rank.values()) <= 0:
            continue
        log_by_rank = {rank: math.log(median) for rank, median in median_by_rank.items()}
        logs_by_host = group_by_host(case, log_by_rank)
        log_by_host = {host: lower_median(logs.values()) for host, logs in logs_by_host.items()}
        host_logs.append(log_by_host)
        populations.append(Population(log_by_host, partial(_make_host_outliers, f"in {case.id}")))
        if len(logs_by_host) < len(log_by_rank):
            populations.append(Population(log_by_rank, partial(_make_rank_outliers, case)))
    if len(host_logs) > 1 and all(logs.keys() == host_logs[0].keys() for logs in host_logs):
        mean_log_by_host = {
            host: sum(logs[host] for logs in host_logs) / len(host_logs) for host in host_logs[0]
        }
        location = f"over {len(host_logs)} cases"
        populations.append(Population(mean_log_by_host, partial(_make_host_outliers, location)))
    return [population for population in populations if population.testable]


def group_by_host(case: CaseState, values: Mapping[int, float]) -> dict[str, dict[int, float]]:
    """Return the values of ranks by host."""
    by_host: dict[str, dict[int, float]] = defaultdict(dict)
    for rank, value in values.items():
        by_host[case.measured.ranks[rank].host][rank] = value
    return by_host


def _make_host_outliers(location: str, slow: Mapping[str, float]) -> Iterator[Outlier]:
    for host, ratio in slow.items():
        comparison = f"of the median host {location}"
        yield Outlier(host, ratio, f"host {host}", comparison, advise_host(host))


def _make_rank_outliers(case: CaseState, slow: Mapping[int, float]) -> Iterator[Outlier]:
    """Yield slow ranks, or their host instead if all its ranks are slow."""
    ranks = group_by_host(case, dict.fromkeys(case.measured.ranks, 0.0))
    for host, ratios in group_by_host(case, slow).items():
        if len(ratios) > 1 and len(ratios) == len(ranks[host]):
            yield from _make_host_outliers(f"in {case.id}", {host: lower_median(ratios.values())})
            continue
        for rank, ratio in ratios.items():
            name = f"rank {rank} on {host}"
            comparison = f"of the median rank in {case.id}"
            yield Outlier((host, rank), ratio, name, comparison, advise_host_of_rank(host))
