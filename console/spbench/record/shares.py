"""Shares of a case's time: metrics that are parts of another metric."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spbench.record.case_state import CaseState
from spbench.record.metric_names import find_remainder_name, format_metric_name
from spbench.record.number_formatting import format_value


@dataclass(frozen=True, slots=True)
class Shares:
    """The parts of one metric, over iterations, repeats and ranks.

    Attributes:
        metric: The metric.
        parts: The share of each part, by its name without the unit; 1 is the entire metric.
        remainder: The name of the unaccounted share.
        mean: The mean of the metric, in its unit.
        unit: The unit of the metric.
    """

    metric: str
    parts: Mapping[str, float]
    remainder: str
    mean: float
    unit: str

    @property
    def unaccounted(self) -> float:
        """The share that no part accounts for."""
        return max(0.0, 1.0 - sum(self.parts.values()))

    @property
    def text(self) -> str:
        """``forward 38 %, backward 41 %, other 21 %``, without parts that took no time."""
        return ", ".join(
            f"{name} {format_whole_percent(part)}" for name, part in self._select_shown().items()
        )

    def _select_shown(self) -> dict[str, float]:
        """Return the parts that took time, and the remainder if it is not negligible."""
        shown = {name: part for name, part in self.parts.items() if part > 0}
        return shown | ({self.remainder: self.unaccounted} if round(100 * self.unaccounted) else {})

    def list_times(self) -> list[tuple[str, str]]:
        """Return each part that took time with its mean and its share: ``3.72 ms, 38 %``."""
        return [
            (name, f"{format_value(part * self.mean, self.unit)}, {format_whole_percent(part)}")
            for name, part in self._select_shown().items()
        ]

    @property
    def title(self) -> str:
        """``mean step``, or ``of`` and the name of another metric."""
        return "mean step" if self.metric == "time_ms" else f"of {self.metric}"


def format_whole_percent(share: float) -> str:
    """Return a share as ``41 %`` or ``<1 %``, never with decimals."""
    return "<1 %" if share > 0 and not round(100 * share) else f"{100 * share:.0f} %"


def compute_all_shares(case: CaseState, rank: int | None = None) -> list[Shares]:
    """Return the shares of each metric with parts, of one rank or of all.

    Only iterations with known parts count. Ranks are weighted by their own time of a step.
    """
    metrics = dict.fromkeys(info.part_of for info in case.identity.metrics.values() if info.part_of)
    all_shares = (compute_shares(case, metric, rank) for metric in metrics)
    return [shares for shares in all_shares if shares is not None]


def compute_shares(case: CaseState, metric: str, rank: int | None = None) -> Shares | None:
    """Return the shares of one metric; None if it or its parts were not measured."""
    infos = [info for info in case.identity.metrics.values() if info.part_of == metric]
    ranks = case.measured.samples.get(metric, {}) if rank is None else (rank,)
    part_sums = [0.0] * len(infos)
    metric_sum = 0.0
    num_iterations = 0
    for number in ranks:
        for repeat, values in case.measured.samples.get(metric, {}).get(number, {}).items():
            parts = [_get_values(case, info.name, number, repeat) for info in infos]
            num_complete = min(len(values), max(map(len, parts), default=0))
            metric_sum += sum(values[:num_complete])
            num_iterations += num_complete
            for index, part in enumerate(parts):
                part_sums[index] += sum(part[:num_complete])
    if not metric_sum > 0 or not all(map(math.isfinite, (metric_sum, *part_sums))):
        return None
    names = (format_metric_name(info.name, info.unit) for info in infos)
    by_name = {name: part / metric_sum for name, part in zip(names, part_sums, strict=True)}
    spec = case.identity.metrics.get(metric)
    return Shares(
        metric,
        by_name,
        find_remainder_name(case.identity.benchmark, metric),
        metric_sum / num_iterations,
        spec.unit if spec is not None else "",
    )


def _get_values(case: CaseState, metric: str, rank: int, repeat: int) -> Sequence[float]:
    return case.measured.samples.get(metric, {}).get(rank, {}).get(repeat, ())


def list_ranks_with_shares(case: CaseState) -> list[int]:
    """Return the ranks that sent parts of any metric, in order."""
    parts = [info.name for info in case.identity.metrics.values() if info.part_of]
    return sorted({rank for name in parts for rank in case.measured.samples.get(name, {})})
