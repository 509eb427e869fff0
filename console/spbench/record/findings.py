"""The findings of a run: lost GPUs, misplaced and slow ranks, links, and noise."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spbench.errors import describe_defect
from spbench.record.case_state import CaseState
from spbench.record.comparison import NOTABLE_RANK, RankComparison, name_typical_rank
from spbench.record.machine.core_sharing import summarize_sharing
from spbench.record.machine.gpu_throttling import describe_lost_gpus
from spbench.record.machine.misplaced import describe_misplaced
from spbench.record.messages.slowness import TOO_SHORT
from spbench.record.messages.stragglers import describe_lags, find_lags
from spbench.record.noise import describe_case_noise, summarize_noise
from spbench.record.number_formatting import format_factor, format_value
from spbench.record.outliers.links import (
    advise_link,
    compute_median_rows,
    is_link,
    make_link_populations,
)
from spbench.record.outliers.populations import Outlier, find_outliers
from spbench.record.outliers.ranks import make_rank_populations
from spbench.record.state import RunState
from spbench.record.stragglers import (
    MIN_LAG_SECONDS,
    Straggler,
    advise_iterations,
    can_judge_ranks,
    is_planted,
    list_planted_ranks,
)
from spbench.stats.generalised_esd import MIN_ESD_VALUES
from spbench.stats.summary import lower_median
from spbench_core.number_text import format_quantity

NOTABLE_LINK = 1.5
"""The smallest ratio to the median of its kind with which a link among few is reported."""
SLIGHT_RATIO = 1.5
SLIGHT_SECONDS = 1.0
"""A rank below both is not reported if other work disturbed its case."""
_SLOWNESS_WORDINGS = ("x the time ", " as slow as ", " slower than the median ")
"""Words of findings on slow parts; the last two are those of older versions."""
MAX_FINDINGS = 12
"""The number of messages on outliers; others are counted."""


def collect_findings(state: RunState) -> list[str]:
    """Return one message per finding of a run."""
    cases = state.cases.values()
    ignored = state.ignored.finding
    return [
        *([ignored] if ignored else []),
        *describe_lost_gpus(state.gpu_loads),
        *describe_misplaced(cases, state.jobs),
        *describe_stragglers(cases),
        *_describe_slowest(cases),
        *describe_noise(state),
    ]


def describe_noise(state: RunState) -> list[str]:
    """Return why times are not the hardware's: shared cores, and noise."""
    sharing = summarize_sharing(state)
    return [*([sharing] if sharing is not None else []), *summarize_noise(state)]


def names_slow_part(finding: str) -> bool:
    """Whether a finding names a slow rank, host or link, by its wording.

    It does not name one that may be slow by chance, which ``takes 1.40x as long``.
    """
    has_wording = any(text in finding for text in _SLOWNESS_WORDINGS)
    return has_wording and not finding.startswith("nothing is slow")


def collect_findings_or_defect(state: RunState) -> list[str]:
    """Return the findings, or a defect of spbench as a finding."""
    try:
        return collect_findings(state)
    except Exception as error:
        return [f"findings are missing: {describe_defect(error)}"]


def find_slow_parts(cases: Iterable[CaseState]) -> list[Outlier]:
    """Return outliers among many in measured cases, the slowest first.

    A host, rank or link must be slower than chance allows for their number. Hosts and ranks of
    groups that are too small for the test are never reported.
    """
    by_measure = defaultdict(list)
    for case in cases:
        by_measure[case.identity.measures].append(case)
    return find_outliers(
        [*make_rank_populations(by_measure["rank"]), *make_link_populations(by_measure["link"])]
    )


def describe_stragglers(cases: Iterable[CaseState]) -> list[str]:
    """Return one message per straggler of the judged cases, the slowest first.

    In a noisy case, a rank that was slightly slow for a short time is explained by the noise and
    left out.
    """
    return describe_lags(
        lag
        for case in cases
        for lag in find_lags(case, case.execution.stragglers)
        if _is_reported(lag.straggler, case)
    )


def has_unplanted_straggler(case: CaseState) -> bool:
    """Whether a rank or host is reported as slow, without a fault that slows it."""
    return any(
        _is_reported(straggler, case) and not is_planted(straggler, case)
        for straggler in case.execution.stragglers
    )


def _is_reported(straggler: Straggler, case: CaseState) -> bool:
    if is_planted(straggler, case):
        return True
    return not (_is_slight(straggler) and describe_case_noise(case))


def _is_slight(straggler: Straggler) -> bool:
    return straggler.ratio < SLIGHT_RATIO and straggler.seconds < SLIGHT_SECONDS


def _describe_slowest(cases: Iterable[CaseState]) -> Iterable[str]:
    """Return messages over all cases that measure ranks or links.

    Each outlier among many is reported, except for stragglers, which have their own message. Among
    few links, only the slowest is reported.
    """
    measured_cases = [case for case in cases if case.status.is_measured]
    rank_cases = [case for case in measured_cases if case.identity.measures == "rank"]
    link_cases = [case for case in measured_cases if case.identity.measures == "link"]
    stragglers = [slow for case in measured_cases for slow in case.execution.stragglers]
    known_keys = {slow.host if slow.rank is None else (slow.host, slow.rank) for slow in stragglers}
    if outliers := [slow for slow in find_slow_parts(measured_cases) if slow.key not in known_keys]:
        hidden_text = f"{len(outliers) - MAX_FINDINGS} more hosts, ranks or links are slow"
        more = [hidden_text] if len(outliers) > MAX_FINDINGS else []
        return [*(slow.message for slow in outliers[:MAX_FINDINGS]), *more]
    compared_links = [slow for case in link_cases for slow in _compare_links(case)]
    notable_links = [slow for slow in compared_links if slow.few and slow.ratio >= NOTABLE_LINK]
    if notable_links:
        return [max(notable_links, key=lambda slow: slow.ratio).message]
    if stragglers or any(list_planted_ranks(case) for case in measured_cases):
        return []  # a rank is slow, even if a planted fault was not noticed
    # Noise hides a slow rank, and a case shorter than a time slice shows nothing.
    quiet_rank_cases = [case for case in rank_cases if describe_case_noise(case) is None]
    long_enough = [case for case in quiet_rank_cases if case.timed_seconds >= MIN_LAG_SECONDS]
    suspected_cases = [
        case
        for case in rank_cases
        if any(slow.few and slow.ratio >= NOTABLE_RANK for slow in _find_slowest_rank(case))
    ]
    if suspected_cases:
        return _describe_suspect(
            case for case in suspected_cases if describe_case_noise(case) is None
        )
    slowest_ranks = [slow for case in long_enough for slow in _find_slowest_rank(case)]
    if slowest_ranks or compared_links:
        return [
            _describe_nothing_slow(slowest_ranks, compared_links),
            *_describe_interruption(long_enough),
        ]
    return _describe_no_straggler(measured_cases)


def _describe_suspect(cases: Iterable[CaseState]) -> Iterator[str]:
    """Yield the slowest rank of some cases, in which no rank lagged for long enough."""
    skews = [
        (ratio, rank, case) for case in cases for rank, ratio in case.compute_rank_skews().items()
    ]
    if not skews:
        return
    ratio, rank, case = max(skews, key=lambda skew: skew[0])
    name = f"rank {rank} on {case.measured.ranks[rank].host}"
    typical = name_typical_rank(case.measured.ranks, rank)
    slow = f"{name} takes {format_factor(ratio)} as long as {typical} in {case.id}"
    advice = advise_iterations(case)
    yield f"{slow}, but not for long enough to exclude chance; {advice}"


def _describe_no_straggler(measured: Iterable[CaseState]) -> Iterator[str]:
    """Yield a message that no rank lagged, or that cases were too short.

    Only quiet cases count that compare ranks and measure how long they wait for each other.
    """
    compared = [case for case in measured if _compares_ranks(case)]
    judged = [case for case in compared if can_judge_ranks(case)]
    short = [case for case in compared if not can_judge_ranks(case)]
    if judged and short:
        cases = format_quantity(len(compared), "case")
        yield f"no rank is slow in {len(judged)} of {cases}; {_describe_too_short(short)}"
    elif judged:
        slow = f"{NOTABLE_RANK:g}x as long as the median rank"
        yield f"no rank is slow: in {format_quantity(len(judged), 'case')}, none takes {slow}"
    elif short:
        yield _describe_too_short(short)


def _compares_ranks(case: CaseState) -> bool:
    if case.identity.measures == "link" or describe_case_noise(case):
        return False
    comparison = RankComparison(case.identity)
    times = case.compute_active_medians()
    return len(comparison.compare(times).ratios) > 1 and comparison.separates(times)


def _describe_too_short(cases: Sequence[CaseState]) -> str:
    """Return that cases are too short to show a slow rank, with the remedy."""
    longest = max(cases, key=lambda case: case.timed_seconds)
    if len(cases) == 1:
        subject = f"{longest.id} is"
        advice = advise_iterations(longest)
    else:
        subject = f"{format_quantity(len(cases), 'case')} are"
        advice = f"{advise_iterations(longest)}, as for {longest.id}"
    return f"{subject} {TOO_SHORT}; {advice}"


def _describe_nothing_slow(ranks: list[_Slowest], links: list[_Slowest]) -> str:
    """Return a message on the slowest of ranks and links that are not slow."""
    kinds = [*(("host", "rank") if ranks else ()), *(("link",) if links else ())]
    worst = max((*ranks, *links), key=lambda slow: slow.ratio)
    by_chance = worst.ratio >= NOTABLE_RANK and not worst.few
    chance = ", by chance among so many" if by_chance else ""
    ratio = f"{format_factor(worst.ratio)} the median"
    names = " or ".join(filter(None, (", ".join(kinds[:-1]), kinds[-1])))
    return f"no slow {names}: the slowest is {ratio} ({worst.case}){chance}"


def _describe_interruption(cases: Iterable[CaseState]) -> Iterator[str]:
    """Yield the rank that is slow by its mean but not by its median."""
    skews = [
        (ratio, rank, case)
        for case in cases
        for rank, ratio in case.compute_mean_skews().items()
        if ratio > NOTABLE_RANK > case.compute_rank_skews().get(rank, 0.0)
    ]
    if skews:
        ratio, rank, case = max(skews, key=lambda skew: skew[0])
        name = f"rank {rank} on {case.measured.ranks[rank].host}"
        typical = name_typical_rank(case.measured.ranks, rank)
        median_ratio = case.compute_rank_skews().get(rank)
        mean = f"by its mean it takes {format_factor(ratio)} as long as {typical}"
        if median_ratio is not None:
            mean += f", by its median {format_factor(median_ratio)}"
        yield f"{name} was interrupted in {case.id}: {mean}"


@dataclass(frozen=True, slots=True)
class _Slowest:
    """The slowest of its kind in a case; ``few`` if the test needs more of them."""

    case: str
    ratio: float
    message: str
    few: bool


def _find_slowest_rank(case: CaseState) -> Iterator[_Slowest]:
    """Yield the slowest rank, compared with the typical one."""
    if (skew := case.skew()) is not None:
        yield _Slowest(case.id, skew, "", len(case.measured.ranks) < MIN_ESD_VALUES)


def _compare_links(case: CaseState) -> list[_Slowest]:
    """Return each link compared with the median of its kind."""
    links = []
    for metric in (_LATENCY, _BANDWIDTH):
        rows = [m for m in case.measured.labelled if m["name"] == metric.name and is_link(m)]
        message_bytes = [row["bytes"] for row in rows]
        if not message_bytes:
            continue
        compared_bytes = min(message_bytes) if metric is _LATENCY else max(message_bytes)
        rows_by_locality = defaultdict(list)
        for row in compute_median_rows(row for row in rows if row["bytes"] == compared_bytes):
            rows_by_locality[row["host_a"] == row["host_b"]].append(row)
        for pair_rows in filter(_is_comparable, rows_by_locality.values()):
            median_of_kind = metric.typical(row["value"] for row in pair_rows)
            num_ends = len({row[end] for row in pair_rows for end in ("source", "target")})
            links += [
                _describe_link(case, row, metric, median_of_kind, num_ends) for row in pair_rows
            ]
    return links


def _is_comparable(pairs: list[dict[str, Any]]) -> bool:
    return len(pairs) > 1


@dataclass(frozen=True, slots=True)
class _LinkMetric:
    name: str
    label: str
    unit: str
    typical: Callable[[Iterable[float]], float]


_LATENCY = _LinkMetric("latency_us", "latency", "us", lower_median)
_BANDWIDTH = _LinkMetric("bandwidth_gb_s", "bandwidth", "GB/s", statistics.median_high)


def _describe_link(
    case: CaseState,
    row: Mapping[str, Any],
    metric: _LinkMetric,
    median_of_kind: float,
    num_ends: int,
) -> _Slowest:
    value = row["value"]
    ratio = value / median_of_kind if metric is _LATENCY else median_of_kind / value
    value_text = format_value(value, metric.unit)
    median_text = format_value(median_of_kind, metric.unit)
    message = (
        f"link from rank {row['source']} on {row['host_a']} to rank {row['target']} on"
        f" {row['host_b']} takes {format_factor(ratio)} the time of the median link in {case.id}"
        f" ({metric.label} {value_text}, median {median_text});"
        f" {advise_link(row['host_a'], row['host_b'])}"
    )
    return _Slowest(case.id, ratio, message, num_ends < MIN_ESD_VALUES)
