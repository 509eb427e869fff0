"""Shares of a case's time: the metrics that are parts of another one, divided by it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spbench.record.case_state import CaseState
from spbench.record.metric_names import OTHER, find_remainder_name, format_metric_name


@dataclass(frozen=True, slots=True)
class Shares:
    """The parts of one metric in the benchmark's order, over iterations, repeats and ranks.

    Attributes:
        whole: The metric.
        parts: Of each part, by its name without the unit, its share: 1 is all of the whole.
        remainder: What takes the rest.
    """

    metric: str
    parts: Mapping[str, float]
    remainder: str = OTHER

    @property
    def unaccounted(self) -> float:
        """The share that none of the parts accounts for."""
        return max(0.0, 1.0 - sum(self.parts.values()))

    @property
    def text(self) -> str:
        """Return ``forward 38 %, backward 41 %, other 21 %``; what took no time is left out."""
        shown = {name: part for name, part in self.parts.items() if part > 0}
        shown |= {self.remainder: self.unaccounted} if round(100 * self.unaccounted) else {}
        return ", ".join(f"{name} {format_whole_percent(part)}" for name, part in shown.items())

    @property
    def title(self) -> str:
        """Return the name of the whole: ``mean step``."""
        return "mean step" if self.metric == "time_ms" else f"of {self.metric}"


def format_whole_percent(share: float) -> str:
    """Return a share as ``41 %`` or ``<1 %``, never with decimals."""
    return "<1 %" if share > 0 and not round(100 * share) else f"{100 * share:.0f} %"


def compute_all_shares(case: CaseState, rank: int | None = None) -> list[Shares]:
    """Return the shares of each metric that has parts, of one rank or of all together.

    Only iterations count of which the parts are known. Ranks weigh by their own time of a step.
    """
    wholes = dict.fromkeys(info.part_of for info in case.identity.metrics.values() if info.part_of)
    found = (compute_shares(case, whole, rank) for whole in wholes)
    return [known for known in found if known is not None]


def compute_shares(case: CaseState, whole: str, rank: int | None = None) -> Shares | None:
    """Return the shares of one metric; None where nothing was measured of it or of its parts."""
    infos = [info for info in case.identity.metrics.values() if info.part_of == whole]
    ranks = case.measured.samples.get(whole, {}) if rank is None else (rank,)
    sums = [0.0] * len(infos)
    total = 0.0
    for of in ranks:
        for repeat, values in case.measured.samples.get(whole, {}).get(of, {}).items():
            parts = [_values(case, info.name, of, repeat) for info in infos]
            count = min(len(values), max(map(len, parts), default=0))
            total += sum(values[:count])
            for at, part in enumerate(parts):
                sums[at] += sum(part[:count])
    if not total > 0 or not all(map(math.isfinite, (total, *sums))):
        return None
    names = (format_metric_name(info.name, info.unit) for info in infos)
    by_name = {name: part / total for name, part in zip(names, sums, strict=True)}
    return Shares(whole, by_name, find_remainder_name(case.identity.benchmark, whole))


def _values(case: CaseState, metric: str, rank: int, repeat: int) -> Sequence[float]:
    return case.measured.samples.get(metric, {}).get(rank, {}).get(repeat, ())


def list_ranks_with_shares(case: CaseState) -> list[int]:
    """Return the ranks that told parts of anything, in order."""
    parts = [info.name for info in case.identity.metrics.values() if info.part_of]
    return sorted({rank for name in parts for rank in case.measured.samples.get(name, {})})
