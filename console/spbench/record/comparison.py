"""The comparison of ranks that do the same work, by the part of their times that is their own.

A rank that waits for a slow one takes as long as that one. If the waits are measured, ranks are
compared without them. The shortest wait of any rank is the time that the exchange itself takes. It
is added again, so that a ratio is one of whole iterations.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from spbench.record.places import MIRRORED
from spbench.record.statistics import typical, within_floats

if TYPE_CHECKING:
    from spbench.record.case_state import CaseIdentity, CaseState

NOTABLE_RANK = 1.3
"""A rank this many times slower than the typical one is named."""
_STAGES = ("stage", "stages")
_Place = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RankTime:
    """A rank's median time, and the median without its waits; None: waits are not measured."""

    whole: float
    own: float | None = None


@dataclass(frozen=True, slots=True)
class Scale:
    """The typical rank of some that do the same work.

    Attributes:
        middle: Its own time, or its whole time if waits are not measured.
        floor: The shortest wait of any of the ranks.
        separates: Whether a slow rank is told from the ranks that wait for it.
    """

    middle: float
    floor: float
    separates: bool

    def ratio(self, time: RankTime) -> float | None:
        """Return how many times as long a rank takes; None if the typical rank takes no time."""
        value = time.own if self.separates and time.own is not None else time.whole
        whole = self.middle + self.floor
        return within_floats((value + self.floor) / whole) if whole > 0 else None


@dataclass(frozen=True, slots=True)
class Compared:
    """The scale of each kind of work, and the ratio of each rank to the typical one of its kind."""

    scales: Mapping[Hashable, Scale] = field(default_factory=dict)
    ratios: Mapping[int, float] = field(default_factory=dict)


class RankComparison:
    """Compares the ranks of a case with those that do the same work.

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
        self._programs = {str(rank) for rank in identity.params.get("by_rank") or ()}
        stages = [_stage(place) for place in identity.places]
        self._stages: list[Hashable] = [*stages]
        tiles = _tile_kinds(identity.places, stages)
        self._tiles: list[Hashable] = [*zip(stages, tiles, strict=True)]

    def compare(self, times: Mapping[int, RankTime]) -> Compared:
        """Compare ranks; one that alone does its work has no ratio."""
        separates = self._separates(times)
        kinds = defaultdict(list)
        for rank in times:
            kinds[self._kind(rank, separates=separates)].append(rank)
        scales, ratios = {}, {}
        for kind, ranks in kinds.items():
            if len(ranks) < 2:
                continue
            scale = _scale([times[rank] for rank in ranks], separates=separates)
            scales[kind] = scale
            for rank in ranks:
                ratio = scale.ratio(times[rank])
                if ratio is not None:
                    ratios[rank] = ratio
        return Compared(scales, ratios)

    def separates(self, times: Mapping[int, RankTime]) -> bool:
        """Whether these times tell a slow rank from those that wait for it."""
        return self._independent or self._separates(times)

    def _separates(self, times: Mapping[int, RankTime]) -> bool:
        return all(time.own is not None for time in times.values())

    def _kind(self, rank: int, *, separates: bool) -> Hashable:
        """Return what a rank does; tiles with other neighbours pack more or less of their own."""
        if str(rank) in self._programs:
            return rank
        kinds = self._tiles if separates else self._stages
        return kinds[rank] if rank < len(kinds) else None


def _scale(times: Sequence[RankTime], *, separates: bool) -> Scale:
    owns = [time.own for time in times if time.own is not None]
    if not separates:
        return Scale(typical(time.whole for time in times), 0.0, separates=False)
    waits = (time.whole - own for time, own in zip(times, owns, strict=True))
    return Scale(typical(owns), max(0.0, min(waits)), separates=True)


def own_times(
    case: CaseState, waits: Iterable[str], rank: int, repeat: int, first: int = 0
) -> list[float] | None:
    """Return a rank's times of a repeat without its waits, from an iteration on.

    Return None if waits are not measured, on this rank or at all.
    """
    samples = case.measured.samples
    parts = [samples.get(name, {}).get(rank, {}).get(repeat) for name in waits]
    known = [part for part in parts if part is not None]
    if not known or len(known) < len(parts):
        return None
    times = samples.get("time_ms", {}).get(rank, {}).get(repeat, ())
    count = min(len(times), *map(len, known))
    return [times[at] - sum(part[at] for part in known) for at in range(first, count)]


def _stage(place: _Place) -> Hashable:
    """Return the stages of a rank, in both directions, and whether it is a server."""
    names = (prefix + name for prefix in ("", MIRRORED) for name in _STAGES)
    return (*(str(place.get(name)) for name in names), "server" in place)


def _tile_kinds(places: Sequence[_Place], stages: Sequence[Hashable]) -> list[Hashable]:
    """Return the neighbours that each rank's tile has, up and down and to its sides."""
    tiles = [_tile(place) for place in places]
    last: dict[Hashable, tuple[int, int]] = {}
    for stage, tile in zip(stages, tiles, strict=True):
        if tile is not None:
            rows, cols = last.get(stage, (0, 0))
            last[stage] = max(rows, tile[0]), max(cols, tile[1])
    return [
        None if tile is None else tuple(map(_neighbours, tile, last[stage]))
        for stage, tile in zip(stages, tiles, strict=True)
    ]


def _tile(place: _Place) -> tuple[int, int] | None:
    row, _, col = str(place.get("tile", "")).partition(",")
    return (int(row), int(col)) if row.isdecimal() and col.isdecimal() else None


def _neighbours(at: int, last: int) -> int:
    return (at > 0) + (at < last)
