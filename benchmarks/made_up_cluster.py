"""Hosts out of line on a made-up cluster: whether exactly the slow hosts and links are named.

    python -m benchmarks.made_up_cluster [--hosts 300] [--seeds 100] [--noise 0.05] [--search]

Each seed is a cluster of its own, with a rank on each host: 3 hosts and 2 links are drawn that are
slow, and every figure that spbench would have of a host (memory, gemm, conv) or of a link (all
pairs, three sizes) is off by noise of 5 %, drawn once a figure, so that no iteration averages it
out. Then the findings of the run are read, as every view has them. The same again without anything
slow. Exit 1 where a wrong set is named in more than one of a hundred seeds.

With --search, the smallest slowdown of hosts and of links at which it holds, in steps of 1 %. A
slow host is slow in one of its cases alone, in all of them, or on all of its links (--slow).
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

from benchmarks.goals import argument_parser

from spbench.record.case_state import CaseIdentity, CaseRank, CaseState, MetricInfo
from spbench.record.findings import find_slow_parts
from spbench_core.events.rank_facts import RankFacts

CASES = ("memory", "gemm", "conv")
SIZES = (8, 64 << 10, 1 << 20)
SLOW_HOSTS = 3
SLOW_LINKS = 2
WAYS = ("one-case", "all-cases", "links")
MOST_RIGHT = 0.99
"""The share of seeds in which exactly what is slow must be named."""
TIME = MetricInfo("time_ms", "ms", "lower", "max")


@dataclass(frozen=True, slots=True)
class MadeUp:
    """A made-up cluster.

    Attributes:
        hosts: How many there are.
        noise: The standard deviation of the log of every figure.
        way: The figures in which a slow host is slow, one of `WAYS`.
        host: Times that a slow host is slower; 1 where none is.
        link: Times that a slow link is slower, of any size; 1 where none is.
    """

    hosts: int
    noise: float
    way: str = "all-cases"
    host: float = 1.0
    link: float = 1.0


def main() -> int:
    """Count the seeds in which exactly what is slow is named; print them."""
    parser = argument_parser(__doc__)
    parser.add_argument("--hosts", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--noise", type=float, default=0.05)
    parser.add_argument("--slow", choices=WAYS, default=WAYS[0])
    parser.add_argument("--host-slowdown", type=float, default=1.57)
    parser.add_argument("--link-slowdown", type=float, default=1.35)
    parser.add_argument("--search", action="store_true")
    words = parser.parse_args()
    made = MadeUp(words.hosts, words.noise, words.slow, words.host_slowdown, words.link_slowdown)
    healthy = replace(made, host=1.0, link=1.0)
    print(
        f"{made.hosts} hosts, noise {made.noise:.0%}; slow: {SLOW_HOSTS} hosts {made.host:.2f}x "
        f"({made.way}), {SLOW_LINKS} links {made.link:.2f}x"
    )
    good = True
    for told, cluster in (("slow as said", made), ("nothing slow", healthy)):
        right = sum(exact(cluster, seed) for seed in range(words.seeds))
        good = good and right >= MOST_RIGHT * words.seeds
        print(f"{told}: exactly those were named in {right} of {words.seeds} seeds", flush=True)
    if words.search:
        _search(made, words.seeds)
    return int(not good)


def _search(made: MadeUp, seeds: int) -> None:
    """Print the smallest slowdowns at which it holds; what is not searched for is twice as slow."""
    for way in WAYS:
        least = _least(partial(_with_host, replace(made, way=way, link=2.0)), seeds)
        print(f"hosts ({way}) are named from {least:.2f}x on", flush=True)
    least = _least(partial(_with_link, replace(made, way="all-cases", host=2.0)), seeds)
    print(f"links are named from {least:.2f}x on", flush=True)


def _with_host(cluster: MadeUp, by: float) -> MadeUp:
    return replace(cluster, host=by)


def _with_link(cluster: MadeUp, by: float) -> MadeUp:
    return replace(cluster, link=by)


def _least(cluster: Callable[[float], MadeUp], seeds: int) -> float:
    """Return the smallest factor in steps of 1 %, by bisection between 1 and 2."""
    low = 100
    high = 200
    while high - low > 1:
        middle = (low + high) // 2
        if _holds(cluster(middle / 100), seeds):
            high = middle
        else:
            low = middle
    return high / 100


def _holds(cluster: MadeUp, seeds: int) -> bool:
    wrong = 0
    for seed in range(seeds):
        wrong += not exact(cluster, seed)
        if wrong > (1 - MOST_RIGHT) * seeds + 1e-9:
            return False
    return True


def exact(cluster: MadeUp, seed: int) -> bool:
    """Whether exactly the slow hosts and links are named in the cluster of a seed."""
    draw = random.Random(seed)
    slow_hosts = set(draw.sample(range(cluster.hosts), SLOW_HOSTS))
    healthy = [host for host in range(cluster.hosts) if host not in slow_hosts]
    ends = draw.sample(healthy, 2 * SLOW_LINKS)
    slow_links = {frozenset(ends[at : at + 2]) for at in range(0, len(ends), 2)}
    cases = [*_rank_cases(cluster, draw, slow_hosts), _links(cluster, draw, slow_hosts, slow_links)]
    expected: set[Hashable] = set()
    if cluster.host > 1.0:
        expected |= {_name(host) for host in slow_hosts}
    if cluster.link > 1.0:
        expected |= slow_links
    return {slow.key for slow in find_slow_parts(cases)} == expected


def _rank_cases(cluster: MadeUp, draw: random.Random, slow: set[int]) -> Iterator[CaseState]:
    for name in CASES:
        is_slow = cluster.way == "all-cases" or (cluster.way == "one-case" and name == "gemm")
        case = _case(cluster, name, "rank")
        for host in range(cluster.hosts):
            by = cluster.host if is_slow and host in slow else 1.0
            time = 10.0 * by * math.exp(draw.gauss(0.0, cluster.noise))
            case.measured.samples.setdefault("time_ms", {})[host] = {0: array("d", [time])}
        yield case


def _links(
    cluster: MadeUp, draw: random.Random, hosts: set[int], links: set[frozenset[int]]
) -> CaseState:
    """All pairs; a pair is as slow as the slower of its ends and itself."""
    case = _case(cluster, "links", "link")
    for pair in combinations(range(cluster.hosts), 2):
        by = cluster.link if frozenset(pair) in links else 1.0
        if cluster.way == "links" and hosts & set(pair):
            by = max(by, cluster.host)
        ends: dict[str, Any] = {"source": pair[0], "target": pair[1]}
        ends |= {"host_a": _name(pair[0]), "host_b": _name(pair[1])}
        for size in SIZES:
            seconds = (2e-6 + size / 10e9) * by * math.exp(draw.gauss(0.0, cluster.noise))
            if size == SIZES[0]:
                row = {"name": "latency_us", "value": seconds * 1e6, "bytes": size, **ends}
            else:
                rate = size / seconds / 1e9
                row = {"name": "bandwidth_gb_s", "value": rate, "bytes": size, **ends}
            case.measured.labelled.append(row)
    return case


def _case(cluster: MadeUp, name: str, measures: str) -> CaseState:
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
        case.measured.ranks[host] = CaseRank(RankFacts(_name(host)), None, {})
    return case


def _name(host: int) -> str:
    return f"node{host:03}"


if __name__ == "__main__":
    sys.exit(main())
