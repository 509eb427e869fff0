"""Comparison of ranks that do the same work, without their waits for other ranks.

A rank that waits for a slow one takes as long as that one. If the waits are measured, ranks are
compared without them. The shortest wait of any rank is the time of the exchange itself. It is added
again, so that a ratio compares complete iterations.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import sub
from typing import TYPE_CHECKING, Any

from spbench.stats.summary import clamp_to_floats, lower_median
from spbench.suites.case import describe_stage

if TYPE_CHECKING:
    from spbench.record.case_parts import CaseIdentity
    from spbench.record.case_state import CaseState

NOTABLE_RANK = 1.3
"""The smallest ratio to the typical rank's time with which a rank is reported as slow."""
_Coordinates = Mapping[str, Any]


def name_typical_rank(ranks: Collection[int], rank: int | None) -> str:
    """Return the name of the rank that a slow one is compared with.

    It is the other one of two ranks, and otherwise the median rank.

    Args:
        ranks: All ranks of the case.
        rank: The slow rank; None means all ranks of a host.
    """
    others = [other for other in ranks if other != rank]
    return f"rank {others[0]}" if len(ranks) == 2 and len(others) == 1 else "the median rank"


@dataclass(frozen=True, slots=True)
class RankTime:
    """A rank's median time in ms, in total and without its waits."""

    total: float
    active: float | None = None

    @property
    def waits(self) -> float | None:
        """The part of the median in which the rank waits for others; None if not measured."""
        return None if self.active is None else max(0.0, self.total - self.active)


@dataclass(frozen=True, slots=True)
class TypicalTime:
    """The time of the typical rank among those that do the same work.

    Attributes:
        active: Its time without waits, or its total time if waits are not measured.
        shortest_wait: The shortest wait of any of the ranks.
    """

    active: float
    shortest_wait: float


@dataclass(frozen=True, slots=True)
class RankRatios:
    """The ratios of ranks to the typical rank that does the same work.

    Attributes:
        typical: The typical time by the number of the work.
        ratios: By rank, its compared time over that of the typical rank with the same work.
        compared: By rank, the total time in ms. If waits are measured, it is the active time plus
            the shortest wait of any rank with the same work.
    """

    typical: Mapping[int, TypicalTime] = field(default_factory=dict)
    ratios: Mapping[int, float] = field(default_factory=dict)
    compared: Mapping[int, float] = field(default_factory=dict)


class RankComparison:
    """The comparison of a case's ranks with those that do the same work.

    Args:
        identity: The case.
    """

    def __init__(self, identity: CaseIdentity) -> None:
        self.waits = tuple(
            metric.name
            for metric in identity.metrics.values()
            if metric.waits and metric.part_of == "time_ms"
        )
        self._independent = identity.measures == "rank"
        stages = [describe_stage(coordinates) for coordinates in identity.coordinates]
        tiles = zip(stages, _describe_tiles(identity.coordinates, stages), strict=True)
        by_rank = identity.params.get("by_rank")
        programs = {str(rank) for rank in by_rank} if isinstance(by_rank, Mapping) else set()
        self._stage_works = _number_works(stages, identity.np, programs)
        self._tile_works = _number_works([*tiles], identity.np, programs)

    @property
    def is_uniform(self) -> bool:
        """Whether all ranks belong to one stage.

        Their tiles may have different neighbours.
        """
        return len(set(self._stage_works.values())) == 1

    def compare(self, times: Mapping[int, RankTime]) -> RankRatios:
        """Compare ranks; a rank has no ratio if no other rank does the same work."""
        has_waits = self._has_waits(times)
        typical_time_by_work: dict[int, TypicalTime] = {}
        ratio_by_rank: dict[int, float] = {}
        compared_ms_by_rank: dict[int, float] = {}
        for work, ranks in self._group_by_work(times).items():
            if len(ranks) < 2:
                continue
            totals_ms = [times[rank].total for rank in ranks]
            active_ms = [active for rank in ranks if (active := times[rank].active) is not None]
            compared_ms = active_ms if has_waits else totals_ms
            shortest_wait_ms = max(0.0, min(map(sub, totals_ms, compared_ms)))
            typical = TypicalTime(lower_median(compared_ms), shortest_wait_ms)
            typical_time_by_work[work] = typical
            compared_ms_by_rank |= {
                rank: rank_ms + shortest_wait_ms
                for rank, rank_ms in zip(ranks, compared_ms, strict=True)
            }
            typical_total_ms = typical.active + shortest_wait_ms
            if typical_total_ms > 0:
                ratio_by_rank |= {
                    rank: clamp_to_floats(compared_ms_by_rank[rank] / typical_total_ms)
                    for rank in ranks
                }
        return RankRatios(typical_time_by_work, ratio_by_rank, compared_ms_by_rank)

    def find_comparable(self, times: Mapping[int, RankTime]) -> dict[int, Sequence[int]]:
        """Return, for each rank, the ranks that do the same work, including itself."""
        groups = self._group_by_work(times).values()
        return {rank: ranks for ranks in groups for rank in ranks}

    def _group_by_work(self, times: Mapping[int, RankTime]) -> Mapping[int, Sequence[int]]:
        """Return the ranks by the number of their work.

        Without measured waits, all tiles of a stage count as the same work.
        """
        work_by_rank = self._tile_works if self._has_waits(times) else self._stage_works
        ranks_by_work: dict[int, list[int]] = defaultdict(list)
        for rank in times:
            ranks_by_work[work_by_rank.get(rank, 0)].append(rank)
        return ranks_by_work

    def separates(self, times: Mapping[int, RankTime]) -> bool:
        """Whether these times distinguish a slow rank from ranks that wait for it."""
        return self._independent or self._has_waits(times)

    def _has_waits(self, times: Mapping[int, RankTime]) -> bool:
        return all(time.active is not None for time in times.values())


def _number_works(works: Sequence[Hashable], np: int, programs: Container[str]) -> dict[int, int]:
    """Return the number of each rank's work, by rank; equal works have one number.

    Args:
        works: Descriptions of the ranks' works; ranks beyond its end all do the same work.
        np: The number of ranks.
        programs: The ranks with their own program, which no other rank runs.
    """
    number_by_work: dict[Hashable, int] = {}
    number_by_rank = {}
    for rank in range(np):
        work = works[rank] if rank < len(works) else None
        if str(rank) in programs:
            work = ("program", rank)
        number_by_rank[rank] = number_by_work.setdefault(work, len(number_by_work))
    return number_by_rank


def compute_active_times(
    case: CaseState, waits: Iterable[str], rank: int, repeat: int, iterations: slice = slice(None)
) -> list[float] | None:
    """Return a rank's times of a repeat in ms without its waits; None if not measured.

    Args:
        case: The case.
        waits: The names of the metrics that are waits.
        rank: The rank.
        repeat: The repeat.
        iterations: The iterations; those without a measured wait are left out.
    """
    samples = case.measured.samples
    all_waits = [samples.get(name, {}).get(rank, {}).get(repeat) for name in waits]
    measured_waits = [wait_ms[iterations] for wait_ms in all_waits if wait_ms is not None]
    if not measured_waits or len(measured_waits) < len(all_waits):
        return None
    total_ms = samples.get("time_ms", {}).get(rank, {}).get(repeat, ())[iterations]
    return list(map(sub, total_ms, map(sum, zip(*measured_waits, strict=False))))


def _describe_tiles(
    coordinates: Sequence[_Coordinates], stages: Sequence[Hashable]
) -> list[Hashable]:
    """Return the numbers of vertical and horizontal neighbours of each rank's tile."""
    tiles = [_parse_tile(rank_coordinates) for rank_coordinates in coordinates]
    last_tiles: dict[Hashable, tuple[int, int]] = {}
    for stage, tile in zip(stages, tiles, strict=True):
        if tile is not None:
            last_row, last_col = last_tiles.get(stage, (0, 0))
            last_tiles[stage] = max(last_row, tile[0]), max(last_col, tile[1])
    return [
        None if tile is None else tuple(map(_count_neighbours, tile, last_tiles[stage]))
        for stage, tile in zip(stages, tiles, strict=True)
    ]


def _parse_tile(coordinates: _Coordinates) -> tuple[int, int] | None:
    row, _, col = str(coordinates.get("tile", "")).partition(",")
    return (int(row), int(col)) if row.isdecimal() and col.isdecimal() else None


def _count_neighbours(index: int, last: int) -> int:
    return (index > 0) + (index < last)
