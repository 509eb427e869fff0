"""The stragglers of a case: ranks and hosts that were slow for a long time."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate
from math import ceil
from typing import TYPE_CHECKING

from spbench.record.comparison import NOTABLE_RANK, RankComparison, RankTime, compute_active_times
from spbench.record.number_formatting import format_duration, format_factor, format_time
from spbench.stats.summary import clamp_to_floats, lower_median, median
from spbench_core.catalog import FACTOR_FAULT

if TYPE_CHECKING:
    from spbench.record.case_parts import CaseIdentity
    from spbench.record.case_state import CaseState

BLOCKS = 20
"""The number of blocks of consecutive iterations in which ranks are compared."""
MIN_BLOCKS = 8
"""The smallest number of consecutive blocks in which a straggler lags.

The same one of two equal ranks is slower in 8 consecutive blocks with a probability of 1/128, and
rarely `NOTABLE_RANK` times as slow.
"""
SHARE = 0.9
"""The share of these blocks in which it lags: one block in ten may be an exception."""
MIN_LAG_SECONDS = 0.02
"""The shortest lag of a straggler in seconds. A scheduler's time slice is shorter."""
LAG_RULE = f"{1000 * MIN_LAG_SECONDS:g} ms and {100 * MIN_BLOCKS / BLOCKS:g} % of the iterations"
"""The shortest lag of a straggler as text."""
MAX_IN_BLOCK = 64
"""Evenly spaced iterations of a block that are compared, which is enough for its median."""
_MARGIN = 2.0
"""The factor by which an advised number of iterations exceeds the smallest sufficient one."""
YEAR_10000 = 253402300800.0
"""Seconds since the epoch at which calendars end."""
SINCE_FROM = 60.0
"""The shortest lag in seconds for which the time of day is shown."""


@dataclass(frozen=True, slots=True)
class Straggler:
    """A rank that lags behind, or a host with all its ranks.

    Attributes:
        rank: The rank; None means all ranks of the host.
        ratio: Its time over that of the typical rank with the same work.
        seconds: The length of the lag.
        since: The start of the lag, in seconds since the epoch.
        cause: Whether it is slow itself. False means that it may also wait for a slow rank.
    """

    rank: int | None
    host: str
    ratio: float
    seconds: float
    since: float
    cause: bool = True

    @property
    def name(self) -> str:
        """``rank 7 on node03``, or ``host node03`` for all its ranks."""
        return f"host {self.host}" if self.rank is None else f"rank {self.rank} on {self.host}"

    @property
    def message(self) -> str:
        """``rank 7 on node03 is 1.80x as slow as the median rank for 40 s``."""
        doubt = "" if self.cause else ", or waits for a slower rank"
        return f"{self.describe_ratio()} for {format_duration(self.seconds)}{doubt}"

    def describe_ratio(self, bound: str = "") -> str:
        """Return ``rank 7 on node03 is 1.80x as slow as the median rank``.

        Args:
            bound: Text before the factor, such as ``up to``.
        """
        factor = " ".join(filter(None, (bound, format_factor(self.ratio))))
        return f"{self.name} is {factor} as slow as the median rank"

    def describe_span(self) -> str:
        """Return ``for 40 s``, with the start if it lagged for a minute or more."""
        short = self.seconds < 1.0
        duration = format_time(1000 * self.seconds) if short else format_duration(self.seconds)
        span = f"for {duration}"
        if self.seconds < SINCE_FROM or not 0 <= self.since < YEAR_10000:
            return span
        return f"{span} since {datetime.fromtimestamp(self.since, UTC):%H:%M:%S} UTC"

    def includes(self, rank: int, host: str) -> bool:
        """Whether this is the rank, or the host with all its ranks."""
        return rank == self.rank or (self.rank is None and host == self.host)


def join_hosts(stragglers: Iterable[Straggler], hosts: Mapping[int, str]) -> list[Straggler]:
    """Return the stragglers, the worst first.

    A host replaces its ranks if all of them lag.

    Args:
        stragglers: The ranks that lag.
        hosts: The host of each rank of the job.
    """
    by_host = defaultdict(list)
    for straggler in stragglers:
        by_host[straggler.host].append(straggler)
    sizes = Counter(hosts.values())
    joined: list[Straggler] = []
    for host, ranks in by_host.items():
        if 1 < len(ranks) == sizes[host]:
            ratio = lower_median(straggler.ratio for straggler in ranks)
            last = max(ranks, key=lambda straggler: straggler.since)
            seconds = min(straggler.seconds for straggler in ranks)
            joined.append(Straggler(None, host, ratio, seconds, last.since, last.cause))
        else:
            joined += ranks
    return sorted(joined, key=lambda straggler: -straggler.ratio)


def find_waiting_ranks(identity: CaseIdentity, times: Mapping[int, RankTime]) -> list[int]:
    """Return the ranks that wait so long for others that their times would look slow.

    Empty if waits are not measured, or if ranks do different work: the ranks of one stage wait for
    those of another even if all are equally fast.

    Args:
        identity: The case.
        times: The medians of each rank.
    """
    waits = {
        rank: time.total - time.active for rank, time in times.items() if time.active is not None
    }
    if not waits or len(waits) < len(times) or not RankComparison(identity).is_uniform:
        return []
    shortest = min(waits.values())
    without_waits = {rank: times[rank].total - waits[rank] + shortest for rank in times}
    return [
        rank for rank in sorted(times) if times[rank].total >= NOTABLE_RANK * without_waits[rank]
    ]


def can_judge_ranks(case: CaseState) -> bool:
    """Whether a case was long enough to report a rank that is slow throughout."""
    return case.timed_seconds >= MIN_LAG_SECONDS and len(list(_split_blocks(case))) >= MIN_BLOCKS


def advise_iterations(case: CaseState) -> str:
    """Return how to lengthen a case: ``take more iterations (...)``."""
    advice = "take more iterations"
    iterations = case.identity.params.get("iterations")
    seconds = case.timed_seconds
    if not isinstance(iterations, int) or seconds <= 0:
        return advice
    factor = max(MIN_LAG_SECONDS / seconds, MIN_BLOCKS / (iterations * case.repeats), 1.0)
    needed = _MARGIN * factor * iterations
    step = 10 ** max(0, len(str(round(needed))) - 2)
    return f"{advice} (`--set iterations={step * ceil(needed / step)}`)"


def list_planted_ranks(case: CaseState) -> set[int]:
    """Return the ranks that a planted fault slows down, the last of each job."""
    fault = case.identity.inject
    if fault is None or fault.partition("=")[0] != FACTOR_FAULT:
        return set()
    return {end - 1 for end in accumulate(case.identity.shares or (case.identity.np,))}


def is_planted(straggler: Straggler, case: CaseState) -> bool:
    """Whether a straggler is a rank that a planted fault slows down, or its host."""
    ranks = case.measured.ranks
    return any(
        straggler.includes(rank, ranks[rank].host)
        for rank in list_planted_ranks(case) & ranks.keys()
    )


def find_stragglers(case: CaseState) -> list[Straggler]:
    """Return the ranks and hosts that lagged for long, the worst first.

    Iterations are split into `BLOCKS` of consecutive ones. In each block, the medians of ranks with
    the same work are compared, without waits for other ranks if these are measured. A rank is a
    straggler if it is `NOTABLE_RANK` times as slow as the typical one in at least `MIN_BLOCKS`
    consecutive blocks. Benchmarks of links are left out, because a rank's time depends on its
    partner.
    """
    if case.identity.measures == "link":
        return []
    comparison = RankComparison(case.identity)
    blocks = list(_split_blocks(case))
    if len(blocks) < MIN_BLOCKS:
        return []
    times = [_compute_block_medians(case, comparison.waits, block) for block in blocks]
    ratios = [comparison.compare(block_times).ratios for block_times in times]
    cause = all(comparison.separates(block_times) for block_times in times)
    spans = {
        rank: _find_longest_lag(
            [block_times.get(rank, 0.0) >= NOTABLE_RANK for block_times in ratios]
        )
        for rank in case.measured.ranks
    }
    throughout = any(len(span) == len(blocks) for span in spans.values())
    skews = case.rank_skews() if throughout else {}
    slow_ranks = []
    for rank, span in spans.items():
        seconds = sum(_sum_seconds(case, rank, block) for block in blocks[span.start : span.stop])
        if len(span) < MIN_BLOCKS or seconds < MIN_LAG_SECONDS:
            continue
        ratio = median(ratios[index][rank] for index in span if rank in ratios[index])
        if len(span) == len(blocks):
            ratio = skews.get(rank, ratio)  # the value that views show
        since = _compute_start(case, rank, blocks[span.start])
        host = case.measured.ranks[rank].host
        slow_ranks.append(Straggler(rank, host, ratio, seconds, since, cause))
    hosts = {rank: state.host for rank, state in case.measured.ranks.items()}
    return join_hosts(slow_ranks, hosts)


@dataclass(frozen=True, slots=True)
class _Block:
    repeat: int
    first: int
    end: int


def _split_blocks(case: CaseState) -> Iterator[_Block]:
    """Yield blocks of about equal length that do not span two repeats."""
    samples = case.measured.samples.get("time_ms", {}).values()
    counts: dict[int, int] = {}
    for repeats in samples:
        for repeat, values in repeats.items():
            counts[repeat] = min(len(values), counts.get(repeat, len(values)))
    length = max(1, -(-sum(counts.values()) // BLOCKS))
    for repeat, count in sorted(counts.items()):
        pieces = max(1, round(count / length)) if count else 0
        for index in range(pieces):
            yield _Block(repeat, index * count // pieces, (index + 1) * count // pieces)


def _compute_block_medians(
    case: CaseState, waits: Sequence[str], block: _Block
) -> dict[int, RankTime]:
    """Return the medians of each rank in a block."""
    step = -(-(block.end - block.first) // MAX_IN_BLOCK)
    iterations = slice(block.first, block.end, step)
    times = {}
    for rank, repeats in case.measured.samples["time_ms"].items():
        if block.repeat not in repeats:
            continue
        times_in_block = repeats[block.repeat][iterations]
        active = compute_active_times(case, waits, rank, block.repeat, iterations)
        complete = active is not None and len(active) == len(times_in_block)
        times[rank] = RankTime(
            median(times_in_block), median(active) if active and complete else None
        )
    return times


def _find_longest_lag(lags: Sequence[bool]) -> range:
    """Return the longest run of lagging blocks with few exceptions.

    It begins and ends with a lag.
    """
    best = range(0)
    for first, lag in enumerate(lags):
        count = 0
        for last in range(first, len(lags)) if lag else ():
            count += lags[last]
            length = last + 1 - first
            if lags[last] and count >= SHARE * length and length > len(best):
                best = range(first, last + 1)
    return best


def _sum_seconds(case: CaseState, rank: int, block: _Block) -> float:
    values = case.measured.samples["time_ms"].get(rank, {}).get(block.repeat, array("d"))
    return clamp_to_floats(sum(values[block.first : block.end])) / 1000.0


def _compute_start(case: CaseState, rank: int, block: _Block) -> float:
    """Return the time at which a rank began a block."""
    start = case.measured.timing.get(block.repeat, case.verdict.started or 0.0)
    return start + _sum_seconds(case, rank, _Block(block.repeat, 0, block.first))
