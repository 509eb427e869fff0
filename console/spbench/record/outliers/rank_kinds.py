"""The hosts and ranks of cases that measure ranks, as kinds that are tested."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from spbench.record.case_state import CaseState
from spbench.record.outliers.kinds import Outlier, Population, advise_host, advise_host_of_rank
from spbench.stats.summary import lower_median


def rank_populations(cases: Sequence[CaseState]) -> list[Population]:
    """Return the hosts and the ranks of each case, and the hosts over all cases together.

    A host that is somewhat slow in each case is found only by what they say together.
    """
    kinds = []
    by_case = []
    for case in cases:
        medians = case.rank_medians()
        if not medians or min(medians.values()) <= 0:
            continue
        logs = {rank: math.log(value) for rank, value in medians.items()}
        hosts = group_by_host(case, logs)
        by_case.append({host: lower_median(values.values()) for host, values in hosts.items()})
        kinds.append(Population(by_case[-1], partial(_hosts, f"in {case.id}")))
        if len(hosts) < len(logs):
            kinds.append(Population(logs, partial(_ranks, case)))
    if len(by_case) > 1 and all(one.keys() == by_case[0].keys() for one in by_case):
        together = {host: sum(one[host] for one in by_case) / len(by_case) for host in by_case[0]}
        kinds.append(Population(together, partial(_hosts, f"over {len(by_case)} cases")))
    return [kind for kind in kinds if kind.testable]


def group_by_host(case: CaseState, values: Mapping[int, float]) -> dict[str, dict[int, float]]:
    """Return the values of ranks by host."""
    found: dict[str, dict[int, float]] = defaultdict(dict)
    for rank, value in values.items():
        found[case.measured.ranks[rank].host][rank] = value
    return found


def _hosts(where: str, slow: Mapping[str, float]) -> Iterator[Outlier]:
    for host, ratio in slow.items():
        comparison = f"as the median host {where}"
        yield Outlier(host, ratio, f"host {host}", comparison, advise_host(host))


def _ranks(case: CaseState, slow: Mapping[int, float]) -> Iterator[Outlier]:
    """Name the ranks; those of a host of which all are slow are told by the host."""
    ranks = group_by_host(case, dict.fromkeys(case.measured.ranks, 0.0))
    for host, ratios in group_by_host(case, slow).items():
        if len(ratios) > 1 and len(ratios) == len(ranks[host]):
            yield from _hosts(f"in {case.id}", {host: lower_median(ratios.values())})
            continue
        for rank, ratio in ratios.items():
            name = f"rank {rank} on {host}"
            comparison = f"as the median rank in {case.id}"
            yield Outlier((host, rank), ratio, name, comparison, advise_host_of_rank(host))
