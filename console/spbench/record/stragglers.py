"""The stragglers of a case: ranks and hosts that were slow for a long time."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil
from typing import TYPE_CHECKING

from spbench.record.comparison import (
    NOTABLE_RANK,
    RankComparison,
    RankTime,
    compute_active_times,
    name_typical_rank,
)
from spbench.record.number_formatting import YEAR_10000, format_duration, format_factor, format_time
from spbench.stats.summary import clamp_to_floats, lower_median, median
from spbench_core.catalog.planted_fault import FACTOR_FAULT, parse_fault

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
MAX_IN_BLOCK = 64
"""Evenly spaced iterations of a block that are compared, which is enough for its median."""
_MARGIN = 2.0
"""The factor by which an advised number of iterations exceeds the smallest sufficient one."""
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

    def describe(self, case: CaseState) -> str:
        """Return ``rank 7 on node03 takes 1.80x the time of the median rank for 40 s``."""
        doubt = "" if self.cause else ", or waits for a slower rank"
        return f"{self.describe_ratio([case])} for {format_duration(self.seconds)}{doubt}"

    def describe_ratio(self, cases: Sequence[CaseState], bound: str = "") -> str:
        """Return ``rank 7 on node03 takes 1.80x the time of the median rank``.

        Args:
            cases: The cases in which it lags.
            bound: Text before the factor, such as ``up to``.
        """
        factor = f"{bound} {format_factor(self.ratio)}".lstrip()
        typical = {name_typical_rank(case.measured.ranks, self.rank) for case in cases}
        name = typical.pop() if len(typical) == 1 else "the median rank"
        return f"{self.name} takes {factor} the time of {name}"

    def describe_span(self, *, so_far: bool = False) -> str:
        """Return ``for 40 s``, with the start after a minute or more.

        Args:
            so_far: Whether it still lags: ``for 40 s so far``.
        """
        short = self.seconds < 1.0
        duration = format_time(1000 * self.seconds) if short else format_duration(self.seconds)
        span = f"for {duration} so far" if so_far else f"for {duration}"
        if self.seconds < SINCE_FROM or not 0 <= self.since < YEAR_10000:
            return span
        return f"{span} since {datetime.fromtimestamp(self.since, UTC):%H:%M:%S} UTC"

    def includes(self, rank: int, host: str) -> bool:
        """Whether this is the rank, or the host with all its ranks."""
        return rank == self.rank or (self.rank is None and host == self.host)


def merge_stragglers_by_host(
    stragglers: Iterable[Straggler], hosts: Mapping[int, str]
) -> list[Straggler]:
    """Return the stragglers, the worst first.

    A host replaces its ranks if all of them lag.

    Args:
        stragglers: The ranks that lag.
        hosts: The host of each rank of the job.
    """
    stragglers_by_host = defaultdict(list)
    for straggler in stragglers:
        stragglers_by_host[straggler.host].append(straggler)
    ranks_per_host = Counter(hosts.values())
    joined: list[Straggler] = []
    for host, ranks in stragglers_by_host.items():
        if 1 < len(ranks) == ranks_per_host[host]:
            ratio = lower_median(straggler.ratio for straggler in ranks)
            last = max(ranks, key=lambda straggler: straggler.since)
            seconds = min(straggler.seconds for straggler in ranks)
            joined.append(Straggler(None, host, ratio, seconds, last.since, last.cause))
        else:
            joined += ranks
    return sorted(joined, key=lambda straggler: -straggler.ratio)


def find_waiting_ranks(
    identity: CaseIdentity,
    times: Mapping[int, RankTime],
    comparison: RankComparison | None = None,
) -> list[int]:
    """Return the ranks that wait so long for others that their times would look slow.

    Empty if waits are not measured, or if ranks do different work: the ranks of one stage wait for
    those of another even if all are equally fast.

    Args:
        identity: The case.
        times: The medians of each rank.
        comparison: The comparison of its ranks, if there is one already.
    """
    wait_ms_by_rank = {
        rank: time.total - time.active for rank, time in times.items() if time.active is not None
    }
    if (
        not wait_ms_by_rank
        or len(wait_ms_by_rank) < len(times)
        or not (comparison or RankComparison(identity)).is_uniform
    ):
        return []
    shortest_wait_ms = min(wait_ms_by_rank.values())
    ms_without_waits = {
        rank: times[rank].total - wait_ms_by_rank[rank] + shortest_wait_ms for rank in times
    }
    return [
        rank for rank in sorted(times) if times[rank].total >= NOTABLE_RANK * ms_without_waits[rank]
    ]


def count_compared_samples(case: CaseState) -> int:
    """Return the number of times of the rank with the fewest; 0 without times."""
    samples = case.measured.samples.get("time_ms", {}).values()
    return min(map(_count_values, samples), default=0)


def _count_values(repeats: Mapping[int, Sequence[float]]) -> int:
    if len(repeats) == 1:  # faster, which matters for thousands of ranks
        return len(*repeats.values())
    return sum(map(len, repeats.values()))


def has_enough_samples(case: CaseState) -> bool:
    """Whether every rank has enough times to call one of them slow."""
    return count_compared_samples(case) >= MIN_BLOCKS


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
    needed_iterations = compute_needed_iterations(iterations, case.repeats, seconds)
    return f"{advice} (`--set iterations={needed_iterations}`)"


def compute_needed_iterations(iterations: int, repeats: int, seconds: float) -> int:
    """Return the iterations of a case from which a slow rank is certain to be named.

    Args:
        iterations: Its iterations now, above 0.
        repeats: Its repeats.
        seconds: The time of the slow rank in all iterations of all repeats, above 0.
    """
    needed_ratio = max(MIN_LAG_SECONDS / seconds, MIN_BLOCKS / (iterations * repeats), 1.0)
    needed_iterations = _MARGIN * needed_ratio * iterations
    rounding = 10 ** max(0, len(str(round(needed_iterations))) - 2)
    return int(rounding * ceil(needed_iterations / rounding))


def list_planted_ranks(case: CaseState) -> set[int]:
    """Return the ranks that a planted fault slows down, one of each job."""
    text = case.identity.inject
    if text is None or not text.startswith(FACTOR_FAULT):
        return set()
    try:
        fault = parse_fault(text)
    except ValueError:  # a damaged record
        return set()
    planted_ranks = set()
    first_rank = 0
    for np in case.identity.shares or (case.identity.np,):
        if fault.name == FACTOR_FAULT and fault.find_rank(np) < np:
            planted_ranks.add(first_rank + fault.find_rank(np))
        first_rank += np
    return planted_ranks


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
    times_by_block = [_compute_block_medians(case, comparison.waits, block) for block in blocks]
    ratios_by_block = [comparison.compare(times).ratios for times in times_by_block]
    are_causes = all(comparison.separates(times) for times in times_by_block)
    span_by_rank = {
        rank: _find_longest_lag(
            [ratios.get(rank, 0.0) >= NOTABLE_RANK for ratios in ratios_by_block]
        )
        for rank in case.measured.ranks
    }
    throughout = any(len(span) == len(blocks) for span in span_by_rank.values())
    skew_by_rank = case.compute_rank_skews() if throughout else {}
    slow_ranks = []
    for rank, span in span_by_rank.items():
        seconds = sum(_sum_seconds(case, rank, block) for block in blocks[span.start : span.stop])
        if len(span) < MIN_BLOCKS or seconds < MIN_LAG_SECONDS:
            continue
        block_ratios = [ratios_by_block[index].get(rank) for index in span]
        ratio = median(ratio for ratio in block_ratios if ratio is not None)
        if len(span) == len(blocks):
            ratio = skew_by_rank.get(rank, ratio)  # the value that views show
        since = _compute_start(case, rank, blocks[span.start])
        host = case.measured.ranks[rank].host
        slow_ranks.append(Straggler(rank, host, ratio, seconds, since, are_causes))
    host_by_rank = {rank: state.host for rank, state in case.measured.ranks.items()}
    return merge_stragglers_by_host(slow_ranks, host_by_rank)


@dataclass(frozen=True, slots=True)
class _Block:
    """The iterations of a repeat from ``first`` to before ``end``."""

    repeat: int
    first: int
    end: int


def _split_blocks(case: CaseState) -> Iterator[_Block]:
    """Yield blocks of about equal length that do not span two repeats."""
    samples = case.measured.samples.get("time_ms", {}).values()
    iterations_by_repeat: dict[int, int] = {}
    for repeats in samples:
        for repeat, values in repeats.items():
            iterations_by_repeat[repeat] = min(
                len(values), iterations_by_repeat.get(repeat, len(values))
            )
    block_length = max(1, -(-sum(iterations_by_repeat.values()) // BLOCKS))
    for repeat, iterations in sorted(iterations_by_repeat.items()):
        num_blocks = max(1, round(iterations / block_length)) if iterations else 0
        for index in range(num_blocks):
            first_iteration = index * iterations // num_blocks
            end_iteration = (index + 1) * iterations // num_blocks
            yield _Block(repeat, first_iteration, end_iteration)


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
    longest = range(0)
    for first, lag in enumerate(lags):
        num_lags = 0
        for last in range(first, len(lags)) if lag else ():
            num_lags += lags[last]
            length = last + 1 - first
            if lags[last] and num_lags >= SHARE * length and length > len(longest):
                longest = range(first, last + 1)
    return longest


def _sum_seconds(case: CaseState, rank: int, block: _Block) -> float:
    values = case.measured.samples["time_ms"].get(rank, {}).get(block.repeat, array("d"))
    return clamp_to_floats(sum(values[block.first : block.end])) / 1000.0


def _compute_start(case: CaseState, rank: int, block: _Block) -> float:
    """Return the time at which a rank began a block."""
    start = case.measured.timing.get(block.repeat, case.execution.started or 0.0)
    return start + _sum_seconds(case, rank, _Block(block.repeat, 0, block.first))
