"""Slow hosts and links on a synthetic cluster: whether exactly these are reported.

    python -m benchmarks.synthetic_cluster [--hosts 300] [--seeds 100] [--noise 0.05] [--search]

Each seed is a separate cluster with a rank on each host. 3 hosts and 2 links are drawn that are
slow. Every figure of a host (memory, gemm, conv) or of a link (all pairs, three sizes) has noise of
5 %, drawn once per figure, so that no iteration averages it out. Then the findings of the run are
read, with the code of every view. The same is repeated without slow parts. The exit code is 1 if a
wrong set is reported in more than one of a hundred seeds.

--search prints the smallest slowdown of hosts and of links that is still reported, in steps of 1 %.
A slow host is slow in one of its cases, in all of them, or on all of its links (--slow).
"""

from __future__ import annotations

import math
import random
import sys
from array import array
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any

from benchmarks.goals import make_argument_parser

from spbench.record.case_parts import CaseIdentity, CaseRank, MetricDescription
from spbench.record.case_state import CaseState
from spbench.record.findings import find_slow_parts
from spbench_core.events.rank_events import RankFacts

CASES = ("memory", "gemm", "conv")
SIZES = (8, 64 << 10, 1 << 20)
SLOW_HOSTS = 3
SLOW_LINKS = 2
SLOW_KINDS = ("one-case", "all-cases", "links")
MIN_EXACT_SHARE = 0.99
"""Minimum share of seeds in which exactly the slow hosts and links are reported."""
TIME = MetricDescription("time_ms", "ms", "lower", "max")


@dataclass(frozen=True, slots=True)
class SyntheticCluster:
    """A cluster with slow hosts and links.

    Attributes:
        hosts: The number of hosts.
        noise: The standard deviation of the log of every figure.
        slow_kind: The figures in which a slow host is slow, one of `SLOW_KINDS`.
        host_slowdown: The factor of a slow host; 1 without slow hosts.
        link_slowdown: The factor of a slow link for messages of any size; 1 without slow links.
    """

    hosts: int
    noise: float
    slow_kind: str = "all-cases"
    host_slowdown: float = 1.0
    link_slowdown: float = 1.0


def main() -> int:
    """Count and print the seeds in which exactly the slow parts are reported."""
    parser = make_argument_parser(__doc__)
    parser.add_argument("--hosts", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--noise", type=float, default=0.05)
    parser.add_argument("--slow", choices=SLOW_KINDS, default=SLOW_KINDS[0])
    parser.add_argument("--host-slowdown", type=float, default=1.57)
    parser.add_argument("--link-slowdown", type=float, default=1.35)
    parser.add_argument("--search", action="store_true")
    options = parser.parse_args()
    cluster = SyntheticCluster(
        options.hosts, options.noise, options.slow, options.host_slowdown, options.link_slowdown
    )
    healthy = replace(cluster, host_slowdown=1.0, link_slowdown=1.0)
    print(
        f"{cluster.hosts} hosts, noise {cluster.noise:.0%}; slow: "
        f"{SLOW_HOSTS} hosts {cluster.host_slowdown:.2f}x ({cluster.slow_kind}), "
        f"{SLOW_LINKS} links {cluster.link_slowdown:.2f}x"
    )
    passed = True
    for description, tested_cluster in (("slow as said", cluster), ("nothing slow", healthy)):
        exact_seeds = sum(is_exact(tested_cluster, seed) for seed in range(options.seeds))
        passed = passed and exact_seeds >= MIN_EXACT_SHARE * options.seeds
        print(
            f"{description}: exactly those were named in {exact_seeds} of {options.seeds} seeds",
            flush=True,
        )
    if options.search:
        _search(cluster, options.seeds)
    return int(not passed)


def _search(cluster: SyntheticCluster, seeds: int) -> None:
    """Print the smallest factors that are reported; the other kind has a factor of 2."""
    for slow_kind in SLOW_KINDS:
        factor = _find_smallest(
            partial(_set_host_slowdown, replace(cluster, slow_kind=slow_kind, link_slowdown=2.0)),
            seeds,
        )
        print(f"hosts ({slow_kind}) are named from {factor:.2f}x on", flush=True)
    factor = _find_smallest(
        partial(_set_link_slowdown, replace(cluster, slow_kind="all-cases", host_slowdown=2.0)),
        seeds,
    )
    print(f"links are named from {factor:.2f}x on", flush=True)


def _set_host_slowdown(cluster: SyntheticCluster, factor: float) -> SyntheticCluster:
    return replace(cluster, host_slowdown=factor)


def _set_link_slowdown(cluster: SyntheticCluster, factor: float) -> SyntheticCluster:
    return replace(cluster, link_slowdown=factor)


def _find_smallest(make_cluster: Callable[[float], SyntheticCluster], seeds: int) -> float:
    """Return the smallest factor in steps of 1 %, by bisection between 1 and 2."""
    low = 100
    high = 200
    while high - low > 1:
        middle = (low + high) // 2
        if _is_mostly_exact(make_cluster(middle / 100), seeds):
            high = middle
        else:
            low = middle
    return high / 100


def _is_mostly_exact(cluster: SyntheticCluster, seeds: int) -> bool:
    wrong = 0
    for seed in range(seeds):
        wrong += not is_exact(cluster, seed)
        if wrong > (1 - MIN_EXACT_SHARE) * seeds + 1e-9:
            return False
    return True


def is_exact(cluster: SyntheticCluster, seed: int) -> bool:
    """Return whether exactly the slow hosts and links of a seed are reported."""
    generator = random.Random(seed)
    slow_hosts = set(generator.sample(range(cluster.hosts), SLOW_HOSTS))
    healthy = [host for host in range(cluster.hosts) if host not in slow_hosts]
    ends = generator.sample(healthy, 2 * SLOW_LINKS)
    slow_links = {frozenset(ends[start : start + 2]) for start in range(0, len(ends), 2)}
    cases = [
        *_build_rank_cases(cluster, generator, slow_hosts),
        _build_link_case(cluster, generator, slow_hosts, slow_links),
    ]
    expected: set[Hashable] = set()
    if cluster.host_slowdown > 1.0:
        expected |= {_format_host(host) for host in slow_hosts}
    if cluster.link_slowdown > 1.0:
        expected |= slow_links
    return {part.key for part in find_slow_parts(cases)} == expected


def _build_rank_cases(
    cluster: SyntheticCluster, generator: random.Random, slow: set[int]
) -> Iterator[CaseState]:
    for name in CASES:
        is_slow = cluster.slow_kind == "all-cases" or (
            cluster.slow_kind == "one-case" and name == "gemm"
        )
        case = _build_case(cluster, name, "rank")
        for host in range(cluster.hosts):
            factor = cluster.host_slowdown if is_slow and host in slow else 1.0
            time = 10.0 * factor * math.exp(generator.gauss(0.0, cluster.noise))
            case.measured.samples.setdefault("time_ms", {})[host] = {0: array("d", [time])}
        yield case


def _build_link_case(
    cluster: SyntheticCluster, generator: random.Random, hosts: set[int], links: set[frozenset[int]]
) -> CaseState:
    """Return a case of all pairs of hosts; the largest slowdown of a pair counts."""
    case = _build_case(cluster, "links", "link")
    for pair in combinations(range(cluster.hosts), 2):
        factor = cluster.link_slowdown if frozenset(pair) in links else 1.0
        if cluster.slow_kind == "links" and hosts & set(pair):
            factor = max(factor, cluster.host_slowdown)
        ends: dict[str, Any] = {"source": pair[0], "target": pair[1]}
        ends |= {"host_a": _format_host(pair[0]), "host_b": _format_host(pair[1])}
        for size in SIZES:
            seconds = (2e-6 + size / 10e9) * factor * math.exp(generator.gauss(0.0, cluster.noise))
            if size == SIZES[0]:
                row = {"name": "latency_us", "value": seconds * 1e6, "bytes": size, **ends}
            else:
                rate = size / seconds / 1e9
                row = {"name": "bandwidth_gb_s", "value": rate, "bytes": size, **ends}
            case.measured.labelled.append(row)
    return case


def _build_case(cluster: SyntheticCluster, name: str, measures: str) -> CaseState:
    identity = CaseIdentity(
        id=name,
        name=name,
        benchmark="made.up",
        params={},
        np=cluster.hosts,
        repeat=1,
        measures=measures,
        metrics={"time_ms": TIME},
        declared_checks=(),
        expect=(),
        coordinates=(),
    )
    case = CaseState(identity)
    for host in range(cluster.hosts):
        case.measured.ranks[host] = CaseRank(RankFacts(_format_host(host)), None, {})
    return case


def _format_host(host: int) -> str:
    return f"node{host:03}"


if __name__ == "__main__":
    sys.exit(main())
