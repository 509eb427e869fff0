"""Messages on slow ranks of a case, and on the ranks that wait for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spbench.record.case_state import CaseState
from spbench.record.comparison import (
    NOTABLE_RANK,
    RankComparison,
    RankRatios,
    RankTime,
    name_typical_rank,
)
from spbench.record.messages.enumeration import MAX_NAMED, enumerate_names
from spbench.record.messages.stragglers import describe_case_ratio, find_case_ratio
from spbench.record.number_formatting import format_factor, format_time
from spbench.record.stragglers import (
    MIN_BLOCKS,
    MIN_LAG_SECONDS,
    Straggler,
    can_judge_ranks,
    count_compared_samples,
    find_waiting_ranks,
)

NONE_SLOW = "no rank is slow"
TOO_SHORT = "too short to tell whether a rank is slow"
"""The end of messages on finished cases, also in the findings."""
NOT_COMPARED = "no two ranks do the same work"
LINKS = "ranks are not compared: the time of a rank depends on its partner"


def describe_slowness(
    case: CaseState,
    comparison: RankComparison,
    times: Mapping[int, RankTime],
    compared: RankRatios,
) -> str:
    """Return which rank is slow and which ranks wait for it, if any.

    A rank of a finished case is slow only if it is one of its stragglers. A rank of a running case
    must be slow for as many samples and as long as a straggler. A finished case can be too short,
    by the same rule as in the findings.

    Args:
        case: The case.
        comparison: The comparison of its ranks.
        times: The median times of its ranks; the message is empty without times.
        compared: The ratios of its ranks.
    """
    if len(times) < 2:
        return ""
    ratios = compared.ratios
    if not ratios:
        return NOT_COMPARED
    if case.identity.measures == "link":
        return LINKS
    num_samples = count_compared_samples(case)
    suspected = _list_suspected_ranks(case, ratios)
    is_suspected = suspected and num_samples >= MIN_BLOCKS
    if case.status.is_final and not is_suspected and not can_judge_ranks(case):
        return f"the case is {TOO_SHORT}"
    if num_samples < MIN_BLOCKS:
        return f"too few samples to compare ranks ({num_samples})"
    if not suspected:
        return NONE_SLOW
    slow = _list_slow_ranks(case, times, suspected, num_samples)
    if not slow:
        worst = max(suspected, key=ratios.__getitem__)
        brief = describe_brief_ratio(ratios[worst], name_typical_rank(times, worst))
        return f"{_name_rank(case, worst)} takes {brief}"
    worst = max(slow, key=ratios.__getitem__)
    typical = name_typical_rank(times, worst)
    ratio_text = describe_ratio(ratios[worst], typical)
    straggler = _find_straggler(case, worst)
    if straggler is not None and find_case_ratio(straggler, ratios) is not None:
        part_text = f"{describe_ratio(straggler.ratio, typical)} {straggler.describe_span()}"
        ratio_text = f"{part_text}, {describe_case_ratio(ratios[worst])}"
    so_far = "" if case.status.is_final else " so far"
    times_text = _describe_times(times, compared, worst)
    message = f"{_name_rank(case, worst)} takes {ratio_text}{so_far}{times_text}"
    if len(slow) > 1:
        message = f"{len(slow)} ranks are slow: {message}"
    waits = _describe_waits(case, comparison, times, slow)
    return f"{message}; {waits}" if waits else message


def find_slow_ranks(
    case: CaseState, times: Mapping[int, RankTime], ratios: Mapping[int, float]
) -> frozenset[int]:
    """Return the ranks that `describe_slowness` calls slow.

    Args:
        case: The case.
        times: The median times of its ranks.
        ratios: The ratio of each rank to the typical one with the same work.
    """
    suspected = [] if case.identity.measures == "link" else _list_suspected_ranks(case, ratios)
    if not suspected:
        return frozenset()  # counting the samples of thousands of ranks takes milliseconds
    return frozenset(_list_slow_ranks(case, times, suspected, count_compared_samples(case)))


def describe_ratio(ratio: float, typical: str) -> str:
    """Return ``2.47x the time of the median rank``."""
    return f"{format_factor(ratio)} the time of {typical}"


def describe_brief_ratio(ratio: float, typical: str) -> str:
    """Return ``1.35x as long as the median rank, too briefly to call it slow``."""
    return f"{format_factor(ratio)} as long as {typical}, too briefly to call it slow"


def _describe_times(times: Mapping[int, RankTime], compared: RankRatios, rank: int) -> str:
    """Return both times of a ratio in brackets, after a space.

    The time of the exchange itself, which is the shortest wait of any rank, is part of both.
    """
    rank_ms = compared.compared[rank]
    waits = "" if times[rank].active is None else " without waits for slower ranks"
    median_ms = rank_ms / compared.ratios[rank]
    return f" ({format_time(rank_ms)}{waits} against {format_time(median_ms)})"


def _list_suspected_ranks(case: CaseState, ratios: Mapping[int, float]) -> list[int]:
    """Return ranks with a notable ratio, and those that were slow in a part."""
    suspected = [rank for rank, ratio in ratios.items() if ratio >= NOTABLE_RANK]
    if case.execution.stragglers:
        suspected += [
            rank
            for rank, ratio in ratios.items()
            if ratio < NOTABLE_RANK and _find_straggler(case, rank) is not None
        ]
    return suspected


def _list_slow_ranks(
    case: CaseState, times: Mapping[int, RankTime], suspected: Sequence[int], num_samples: int
) -> list[int]:
    """Return the suspected ranks that are slow by the rules for stragglers.

    Args:
        case: The case.
        times: The median times of its ranks.
        suspected: The ranks with a notable ratio.
        num_samples: The number of times of the rank with the fewest.
    """
    if num_samples < MIN_BLOCKS:
        return []
    if case.status.is_final:
        return [rank for rank in suspected if _find_straggler(case, rank) is not None]
    min_time = 1000 * MIN_LAG_SECONDS / num_samples
    return [rank for rank in suspected if times[rank].total >= min_time]


def _find_straggler(case: CaseState, rank: int) -> Straggler | None:
    """Return the straggler of a finished case that is a rank or includes it, if any."""
    recorded = case.measured.ranks.get(rank)
    host = recorded.host if recorded is not None else ""
    return next((slow for slow in case.execution.stragglers if slow.includes(rank, host)), None)


def find_culprit(
    case: CaseState,
    comparison: RankComparison,
    times: Mapping[int, RankTime],
    ratios: Mapping[int, float],
    rank: int,
) -> int | None:
    """Return the slow rank that a rank waits for; None if it is not a single one."""
    slow = _list_slow_ranks(
        case, times, _list_suspected_ranks(case, ratios), count_compared_samples(case)
    )
    if len(slow) != 1 or rank in slow:
        return None
    return slow[0] if rank in find_waiting_ranks(case.identity, times, comparison) else None


def _name_rank(case: CaseState, rank: int) -> str:
    recorded = case.measured.ranks.get(rank)
    host = f" on {recorded.host}" if recorded is not None and recorded.host else ""
    return f"rank {rank}{host}"


def _describe_waits(
    case: CaseState,
    comparison: RankComparison,
    times: Mapping[int, RankTime],
    slow: Sequence[int],
) -> str:
    """Return which ranks wait for the slow ones and how long, if measured."""
    slow_ranks = frozenset(slow)
    waiting = [
        rank
        for rank in find_waiting_ranks(case.identity, times, comparison)
        if rank not in slow_ranks
    ]
    if not waiting:
        return ""
    longest = max(times[rank].waits or 0.0 for rank in waiting)
    pronoun = "it" if len(slow) == 1 else "them"
    if len(waiting) == 1:
        return f"rank {waiting[0]} waits for {pronoun} {format_time(longest)} per iteration"
    names = f"{len(waiting)} ranks"
    if len(waiting) <= MAX_NAMED:
        names = f"ranks {enumerate_names([*map(str, waiting)])}"
    return f"{names} wait for {pronoun} up to {format_time(longest)} per iteration"
