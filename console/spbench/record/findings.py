"""The findings of a run: bindings that did not take, noise, and what is slow."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spbench.errors import describe_defect
from spbench.record.case_state import CaseState
from spbench.record.comparison import NOTABLE_RANK, RankComparison
from spbench.record.machine.core_sharing import summarize_sharing
from spbench.record.machine.misplaced import describe_misplaced
from spbench.record.messages.stragglers import describe_lags, find_lags
from spbench.record.noise import describe_case_noise, summarize_noise
from spbench.record.number_formatting import format_factor, format_value
from spbench.record.outliers.kinds import Outlier, find_outliers
from spbench.record.outliers.link_kinds import (
    advise_link,
    count_links,
    is_link,
    link_populations,
    median_rows,
)
from spbench.record.outliers.rank_kinds import rank_populations
from spbench.record.state import RunState
from spbench.record.stragglers import (
    LAG_RULE,
    MIN_LAG_SECONDS,
    Straggler,
    advise_iterations,
    can_judge_ranks,
    is_planted,
    list_planted_ranks,
)
from spbench.stats.generalised_esd import FEWEST_VALUES
from spbench.stats.summary import lower_median
from spbench_core.quantities import format_quantity

NOTABLE_LINK = 1.5
"""Of a few links, the one this many times slower than the median of its kind is named."""
SLIGHT_RATIO = 1.5
SLIGHT_SECONDS = 1.0
"""A rank that is less slow, for a shorter time, is not named if other work disturbed its case."""
_SLOW = f"{NOTABLE_RANK:g}x as long as the median rank for {LAG_RULE} in a row"
"""What a slow rank takes, in words."""
_COMPARED = {
    "rank": f"quiet cases of compute and memory, timed for {1000 * MIN_LAG_SECONDS:g} ms or more",
    "link": "cases of links",
}
"""The compared cases in words, by what they measure."""
MAX_FINDINGS = 12
"""Sentences on outliers; the others are counted."""


def collect_findings(state: RunState) -> list[str]:
    """Return one sentence per finding of a run, such as misplaced ranks, slow hosts and noise."""
    cases = state.cases.values()
    ignored = state.ignored.finding
    return [
        *([ignored] if ignored else []),
        *describe_misplaced(cases, state.jobs),
        *describe_stragglers(cases),
        *_slowest(cases),
        *describe_noise(state),
    ]


def describe_noise(state: RunState) -> list[str]:
    """Return why times are not those of the hardware: ranks that share cores, and noise."""
    sharing = summarize_sharing(state)
    return [*([sharing] if sharing is not None else []), *summarize_noise(state)]


def names_slow_part(finding: str) -> bool:
    """Whether a finding names a slow rank, host or link: all of these have the same words.

    Those of older versions have other ones.
    """
    has_words = any(words in finding for words in (" as slow as ", " slower than the median "))
    return has_words and not finding.startswith("nothing is slow")


def collect_findings_or_defect(state: RunState) -> list[str]:
    """Return the findings; a defect of spbench is one of them, so that the run is reported."""
    try:
        return collect_findings(state)
    except Exception as error:
        return [f"findings are missing: {describe_defect(error)}"]


def find_slow_parts(cases: Iterable[CaseState]) -> list[Outlier]:
    """Return what is out of line with many others in cases that were measured, the slowest first.

    To be named, a host, rank or link must be slower than chance lets any of so many be; hosts and
    ranks of too few, which no test can judge, are never named.
    """
    of = defaultdict(list)
    for case in cases:
        of[case.identity.measures].append(case)
    return find_outliers([*rank_populations(of["rank"]), *link_populations(of["link"])])


def describe_stragglers(cases: Iterable[CaseState]) -> list[str]:
    """Return one sentence per straggler of the judged cases of a run, the slowest first.

    In a noisy case a rank that was somewhat slow for a moment is left out: the noise explains it.
    """
    return describe_lags(
        lag
        for case in cases
        for lag in find_lags(case, case.verdict.stragglers)
        if not (_is_slight(lag.straggler) and describe_case_noise(case))
        or is_planted(lag.straggler, case)
    )


def _is_slight(straggler: Straggler) -> bool:
    return straggler.ratio < SLIGHT_RATIO and straggler.seconds < SLIGHT_SECONDS


def _slowest(cases: Iterable[CaseState]) -> Iterable[str]:
    """Return sentences over all cases that measure ranks or links.

    Each outlier among many is named, except for stragglers, which have a sentence already. Of a few
    links, only the slowest is named.
    """
    measured = [case for case in cases if case.status.is_measured]
    by_rank = [case for case in measured if case.identity.measures == "rank"]
    by_link = [case for case in measured if case.identity.measures == "link"]
    stragglers = [slow for case in measured for slow in case.verdict.stragglers]
    known = {slow.host if slow.rank is None else (slow.host, slow.rank) for slow in stragglers}
    if named := [slow for slow in find_slow_parts(measured) if slow.key not in known]:
        rest = f"{len(named) - MAX_FINDINGS} more hosts, ranks or links are slow"
        more = [rest] if len(named) > MAX_FINDINGS else []
        return [*(slow.message for slow in named[:MAX_FINDINGS]), *more]
    links = [slow for case in by_link for slow in _links(case)]
    notable = [slow for slow in links if slow.few and slow.ratio >= NOTABLE_LINK]
    if notable:
        return [max(notable, key=lambda slow: slow.ratio).sentence]
    if stragglers or any(list_planted_ranks(case) for case in measured):
        return []  # a rank is slow, even if a planted fault was not noticed
    # Noise hides a slow rank, and what takes shorter than a time slice shows nothing.
    quiet = [case for case in by_rank if describe_case_noise(case) is None]
    telling = [case for case in quiet if case.timed_seconds >= MIN_LAG_SECONDS]
    suspects = [
        case
        for case in by_rank
        if any(slow.few and slow.ratio >= NOTABLE_RANK for slow in _ranks(case))
    ]
    if suspects:
        return _suspected(case for case in suspects if describe_case_noise(case) is None)
    ranks = [slow for case in telling for slow in _ranks(case)]
    if ranks or links:
        return [_nothing_slow([*telling, *by_link], [*ranks, *links], _interrupted(telling))]
    return _no_straggler(measured)


def _suspected(cases: Iterable[CaseState]) -> Iterator[str]:
    """Yield the slowest rank of some cases, none of which lagged for long enough to be named."""
    skews = [(ratio, rank, case) for case in cases for rank, ratio in case.rank_skews().items()]
    if not skews:
        return
    ratio, rank, case = max(skews, key=lambda skew: skew[0])
    name = f"rank {rank} on {case.measured.ranks[rank].host}"
    slow = f"{name} takes {format_factor(ratio)} as long as the median rank in {case.id}"
    advice = advise_iterations(case)
    yield f"{slow}, but not for {LAG_RULE} in a row, so that it may be chance; {advice}"


def _no_straggler(measured: Iterable[CaseState]) -> Iterator[str]:
    """Yield a sentence: no rank lagged, or each case was too short for a straggler.

    Only quiet cases count that compare ranks and measure how long they wait for each other.
    """
    compared = [case for case in measured if _compares_ranks(case)]
    judged = [case for case in compared if can_judge_ranks(case)]
    short = [case for case in compared if not can_judge_ranks(case)]
    if judged and short:
        cases = format_quantity(len(compared), "case")
        yield f"no rank is slow in {len(judged)} of {cases}; {_too_short(short)}"
    elif judged:
        slow = f"{NOTABLE_RANK:g}x as long as the median rank"
        yield f"no rank is slow: in {format_quantity(len(judged), 'case')}, none takes {slow}"
    elif short:
        yield _too_short(short)


def _compares_ranks(case: CaseState) -> bool:
    if case.identity.measures == "link" or describe_case_noise(case):
        return False
    comparison = RankComparison(case.identity)
    times = case.active_medians()
    return len(comparison.compare(times).ratios) > 1 and comparison.separates(times)


def _too_short(cases: Sequence[CaseState]) -> str:
    """Return that cases are too short to show a slow rank, and how they get long enough."""
    longest = max(cases, key=lambda case: case.timed_seconds)
    if len(cases) == 1:
        which = f"{longest.id} is"
        advice = advise_iterations(longest)
    else:
        which = f"{format_quantity(len(cases), 'case')} are"
        advice = f"{advise_iterations(longest)}, as for {longest.id}"
    return f"{which} too short to tell: a slow rank takes {_SLOW}; {advice}"


def _nothing_slow(cases: list[CaseState], compared: list[_Slowest], interrupted: str) -> str:
    """Return a sentence on the slowest rank or link, which is not slow.

    Args:
        cases: The cases that count.
        compared: The ranks and links in them, at least one.
        interrupted: A clause on a rank that is slow on average only; empty without one.
    """
    worst = max(compared, key=lambda slow: slow.ratio)
    measured = {case.identity.measures for case in cases}
    by_chance = worst.ratio >= NOTABLE_RANK and not worst.few
    chance = ", which is chance among so many" if by_chance else ""
    limit = NOTABLE_LINK if worst.sentence else NOTABLE_RANK
    named = f"; named from {limit:g}x on" if worst.few else ""
    kinds = [words for measures, words in _COMPARED.items() if measures in measured]
    return (
        f"nothing is slow: of {_extent(cases)}, the slowest takes {format_factor(worst.ratio)} as "
        f"long as the median of its kind, in {worst.case}{chance} (counted: "
        f"{', '.join(kinds)}{named}){interrupted}"
    )


def _interrupted(cases: Iterable[CaseState]) -> str:
    """Return a clause on the rank that is slow by its mean, though not by its median."""
    worst: tuple[float, str] = (NOTABLE_RANK, "")
    for case in cases:
        for rank, ratio in case.mean_skews().items():
            name = f"rank {rank} on {case.measured.ranks[rank].host}"
            worst = max(worst, (ratio, f"{name} takes {format_factor(ratio)} in {case.id}"))
    return f"; but on average {worst[1]}: something interrupted it" if worst[1] else ""


@dataclass(frozen=True, slots=True)
class _Slowest:
    """The slowest of its kind in a case; ``few``: of too few for the test."""

    case: str
    ratio: float
    sentence: str
    few: bool


def _extent(cases: list[CaseState]) -> str:
    hosts = {rank.host for case in cases for rank in case.measured.ranks.values()}
    ranks = max(len(case.measured.ranks) for case in cases)
    links = max(map(count_links, cases))
    parts = [format_quantity(len(hosts), "host"), format_quantity(ranks, "rank")]
    if links > 1:  # a single link is compared with none
        parts.append(format_quantity(links, "link"))
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def _ranks(case: CaseState) -> Iterator[_Slowest]:
    """Yield the slowest rank, compared with the typical one."""
    if (skew := case.skew()) is not None:
        yield _Slowest(case.id, skew, "", len(case.measured.ranks) < FEWEST_VALUES)


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
        for row in median_rows(row for row in rows if row["bytes"] == size):
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


_LATENCY = _LinkMetric("latency_us", "latency", "us", lower_median)
_BANDWIDTH = _LinkMetric("bandwidth_gb_s", "bandwidth", "GB/s", statistics.median_high)


def _slow_link(
    case: CaseState, row: Mapping[str, Any], metric: _LinkMetric, middle: float, ends: int
) -> _Slowest:
    value = row["value"]
    ratio = value / middle if metric is _LATENCY else middle / value
    value_text = format_value(value, metric.unit)
    median_text = format_value(middle, metric.unit)
    sentence = (
        f"link from rank {row['source']} on {row['host_a']} to rank {row['target']} on"
        f" {row['host_b']} is {format_factor(ratio)} as slow as the median link in {case.id}"
        f" ({metric.what} {value_text}, median {median_text});"
        f" {advise_link(row['host_a'], row['host_b'])}"
    )
    return _Slowest(case.id, ratio, sentence, ends < FEWEST_VALUES)
