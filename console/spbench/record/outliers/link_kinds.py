"""The links of cases that measure pairs of ranks, and the ends of links, as kinds that are tested.

A host that is slow makes all its links slow: what is measured is taken apart into the share of each
end and a rest (`two_way`), so that the one host is named and not its many links.
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
from spbench.record.outliers.kinds import Outlier, Population
from spbench.stats.generalised_esd import FEWEST_VALUES
from spbench.stats.summary import median
from spbench.stats.two_way import decompose_pairs

RankPair = tuple[int, int]
"""The source and the target of a measurement."""
HostPair = tuple[str, str]
_ENDS = {"source", "target"}
_LINK = _ENDS | {"bytes", "host_a", "host_b"}
_TAKEN = 3
"""Where more than one in so many links of a rank are out of line, it is the rank that is."""


@dataclass(frozen=True, slots=True)
class _View:
    """The times of links as one message size shows them, or all sizes together.

    Attributes:
        what: The case and the size, in words.
        hosts: The host of each rank.
        times: The log of the microseconds of each pair.
    """

    what: str
    hosts: Mapping[int, str]
    times: Mapping[RankPair, float]


def is_link(row: Mapping[str, Any]) -> bool:
    """Whether a labelled value is of a pair of ranks, and one that can be compared."""
    whole = row.keys() >= _LINK and type(row["bytes"]) is int
    return whole and row["value"] is not None and row["value"] > 0


def median_rows(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one row per pair of ranks, with the median value of its repeats."""
    of_pair = defaultdict(list)
    for row in rows:
        of_pair[row["source"], row["target"]].append(row)
    return [
        {**repeats[0], "value": median(row["value"] for row in repeats)}
        for repeats in of_pair.values()
    ]


def count_links(case: CaseState) -> int:
    """Return how many pairs of ranks a case measured."""
    return len({(m["source"], m["target"]) for m in case.measured.labelled if m.keys() >= _ENDS})


def link_populations(cases: Sequence[CaseState]) -> list[Population]:
    """Return the links within hosts and between them, and the ends of those between them."""
    views = [view for case in cases for view in _views(case)]
    return [kind for view in views for kind in _kinds(view) if kind.testable]


def _views(case: CaseState) -> Iterator[_View]:
    """Yield the smallest size, the largest and all sizes together, as far as they differ.

    The time of a message is its latency, or follows from its bandwidth; where both are there they
    are the same. Of repeats it is the mean.
    """
    hosts: dict[int, str] = {}
    sums: dict[int, dict[RankPair, float]] = defaultdict(dict)
    counts: dict[int, dict[RankPair, int]] = defaultdict(dict)
    for row in case.measured.labelled:
        name = row["name"]
        if name not in ("latency_us", "bandwidth_gb_s") or not is_link(row):
            continue
        size = row["bytes"]
        value = row["value"]
        pair = (row["source"], row["target"])
        hosts[pair[0]] = row["host_a"]
        hosts[pair[1]] = row["host_b"]
        micros = value if name == "latency_us" else size / (value * 1e3)
        sums[size][pair] = sums[size].get(pair, 0.0) + math.log(micros)
        counts[size][pair] = counts[size].get(pair, 0) + 1
    times = {
        size: {pair: total / counts[size][pair] for pair, total in of.items()}
        for size, of in sums.items()
    }
    for size in sorted({min(times), max(times)}) if times else ():
        yield _View(f"with messages of {format_size(size)} in {case.id}", hosts, times[size])
    sizes = list(times.values())
    if len(sizes) > 2 and all(one.keys() == sizes[0].keys() for one in sizes):
        rows = zip(*(map(one.__getitem__, sizes[0]) for one in sizes), strict=True)
        together = dict(zip(sizes[0], map(sum, rows), strict=True))
        mean = {pair: total / len(sizes) for pair, total in together.items()}
        yield _View(f"over {len(sizes)} message sizes in {case.id}", hosts, mean)


def _kinds(view: _View) -> Iterator[Population]:
    within: dict[RankPair, float] = {}
    between: dict[RankPair, float] = {}
    for pair, value in view.times.items():
        inside = view.hosts[pair[0]] == view.hosts[pair[1]]
        (within if inside else between)[pair] = value
    if within:
        yield Population(within, partial(_links, view))
    # Of too few ends none could be named: their links are tested as they are.
    many = len({rank for pair in between for rank in pair}) >= FEWEST_VALUES
    apart = decompose_pairs(between) if many else None
    if apart is None:
        yield Population(between, partial(_links, view))
    else:
        yield Population(apart.end_effects, partial(_ends, view))
        yield Population(apart.residuals, partial(_links, view))


def _ends(view: _View, slow: Mapping[int, float]) -> Iterator[Outlier]:
    ranks: dict[str, set[int]] = defaultdict(set)
    for rank, host in view.hosts.items():
        ranks[host].add(rank)
    for host, own in ranks.items():
        ratios = {rank: slow[rank] for rank in own if rank in slow}
        if len(ratios) == len(own):
            comparison = f"as those of the median host {view.what}"
            ratio = min(ratios.values())
            yield Outlier(host, ratio, f"links of host {host}", comparison, _advise_adapter(host))
        else:
            for rank, ratio in ratios.items():
                name = f"links of rank {rank} on {host}"
                comparison = f"as those of the median rank {view.what}"
                yield Outlier((host, rank), ratio, name, comparison, _advise_adapter(host))


def _links(view: _View, slow: Mapping[RankPair, float]) -> Iterator[Outlier]:
    """Name the links, one for each two hosts; where a rank has many, it and not they."""
    taken = _taken(view, slow)
    yield from _ends(view, taken)
    worst: dict[HostPair, RankPair] = {}
    for pair, ratio in slow.items():
        ends = view.hosts[pair[0]], view.hosts[pair[1]]
        if not taken.keys() & pair and (ends not in worst or ratio > slow[worst[ends]]):
            worst[ends] = pair
    for ends, pair in worst.items():
        (one, other) = pair
        (host, far) = ends
        name = f"link from rank {one} on {host} to rank {other} on {far}"
        comparison = f"as expected from its ends {view.what}"
        yield Outlier(frozenset(pair), slow[pair], name, comparison, advise_link(host, far))


def _advise_adapter(host: str) -> str:
    return f"check its adapter with: spbench doctor --hosts {host}"


def advise_link(host: str, far: str) -> str:
    """Return how to check the link between two hosts, or within one."""
    return "check the binding of its ranks" if host == far else "check its cable and switch port"


def _taken(view: _View, slow: Mapping[RankPair, float]) -> dict[int, float]:
    """Return the ranks of which so many links are out of line that it is they who are."""
    links: dict[int, int] = defaultdict(int)
    ratios: dict[int, list[float]] = defaultdict(list)
    for pair in view.times if slow else ():
        for rank in pair:
            links[rank] += 1
            if pair in slow:
                ratios[rank].append(slow[pair])
    return {
        rank: min(of)
        for rank, of in ratios.items()
        if len(of) > 1 and len(of) * _TAKEN > links[rank]
    }
