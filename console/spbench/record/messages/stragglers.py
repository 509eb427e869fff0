"""Messages on stragglers, the same while a case runs and after it.

One message per rank or host over all cases: how slow it is, which ranks wait for it, and the next
step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from spbench.record.case_state import CaseState
from spbench.record.comparison import NOTABLE_RANK, RankTime
from spbench.record.messages.enumeration import MAX_NAMED, enumerate_names, name_cases
from spbench.record.number_formatting import format_factor
from spbench.record.stragglers import Straggler, find_waiting_ranks, is_planted
from spbench_core.number_text import format_quantity

MAX_MESSAGES = 12
"""The number of stragglers with a message; others are counted."""


@dataclass(frozen=True, slots=True)
class Lag:
    """A straggler in one case.

    Attributes:
        straggler: The rank or host.
        case: The case in which it is slow.
        waiting: The ranks that wait for it, as far as known.
        case_ratio: Its ratio over the whole case; None if it is that of the straggler.
    """

    straggler: Straggler
    case: CaseState
    waiting: tuple[int, ...] = ()
    case_ratio: float | None = None


def find_lags(
    case: CaseState, stragglers: Sequence[Straggler], times: Mapping[int, RankTime] | None = None
) -> list[Lag]:
    """Return the stragglers of a case with the ranks that wait for them.

    With several stragglers, the ranks that wait for each one are unknown.

    Args:
        case: The case.
        stragglers: Its stragglers.
        times: The median times of its ranks, if they are already known.
    """
    waiting: tuple[int, ...] = ()
    if len(stragglers) == 1 and stragglers[0].cause:
        slow = stragglers[0]
        waiting_ranks = find_waiting_ranks(
            case.identity, case.compute_active_medians() if times is None else times
        )
        hosts = {rank: state.host for rank, state in case.measured.ranks.items()}
        waiting = tuple(
            rank for rank in waiting_ranks if not slow.includes(rank, hosts.get(rank, ""))
        )
    ratios: Mapping[int, float] = {}
    if times is None and stragglers:  # in a running case, all ratios are those so far
        ratios = case.compute_rank_skews()
    return [
        Lag(straggler, case, waiting, find_case_ratio(straggler, ratios))
        for straggler in stragglers
    ]


def find_case_ratio(straggler: Straggler, ratios: Mapping[int, float]) -> float | None:
    """Return the ratio of a slow rank over its whole case.

    None if it looks the same as that of the time in which the rank was slow.

    Args:
        straggler: The straggler.
        ratios: The ratios of all ranks over the case.
    """
    ratio = None if straggler.rank is None else ratios.get(straggler.rank)
    if ratio is None or format_factor(ratio) == format_factor(straggler.ratio):
        return None
    return ratio


def describe_case_ratio(ratio: float) -> str:
    """Return ``1.50x over the whole case``, or ``but only 1.02x ...`` if not slow."""
    prefix = "but only " if ratio < NOTABLE_RANK else ""
    return f"{prefix}{format_factor(ratio)} over the whole case"


def describe_lags(lags: Iterable[Lag], max_messages: int = MAX_MESSAGES) -> list[str]:
    """Return one message per rank or host, the slowest first.

    A last one counts the others.

    Args:
        lags: The stragglers of all cases.
        max_messages: The largest number of messages, without the last one.
    """
    lags_by_part: dict[tuple[str, int | None], list[Lag]] = defaultdict(list)
    for lag in lags:
        lags_by_part[lag.straggler.host, lag.straggler.rank].append(lag)
    slowest_first = sorted(
        lags_by_part.values(), key=lambda group: -_find_worst(group).straggler.ratio
    )
    messages = [_describe(group) for group in slowest_first[:max_messages]]
    if len(slowest_first) > max_messages:
        hidden_text = format_quantity(len(slowest_first) - max_messages, "more straggler")
        messages.append(f"{hidden_text}: see the skew of each rank")
    return messages


def _find_worst(group: Sequence[Lag]) -> Lag:
    return max(group, key=lambda lag: lag.straggler.ratio)


def _describe(group: Sequence[Lag]) -> str:
    """Return the message on one rank or host."""
    worst = _find_worst(group)
    slow = worst.straggler
    cases = name_cases([lag.case.id for lag in group])
    if len(group) == 1:
        span = slow.describe_span(so_far=not worst.case.status.is_final)
        message = f"{slow.describe_ratio([worst.case])} {cases} {span}"
        if worst.case_ratio is not None:
            message += f", {describe_case_ratio(worst.case_ratio)}"
    else:
        slow_text = slow.describe_ratio([lag.case for lag in group], "up to")
        message = f"{slow_text} {cases}"
    if waiting := _describe_waiting(group):
        message += f" ({waiting})"
    return f"{message}; {_advise(group)}"


def _describe_waiting(group: Sequence[Lag]) -> str:
    """Return which ranks wait for a straggler, if these are the same in all cases."""
    if not any(lag.straggler.cause for lag in group):
        return "unless it waits for a slower rank, which is not measured"
    clauses = {_describe_waiting_ranks(lag) for lag in group}
    return clauses.pop() if len(clauses) == 1 else ""


def _describe_waiting_ranks(lag: Lag) -> str:
    waiting = lag.waiting
    if not waiting:
        return ""
    if len(waiting) == 1:
        return f"rank {waiting[0]} waits for it"
    if len(waiting) == lag.case.identity.np - 1:
        return "all other ranks wait for it"
    if len(waiting) > MAX_NAMED:
        return f"{len(waiting)} ranks wait for it"
    return f"ranks {enumerate_names([*map(str, waiting)])} wait for it"


def _advise(group: Sequence[Lag]) -> str:
    """Return the next step for a straggler, or that it was planted."""
    if all(is_planted(lag.straggler, lag.case) for lag in group):
        return f"planted by --inject {group[0].case.identity.inject}"
    host = _find_worst(group).straggler.host
    hosts = {state.host for lag in group for state in lag.case.measured.ranks.values()}
    only = f" --hosts {host}" if len(hosts) > 1 else ""
    return f"check its host with: spbench doctor{only}"
