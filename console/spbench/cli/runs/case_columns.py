"""The columns of the table of cases, and the cells of a case."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from spbench.record.case_parts import MetricDescription
from spbench.record.case_state import CaseState
from spbench.record.efficiency import MAX_EFFICIENCY, compute_efficiency, format_efficiency
from spbench.record.metric_names import list_separate_metrics
from spbench.record.number_formatting import (
    format_count,
    format_size,
    format_time,
    format_value,
)

_RATE_UNITS = ("GB/s", "GFLOP/s", "1/s")
_SIZE_KEY = re.compile(r"(?<=[\[,])size=[^,\]]*,?")


@dataclass(frozen=True, slots=True)
class CaseCells:
    """A case with values that several cells need, computed once.

    Attributes:
        time: The median of the slowest rank in ms; None if it was not measured.
        reference: The reference of the time in ms; None if it has none.
        disturbed: Whether the times are not those of the hardware.
        noisy: Whether other work disturbed them.
    """

    case: CaseState
    time: float | None
    reference: float | None
    disturbed: bool
    noisy: bool

    @property
    def efficiency(self) -> float | None:
        """The reference over the time."""
        return compute_efficiency(self.time, self.reference)

    @property
    def notes(self) -> set[str]:
        """The keys of the notes that explain the signs of the row."""
        efficiency = self.efficiency
        return {
            key
            for key, is_needed in (
                ("efficiency", efficiency is not None),
                ("disturbed", efficiency is not None and self.disturbed),
                ("above", 1.005 <= (efficiency or 0.0) <= MAX_EFFICIENCY),
                ("far above", (efficiency or 0.0) > MAX_EFFICIENCY),
                ("repeats", self.case.repeats > 1),
                ("noisy", self.noisy),
            )
            if is_needed
        }


@dataclass(frozen=True, slots=True)
class CaseColumn:
    """A column of values; the least important columns are left out first.

    ``metric`` is the metric that it shows, if it is the same in all rows.
    """

    title: str
    width: int
    importance: int
    cell: Callable[[CaseCells], str]
    metric: str = ""


def make_case_columns(cases: Sequence[CaseState]) -> list[CaseColumn]:
    """Return the columns of cases that are not part of a sweep of collectives."""
    rank_counts = {case.identity.np for case in cases}
    digits_of_ranks = len(str(max(rank_counts, default=1)))
    check_counts = (case.identity.np * len(case.identity.declared_checks) for case in cases)
    digits_of_checks = len(str(max(check_counts, default=1)))
    rates = [rate for case in cases if (rate := find_rate_metric(case)) is not None]
    all_bandwidths = all(rate.unit == "GB/s" for rate in rates)
    columns = [
        CaseColumn("ranks", max(5, digits_of_ranks), 3, lambda row: str(row.case.identity.np)),
        CaseColumn("time", 8, 9, _time_cell),
        CaseColumn("reference", 9, 5, _reference_cell),
        CaseColumn("efficiency", 10, 7, _efficiency_cell),
        CaseColumn("bandwidth" if all_bandwidths else "rate", 15, 1, rate_cell),
        CaseColumn("checks", max(6, 2 * digits_of_checks + 1), 4, _checks_cell),
    ]
    unused_titles = {"ranks"} if len(rank_counts) < 2 else set()
    if not rates:
        unused_titles |= {"bandwidth", "rate"}
    return [column for column in columns if column.title not in unused_titles]


def make_sweep_columns(cases: Sequence[CaseState]) -> list[CaseColumn]:
    """Return the columns of a sweep of collectives, like those of nccl-tests."""
    rank_counts = {case.identity.np for case in cases}
    columns = [
        CaseColumn("ranks", 5, 2, lambda row: str(row.case.identity.np)),
        CaseColumn("size", 8, 9, _message_size_cell),
        CaseColumn("count", 7, 1, _element_count_cell),
        CaseColumn("type", 5, 2, lambda row: str(row.case.identity.params.get("dtype", "-"))),
        CaseColumn("time", 8, 9, _time_cell),
        CaseColumn("algbw", 9, 5, lambda row: _median_cell(row.case, "algbw_gb_s"), "algbw_gb_s"),
        CaseColumn("busbw", 9, 8, lambda row: _median_cell(row.case, "busbw_gb_s"), "busbw_gb_s"),
        CaseColumn("reference", 9, 1, _reference_cell),
        CaseColumn("#wrong", 6, 7, _wrong_elements_cell, "wrong"),
        CaseColumn("efficiency", 10, 4, _efficiency_cell),
    ]
    return columns if len(rank_counts) > 1 else columns[1:]


def is_collective(case: CaseState) -> bool:
    """Return whether a case is a point of a sweep of collectives."""
    return "busbw_gb_s" in case.identity.metrics and "size" in case.identity.params


def shown_id(case: CaseState) -> str:
    """Return the id of a case in the table, without the size in a sweep."""
    return _id_without_size(case) if is_collective(case) else case.id


def _id_without_size(case: CaseState) -> str:
    name = _SIZE_KEY.sub("", case.id).replace(",]", "]")
    return name.removesuffix("[]")


def _time_cell(row: CaseCells) -> str:
    return "-" if row.time is None else format_time(row.time)


def _reference_cell(row: CaseCells) -> str:
    return "-" if row.reference is None else format_time(row.reference)


def _efficiency_cell(row: CaseCells) -> str:
    return format_efficiency(row.efficiency, disturbed=row.disturbed) or "-"


def _checks_cell(row: CaseCells) -> str:
    passed, total = row.case.check_counts
    return f"{passed}/{total}" if total else "-"


def find_rate_metric(case: CaseState) -> MetricDescription | None:
    """Return the first rate of the timed work; None if there is none."""
    separate = list_separate_metrics(case.identity.benchmark)
    rates = (
        metric
        for metric in case.identity.metrics.values()
        if metric.unit in _RATE_UNITS and metric.better == "higher" and metric.name not in separate
    )
    return next(rates, None)


def rate_cell(row: CaseCells) -> str:
    """Return the rate of a row; this function marks the column of rates."""
    rate = find_rate_metric(row.case)
    return "-" if rate is None else _median_cell(row.case, rate.name)


def _median_cell(case: CaseState, metric: str) -> str:
    summary = case.summary(metric)
    if summary is None:
        return "-"
    return format_value(summary.p50, case.identity.metrics[metric].unit, metric)


def _message_size_cell(row: CaseCells) -> str:
    message_bytes = row.case.identity.params.get("size")
    return format_size(message_bytes) if isinstance(message_bytes, int) else "-"


def _wrong_elements_cell(row: CaseCells) -> str:
    summary = row.case.summary("wrong")
    # The worst repeat: a median would hide wrong elements of a few repeats.
    return "-" if summary is None else format_count(math.ceil(summary.max))


def _element_count_cell(row: CaseCells) -> str:
    summary = row.case.summary("count")
    return "-" if summary is None else format_count(summary.p50)
