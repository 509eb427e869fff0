"""Find the stragglers of a case: ranks and hosts that were slow for long."""

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
    from spbench.record.case_state import CaseIdentity, CaseState

BLOCKS = 20
"""The blocks of consecutive iterations in which ranks are compared."""
MIN_BLOCKS = 8
"""The least number of blocks in a row in which a straggler lags. The same one of two equal ranks is
slower in 8 blocks in a row with a probability of 1/128, and rarely `NOTABLE_RANK` times as slow."""
SHARE = 0.9
"""The share of these blocks in which it lags: one block in ten may be an exception."""
MIN_LAG_SECONDS = 0.02
"""The least seconds that a straggler lags: a scheduler's time slice is shorter."""
LAG_RULE = f"{1000 * MIN_LAG_SECONDS:g} ms and {100 * MIN_BLOCKS / BLOCKS:g} % of the iterations"
"""The least that a straggler lags, in words."""
MAX_IN_BLOCK = 64
"""Iterations of a block that are looked at, evenly spread: enough for its median."""
_MARGIN = 2.0
"""How many times as long as the least a case is advised to be."""
YEAR_10000 = 253402300800.0
"""Seconds since the epoch at which calendars end."""
SINCE_FROM = 60.0
"""Seconds of lagging from which on the time of day matters to a reader."""


@dataclass(frozen=True, slots=True)
class Straggler:
    """A rank that lags behind, or a host with all its ranks.

    Attributes:
        rank: The rank; None: all ranks of the host.
        ratio: Its time over that of the typical rank with the same work.
        seconds: How long it lagged.
        since: When that began, in seconds since the epoch.
        cause: Whether it is slow itself; False: it may also wait for a rank that is.
    """

    rank: int | None
    host: str
    ratio: float
    seconds: float
    since: float
    cause: bool = True

    @property
    def name(self) -> str:
        """Return ``rank 7 on node03``, or ``host node03`` for all its ranks."""
        return f"host {self.host}" if self.rank is None else f"rank {self.rank} on {self.host}"

    @property
    def message(self) -> str:
        """Return ``rank 7 on node03 is 1.80x as slow as the median rank for 40 s``."""
        doubt = "" if self.cause else ", or waits for a slower rank"
        return f"{self.describe_ratio()} for {format_duration(self.seconds)}{doubt}"

    def describe_ratio(self, bound: str = "") -> str:
        """Return ``rank 7 on node03 is 1.80x as slow as the median rank``.

        Args:
            bound: Words before the factor, such as ``up to``.
        """
        factor = " ".join(filter(None, (bound, format_factor(self.ratio))))
        return f"{self.name} is {factor} as slow as the median rank"

    def describe_span(self) -> str:
        """Return ``for 40 s``; if it lagged for a minute or more, also since when."""
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
    """Return the stragglers, the worst first; a host replaces its ranks if all of them lag.

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
    """Return the ranks that wait for others, so long that each would be called slow by its time.

    Empty if waits are not measured. Also if ranks do different work: the ranks of one stage wait
    for those of another even if none is slow.

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
    unwaited = {rank: times[rank].total - waits[rank] + shortest for rank in times}
    return [rank for rank in sorted(times) if times[rank].total >= NOTABLE_RANK * unwaited[rank]]


def can_judge_ranks(case: CaseState) -> bool:
    """Whether a case was long enough to call a rank slow, if one had been slow throughout."""
    return case.timed_seconds >= MIN_LAG_SECONDS and len(list(_blocks(case))) >= MIN_BLOCKS


def advise_iterations(case: CaseState) -> str:
    """Return ``take more iterations (`--set iterations=500`)``: how a case gets long enough."""
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
    """Return the ranks that a planted fault slows down: the last one of each job of the case."""
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
    """Return the ranks and hosts that lagged for long in a case, the worst first.

    Iterations are cut into `BLOCKS` of consecutive ones. In each block the medians of ranks with
    the same work are compared, without waits for other ranks if these are measured. A rank is a
    straggler if it is `NOTABLE_RANK` times as slow as the typical one in `FEWEST_BLOCKS` in a row,
    or more. A benchmark of links is left out: a rank's time there depends on its partner.
    """
    if case.identity.measures == "link":
        return []
    comparison = RankComparison(case.identity)
    blocks = list(_blocks(case))
    if len(blocks) < MIN_BLOCKS:
        return []
    times = [_times_in(case, comparison.waits, block) for block in blocks]
    ratios = [comparison.compare(of_block).ratios for of_block in times]
    cause = all(comparison.separates(of_block) for of_block in times)
    spans = {
        rank: _longest([of_block.get(rank, 0.0) >= NOTABLE_RANK for of_block in ratios])
        for rank in case.measured.ranks
    }
    throughout = any(len(span) == len(blocks) for span in spans.values())
    skews = case.rank_skews() if throughout else {}
    slow_ranks = []
    for rank, span in spans.items():
        seconds = sum(_seconds(case, rank, block) for block in blocks[span.start : span.stop])
        if len(span) < MIN_BLOCKS or seconds < MIN_LAG_SECONDS:
            continue
        ratio = median(ratios[at][rank] for at in span if rank in ratios[at])
        if len(span) == len(blocks):
            ratio = skews.get(rank, ratio)  # as views show it
        since = _started(case, rank, blocks[span.start])
        host = case.measured.ranks[rank].host
        slow_ranks.append(Straggler(rank, host, ratio, seconds, since, cause))
    hosts = {rank: part.host for rank, part in case.measured.ranks.items()}
    return join_hosts(slow_ranks, hosts)


@dataclass(frozen=True, slots=True)
class _Block:
    repeat: int
    first: int
    end: int


def _blocks(case: CaseState) -> Iterator[_Block]:
    """Yield blocks of about equal length, none of which spans two repeats."""
    samples = case.measured.samples.get("time_ms", {}).values()
    counts: dict[int, int] = {}
    for repeats in samples:
        for repeat, values in repeats.items():
            counts[repeat] = min(len(values), counts.get(repeat, len(values)))
    length = max(1, -(-sum(counts.values()) // BLOCKS))
    for repeat, count in sorted(counts.items()):
        pieces = max(1, round(count / length)) if count else 0
        for at in range(pieces):
            yield _Block(repeat, at * count // pieces, (at + 1) * count // pieces)


def _times_in(case: CaseState, waits: Sequence[str], block: _Block) -> dict[int, RankTime]:
    """Return the medians of each rank in a block."""
    step = -(-(block.end - block.first) // MAX_IN_BLOCK)
    chosen = slice(block.first, block.end, step)
    times = {}
    for rank, repeats in case.measured.samples["time_ms"].items():
        if block.repeat not in repeats:
            continue
        whole = repeats[block.repeat][chosen]
        own = compute_active_times(case, waits, rank, block.repeat, chosen)
        complete = own is not None and len(own) == len(whole)
        times[rank] = RankTime(median(whole), median(own) if own and complete else None)
    return times


def _longest(lags: Sequence[bool]) -> range:
    """Return the longest run of blocks that begins and ends with a lag and has few exceptions."""
    best = range(0)
    for first, lag in enumerate(lags):
        count = 0
        for at in range(first, len(lags)) if lag else ():
            count += lags[at]
            length = at + 1 - first
            if lags[at] and count >= SHARE * length and length > len(best):
                best = range(first, at + 1)
    return best


def _seconds(case: CaseState, rank: int, block: _Block) -> float:
    values = case.measured.samples["time_ms"].get(rank, {}).get(block.repeat, array("d"))
    return clamp_to_floats(sum(values[block.first : block.end])) / 1000.0


def _started(case: CaseState, rank: int, block: _Block) -> float:
    """Return when a rank began a block: the start of timing and its iterations until then."""
    start = case.measured.timing.get(block.repeat, case.verdict.started or 0.0)
    return start + _seconds(case, rank, _Block(block.repeat, 0, block.first))
