"""The ranks of a case that does not run now, from what its state has kept."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

from spbench.record.case_state import CaseState
from spbench.record.comparison import RankComparison, RankTime
from spbench.record.coordinates import CoordinateName, list_coordinate_names
from spbench.record.rank_rows import RankFigures, RankRow
from spbench.tui.run.rank_source import UPDATE_SECONDS, RankSource
from spbench_core.events.statuses import RankPhase, RankStatus

_PHASES = {
    RankStatus.WAITING: RankPhase.STARTING,
    RankStatus.RUNNING: RankPhase.UNFINISHED,
    RankStatus.OK: RankPhase.DONE,
    RankStatus.ERROR: RankPhase.ERROR,
    RankStatus.LOST: RankPhase.LOST,
}


class RecordedRanks(RankSource):
    """A case's ranks; those that were not counted yet have no figures."""

    def __init__(self, case: CaseState) -> None:
        super().__init__()
        self._case = case
        self._ranks = sorted(case.measured.ranks)
        self._place_names = list_coordinate_names(case.identity.coordinates)
        self._figures: dict[int, RankFigures] = {}
        self._medians: dict[int, float] = {}
        self._comparison = RankComparison(case.identity)
        self._times: dict[int, RankTime] = {}
        self._skews: Mapping[int, float] = {}
        self._waiting: Iterator[int] = iter(self._ranks)
        self._looks = 0

    @property
    def case(self) -> CaseState:
        return self._case

    @property
    def busy(self) -> bool:
        return not self._looks

    def update(self) -> None:
        """Count a few more ranks; they are compared when all are counted."""
        super().update()
        until = time.monotonic() + UPDATE_SECONDS
        for rank in self._waiting:
            self._count(rank)
            if time.monotonic() > until:
                return
        if not self._looks:
            self._looks = 1
            self._skews = self._comparison.compare(self._times).ratios

    def _count(self, rank: int) -> None:
        figures = self._figures[rank] = RankFigures(rank, self._case, self._comparison)
        median = figures.take_times()
        if median is not None and figures.time is not None:
            self._medians[rank] = median
            self._times[rank] = figures.time

    def place_names(self) -> tuple[CoordinateName, ...]:
        return self._place_names

    def ranks(self) -> Sequence[int]:
        return self._ranks

    def stamp(self, rank: int) -> int:
        return self._looks + (rank in self._figures)

    def row(self, rank: int) -> RankRow | None:
        part = self._case.measured.ranks.get(rank)
        if part is None:
            return None
        figures = self._figures.get(rank) or RankFigures(rank, self._case)
        phase = _PHASES[part.status]
        return RankRow(
            rank=rank,
            host=part.host,
            coordinates=figures.coordinates,
            phase=phase,
            activity=phase.value,
            iterations=len(figures.times),
            last=self._last(rank),
            p50=figures.p50,
            p95=figures.percentile(0.95),
            p99=figures.percentile(0.99),
            skew=self._skews.get(rank),
            gb_s=figures.gb_s(self._case.repeats - 1),
            check=figures.check(),
            recent=figures.recent(),
            active=figures.active.median() if figures.active else None,
        )

    def _last(self, rank: int) -> float | None:
        repeats = self._case.measured.samples.get("time_ms", {}).get(rank)
        values = repeats[max(repeats)] if repeats else None
        return values[-1] if values else None

    def medians(self) -> Mapping[int, float]:
        return self._medians

    def skews(self) -> Mapping[int, float]:
        return self._skews
