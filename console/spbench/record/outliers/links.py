"""Populations of links and of their ends, from cases that measure pairs of ranks.

A slow host makes all its links slow. So the times are decomposed into the effects of both ends and
a residual (`decompose_pairs`), and the host is reported instead of its links.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from spbench.record.case_state import CaseState
from spbench.record.number_formatting import format_size
from spbench.record.outliers.populations import Outlier, Population
from spbench.stats.generalised_esd import MIN_ESD_VALUES
from spbench.stats.summary import median
from spbench.stats.two_way import decompose_pairs

RankPair = tuple[int, int]
"""The source and the target of a measurement."""
HostPair = tuple[str, str]
_ENDS = {"source", "target"}
_LINK = _ENDS | {"bytes", "host_a", "host_b"}
_LINKS_PER_SLOW_LINK = 3
"""If more than one in this number of a rank's links is slow, the rank is reported instead."""


@dataclass(frozen=True, slots=True)
class _LinkTimes:
    """The times of links for one message size, or on average over all sizes.

    Attributes:
        description: The case and the message size.
        hosts: The host of each rank.
        times: The log of the time in microseconds of each pair.
    """

    description: str
    hosts: Mapping[int, str]
    times: Mapping[RankPair, float]


def is_link(row: Mapping[str, Any]) -> bool:
    """Whether a labelled value belongs to a pair of ranks and can be compared."""
    is_complete = row.keys() >= _LINK and type(row["bytes"]) is int
    return is_complete and row["value"] is not None and row["value"] > 0


def compute_median_rows(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one row per pair of ranks, with the median value of its repeats."""
    by_pair = defaultdict(list)
    for row in rows:
        by_pair[row["source"], row["target"]].append(row)
    return [
        {**repeats[0], "value": median(row["value"] for row in repeats)}
        for repeats in by_pair.values()
    ]


def make_link_populations(cases: Sequence[CaseState]) -> list[Population]:
    """Return the links within and between hosts, and the ends of the latter."""
    all_times = [link_times for case in cases for link_times in _select_link_times(case)]
    populations = (
        population for link_times in all_times for population in _make_populations(link_times)
    )
    return [population for population in populations if population.testable]


def _select_link_times(case: CaseState) -> Iterator[_LinkTimes]:
    """Yield times for the smallest and the largest size, and the mean of all.

    Without further sizes, or if sizes have different pairs, there is no mean.
    """
    hosts, times_by_size = _read_times(case)
    if not times_by_size:
        return
    for size in sorted({min(times_by_size), max(times_by_size)}):
        description = f"with messages of {format_size(size)} in {case.id}"
        yield _LinkTimes(description, hosts, times_by_size[size])

    all_times = list(times_by_size.values())
    pairs = all_times[0].keys()
    if len(all_times) > 2 and all(times.keys() == pairs for times in all_times):
        mean_times = {
            pair: sum(times[pair] for times in all_times) / len(all_times) for pair in pairs
        }
        description = f"over {len(all_times)} message sizes in {case.id}"
        yield _LinkTimes(description, hosts, mean_times)


def _read_times(
    case: CaseState,
) -> tuple[dict[int, str], dict[int, dict[RankPair, float]]]:
    """Return each rank's host, and by size and pair the mean log time in us.

    The time of a message is its latency, or follows from its bandwidth. If a case has both, they
    are the same. The mean is over repeats.
    """
    host_by_rank: dict[int, str] = {}
    logs_by_size: dict[int, dict[RankPair, list[float]]] = {}
    for row in case.measured.labelled:
        name = row["name"]
        if name not in ("latency_us", "bandwidth_gb_s") or not is_link(row):
            continue
        source = row["source"]
        target = row["target"]
        host_by_rank[source] = row["host_a"]
        host_by_rank[target] = row["host_b"]
        message_bytes = row["bytes"]
        value = row["value"]
        microseconds = value if name == "latency_us" else message_bytes / (value * 1e3)
        logs_by_pair = logs_by_size.setdefault(message_bytes, {})
        logs_by_pair.setdefault((source, target), []).append(math.log(microseconds))
    mean_logs_by_size = {
        message_bytes: {pair: sum(logs) / len(logs) for pair, logs in logs_by_pair.items()}
        for message_bytes, logs_by_pair in logs_by_size.items()
    }
    return host_by_rank, mean_logs_by_size


def _make_populations(link_times: _LinkTimes) -> Iterator[Population]:
    within: dict[RankPair, float] = {}
    between: dict[RankPair, float] = {}
    for pair, log_time in link_times.times.items():
        source, target = pair
        same_host = link_times.hosts[source] == link_times.hosts[target]
        (within if same_host else between)[pair] = log_time
    if within:
        yield Population(within, partial(_make_link_outliers, link_times))
    # With too few ends, none can be an outlier: then the links are tested without decomposition.
    num_ends = len({rank for pair in between for rank in pair})
    effects = decompose_pairs(between) if num_ends >= MIN_ESD_VALUES else None
    if effects is None:
        yield Population(between, partial(_make_link_outliers, link_times))
    else:
        yield Population(effects.end_effects, partial(_make_end_outliers, link_times))
        yield Population(effects.residuals, partial(_make_link_outliers, link_times))


def _make_end_outliers(link_times: _LinkTimes, slow: Mapping[int, float]) -> Iterator[Outlier]:
    """Yield slow ends of links: a host if all its ranks are slow, otherwise the ranks."""
    ranks_by_host: dict[str, set[int]] = defaultdict(set)
    for rank, host in link_times.hosts.items():
        ranks_by_host[host].add(rank)
    for host, ranks in ranks_by_host.items():
        ratios = {rank: slow[rank] for rank in ranks if rank in slow}
        if len(ratios) == len(ranks):
            comparison = f"of those of the median host {link_times.description}"
            ratio = min(ratios.values())
            yield Outlier(host, ratio, f"links of host {host}", comparison, _advise_adapter(host))
        else:
            for rank, ratio in ratios.items():
                name = f"links of rank {rank} on {host}"
                comparison = f"of those of the median rank {link_times.description}"
                yield Outlier((host, rank), ratio, name, comparison, _advise_adapter(host))


def _make_link_outliers(
    link_times: _LinkTimes, slow: Mapping[RankPair, float]
) -> Iterator[Outlier]:
    """Yield the slowest link of each pair of hosts, or ranks with many slow links."""
    slow_ranks = _find_slow_ranks(link_times, slow)
    yield from _make_end_outliers(link_times, slow_ranks)
    slowest_pair_by_hosts: dict[HostPair, RankPair] = {}
    for pair, ratio in slow.items():
        hosts = link_times.hosts[pair[0]], link_times.hosts[pair[1]]
        if not slow_ranks.keys() & pair and (
            hosts not in slowest_pair_by_hosts or ratio > slow[slowest_pair_by_hosts[hosts]]
        ):
            slowest_pair_by_hosts[hosts] = pair
    for (host, other_host), pair in slowest_pair_by_hosts.items():
        source, target = pair
        name = f"link from rank {source} on {host} to rank {target} on {other_host}"
        comparison = f"expected from its ends {link_times.description}"
        advice = advise_link(host, other_host)
        yield Outlier(frozenset(pair), slow[pair], name, comparison, advice)


def _advise_adapter(host: str) -> str:
    return f"check its adapter with: spbench doctor --hosts {host}"


def advise_link(host: str, other_host: str) -> str:
    """Return how to check the link between two hosts, or within one."""
    if host == other_host:
        return "check the binding of its ranks"
    return "check its cable and switch port"


def _find_slow_ranks(link_times: _LinkTimes, slow: Mapping[RankPair, float]) -> dict[int, float]:
    """Return ranks with at least two slow links, and many of their links slow.

    Many means more than one in `_LINKS_PER_SLOW_LINK`.

    The ratio of a rank is the smallest of those of its slow links.
    """
    num_links: dict[int, int] = defaultdict(int)
    ratios: dict[int, list[float]] = defaultdict(list)
    for pair in link_times.times if slow else ():
        for rank in pair:
            num_links[rank] += 1
            if pair in slow:
                ratios[rank].append(slow[pair])
    return {
        rank: min(rank_ratios)
        for rank, rank_ratios in ratios.items()
        if len(rank_ratios) > 1 and len(rank_ratios) * _LINKS_PER_SLOW_LINK > num_links[rank]
    }
