"""The findings of a run: bindings that did not take, noise, and what is slow."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from spbench.errors import defect_of
from spbench.record.case_state import CaseState
from spbench.record.comparison import NOTABLE_RANK
from spbench.record.machine.misplaced import misplaced
from spbench.record.noise import noisy_cases
from spbench.record.outliers.generalised_esd import FEWEST
from spbench.record.outliers.kinds import Slow, out_of_line
from spbench.record.outliers.link_kinds import is_link, link_count, link_kinds
from spbench.record.outliers.rank_kinds import rank_kinds
from spbench.record.state import RunState
from spbench.record.statistics import typical

NOTABLE_LINK = 1.5
"""Of a few links, the one this many times slower than the median of its kind is named."""
MOST = 12
"""Sentences on what is out of line; of more, their number is told."""


def findings(state: RunState) -> list[str]:
    """Return what a run says of its cluster: bindings that did not take, noise, what is slow."""
    cases = state.cases.values()
    slow = _stragglers(cases)
    return [*misplaced(cases, state.jobs), *noisy_cases(state), *slow, *_slowest(cases)]


def found_or_defect(state: RunState) -> list[str]:
    """Return the findings; in place of a defect of ours its sentence, so that a run is reported."""
    try:
        return findings(state)
    except Exception as error:
        return [f"No finding: {defect_of(error)}."]


def slow_of(cases: Iterable[CaseState]) -> list[Slow]:
    """Return what is out of line with many others in cases that were measured, the slowest first.

    To be named, a host, rank or link must be slower than chance lets any of so many be; hosts and
    ranks of too few, which no test can judge, are never named.
    """
    of = defaultdict(list)
    for case in cases:
        of[case.identity.measures].append(case)
    return out_of_line([*rank_kinds(of["rank"]), *link_kinds(of["link"])])


def _stragglers(cases: Iterable[CaseState]) -> list[str]:
    """Return a message for each straggler, case by case."""
    messages = [slow.finding(case.id) for case in cases for slow in case.verdict.stragglers]
    more = [f"Slow: {len(messages) - MOST} more."] if len(messages) > MOST else []
    return [*messages[:MOST], *more]


def _slowest(cases: Iterable[CaseState]) -> list[str]:
    """Return sentences over all cases that measure ranks or links; none where none does.

    What is out of line by the test of many is named, each, but for stragglers, which are named
    already; of a few links, the slowest alone.
    """
    measured = [case for case in cases if case.status in ("passed", "failed")]
    by_rank = [case for case in measured if case.identity.measures == "rank"]
    by_link = [case for case in measured if case.identity.measures == "link"]
    stragglers = [slow for case in measured for slow in case.verdict.stragglers]
    known = {slow.host if slow.rank is None else (slow.host, slow.rank) for slow in stragglers}
    if named := [slow for slow in slow_of(measured) if slow.what not in known]:
        more = [f"Out of line: {len(named) - MOST} more."] if len(named) > MOST else []
        return [*(slow.sentence for slow in named[:MOST]), *more]
    return [] if stragglers else _slowest_of_few(measured, by_rank, by_link)


def _slowest_of_few(
    measured: list[CaseState], by_rank: list[CaseState], by_link: list[CaseState]
) -> list[str]:
    """Return the slowest of links too few for the test; else that all are alike, if they are."""
    ranks = [slow for case in by_rank for slow in _ranks(case)]
    links = [slow for case in by_link for slow in _links(case)]
    if not ranks and not links:
        return []
    notable = [slow for slow in links if slow.few and slow.ratio >= NOTABLE_LINK]
    if notable:
        return [max(notable, key=lambda slow: slow.ratio).sentence]
    if any(slow.few and slow.ratio >= NOTABLE_RANK for slow in ranks):
        return []  # slow, but not for long enough to be named
    worst = max([*ranks, *links], key=lambda slow: slow.ratio)
    chance = ", no more than chance makes of so many" if worst.ratio >= NOTABLE_RANK else ""
    return [
        f"All alike: {_extent(measured)}, none more than {(worst.ratio - 1) * 100:.0f} % slower"
        f" than the median of its kind{chance if not worst.few else ''}."
    ]


@dataclass(frozen=True, slots=True)
class _Slowest:
    """The slowest of its kind; ``few``: of too few for the test."""

    ratio: float
    sentence: str
    few: bool


def _extent(cases: list[CaseState]) -> str:
    hosts = {rank.host for case in cases for rank in case.measured.ranks.values()}
    ranks = max(len(case.measured.ranks) for case in cases)
    links = max(map(link_count, cases))
    parts = [f"{len(hosts)} host{'s' * (len(hosts) != 1)}", f"{ranks} ranks"]
    if links:
        parts.append(f"{links} link{'s' * (links != 1)}")
    return ", ".join(parts)


def _ranks(case: CaseState) -> Iterator[_Slowest]:
    """Yield the slowest rank, compared with the typical one."""
    if (skew := case.skew()) is not None:
        yield _Slowest(skew, "", len(case.measured.ranks) < FEWEST)


def _links(case: CaseState) -> list[_Slowest]:
    """Each pair against the usual of its kind, within a host or between hosts."""
    found = []
    for metric in (_LATENCY, _BANDWIDTH):
        rows = [m for m in case.measured.labelled if m["name"] == metric.name and is_link(m)]
        sizes = [row["bytes"] for row in rows]
        if not sizes:
            continue
        size = min(sizes) if metric is _LATENCY else max(sizes)
        kinds = defaultdict(list)
        for row in rows:
            if row["bytes"] == size:
                kinds[row["host_a"] == row["host_b"]].append(row)
        for pairs in filter(_comparable, kinds.values()):
            middle = metric.typical(row["value"] for row in pairs)
            ends = len({row[end] for row in pairs for end in ("source", "target")})
            found += [_slow_link(case, row, metric, middle, ends) for row in pairs]
    return found


def _comparable(pairs: list[dict[str, Any]]) -> bool:
    return len(pairs) > 1


@dataclass(frozen=True, slots=True)
class _LinkMetric:
    name: str
    what: str
    unit: str
    typical: Callable[[Iterable[float]], float]


_LATENCY = _LinkMetric("latency_us", "latency", "us", typical)
_BANDWIDTH = _LinkMetric("bandwidth_gb_s", "bandwidth", "GB/s", statistics.median_high)


def _slow_link(
    case: CaseState, row: Mapping[str, Any], metric: _LinkMetric, middle: float, ends: int
) -> _Slowest:
    value = row["value"]
    return _Slowest(
        value / middle if metric is _LATENCY else middle / value,
        f"Slowest link: rank {row['source']} on {row['host_a']} to rank {row['target']} on "
        f"{row['host_b']}, {metric.what} {value:.3g} {metric.unit} where the median is "
        f"{middle:.3g}, in {case.id}.",
        ends < FEWEST,
    )
