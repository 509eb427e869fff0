"""Scaling: speed-up and efficiency of a case over numbers of ranks.

The speed-up is the ratio of the rates (work over time) to the rate on the fewest ranks. The
efficiency is the speed-up over the ratio of the ranks. Both definitions apply to strong and weak
scaling. A launch is one sample, and the interval of a ratio is that of `stats.difference`. More
ranks are worthwhile if each added rank contributes a given share of the rate of one of the first
ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from spbench.record.number_formatting import DISTURBED, format_percent, format_time
from spbench.report.comparison.model import HEADLINE
from spbench.report.model import CasePart
from spbench.report.recorded import RecordedRun
from spbench.stats.difference import Difference, compute_min_launches, estimate_difference
from spbench.stats.summary import median
from spbench_core.events.statuses import CaseStatus
from spbench_core.number_text import format_quantity

DEFAULT_LEAST_GAIN = 0.5
"""The default of the gain that makes an added rank worthwhile."""
SCALING_COLUMNS = (
    *("case", "work", "ranks", "time", "speed-up"),
    *("efficiency", "95 % interval", "reference", "gain", "note"),
)
SCALING_NUMBER_COLUMNS = (2, 3, 4, 5, 6, 7, 8)
"""The indices of columns with numbers."""
_BUBBLE = "ideal_bubble"
_SEQUENTIAL_TIME = "sequential_ms"


@dataclass(frozen=True, slots=True)
class ScalingRow:
    """A case on one number of ranks.

    Attributes:
        time_ms: The median time; None without a result.
        speedup: The rate over that on the fewest ranks.
        efficiency: The speed-up over the ratio of the ranks.
        interval: The ends of the efficiency's 95 % interval; None with too few launches.
        limit: The efficiency that the case's reference allows.
        gain: The rate that each added rank contributes, over that of one of the first ranks.
        most_gain: The upper end of the gain's interval; None with too few launches.
        note: The reason why numbers are missing or unreliable.
    """

    case: str
    np: int
    time_ms: float | None = None
    speedup: float | None = None
    efficiency: float | None = None
    interval: tuple[float, float] | None = None
    limit: float | None = None
    gain: float | None = None
    most_gain: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Scaling:
    """A case over its numbers of ranks.

    Attributes:
        of: The case's id without the number of ranks.
        work: ``strong`` (the total work is constant) or ``weak`` (the work per rank is constant).
        rows: One for each number of ranks, in ascending order.
        pays_to: The largest worthwhile number of ranks; None with fewer than two results.
        sentence: The message on this number.
    """

    of: str
    work: str
    rows: tuple[ScalingRow, ...]
    pays_to: int | None
    sentence: str


def compute_scalings(run: RecordedRun, least_gain: float = DEFAULT_LEAST_GAIN) -> list[Scaling]:
    """Return the scaling of each case that a run has on several numbers of ranks.

    Args:
        run: The run.
        least_gain: The gain that makes an added rank worthwhile.
    """
    cases_by_scaling: dict[str, list[CasePart]] = {}
    for case in run.cases.values():
        if case.scaled is not None:
            cases_by_scaling.setdefault(case.scaled.of, []).append(case)
    return [
        _make_scaling(id_, sorted(cases, key=lambda case: case.np), least_gain)
        for id_, cases in cases_by_scaling.items()
    ]


def _make_scaling(id_: str, cases: Sequence[CasePart], least_gain: float) -> Scaling:
    measured_cases = [
        case for case in cases if case.status == CaseStatus.PASSED and _list_launch_rates(case)
    ]
    row_by_ranks = {
        case.np: ScalingRow(case.id, case.np, note=_explain_missing(case)) for case in cases
    }
    for previous_case, case in zip([None, *measured_cases], measured_cases, strict=False):
        row_by_ranks[case.np] = _make_row(measured_cases[0], previous_case, case)
    all_rows = tuple(row_by_ranks.values())
    with_results = [row for row in all_rows if row.speedup is not None]
    pays_to, message = _find_largest_worthwhile(with_results, least_gain)
    assert cases[0].scaled is not None
    return Scaling(id_, cases[0].scaled.work, all_rows, pays_to, f"{id_}: {message}")


def _explain_missing(case: CasePart) -> str:
    if case.status == CaseStatus.PASSED:
        return "it has no times"
    return case.reason or case.status


def _make_row(first_case: CasePart, previous_case: CasePart | None, case: CasePart) -> ScalingRow:
    rank_ratio = case.np / first_case.np
    speedup = estimate_difference(_list_launch_rates(first_case), _list_launch_rates(case))
    gain, most_gain = (
        (None, None) if previous_case is None else _estimate_gain(first_case, previous_case, case)
    )
    limit_rate = _find_limit_rate(case)
    return ScalingRow(
        case.id,
        case.np,
        time_ms=case.metrics[HEADLINE].value,
        speedup=speedup.ratio,
        efficiency=speedup.ratio / rank_ratio,
        interval=_compute_efficiency_interval(speedup, rank_ratio)
        if case is not first_case
        else None,
        limit=None
        if limit_rate is None
        else limit_rate / _compute_median_rate(first_case) / rank_ratio,
        gain=gain,
        most_gain=most_gain,
        note=_describe_disturbance(case),
    )


def _describe_disturbance(case: CasePart) -> str:
    reasons = ("more ranks than cores" if case.crowded else "", "noisy" if case.noisy else "")
    return ", ".join(filter(None, reasons))


def _compute_efficiency_interval(
    speedup: Difference, rank_ratio: float
) -> tuple[float, float] | None:
    if speedup.low is None or speedup.high is None:
        return None
    return speedup.low / rank_ratio, speedup.high / rank_ratio


class _Gain(NamedTuple):
    """The gain of each added rank, and the upper end of its interval."""

    gain: float
    most_gain: float | None


def _estimate_gain(first_case: CasePart, previous_case: CasePart, case: CasePart) -> _Gain:
    """Return the gain of each added rank, and the upper end of its interval.

    The unit is the rate of one of the first ranks.
    """
    rate_ratio = estimate_difference(_list_launch_rates(previous_case), _list_launch_rates(case))
    ideal_added_rate = (
        _compute_median_rate(first_case) / first_case.np * (case.np - previous_case.np)
    )
    gain_per_ratio = _compute_median_rate(previous_case) / ideal_added_rate
    most_gain = None if rate_ratio.high is None else gain_per_ratio * (rate_ratio.high - 1.0)
    return _Gain(gain_per_ratio * (rate_ratio.ratio - 1.0), most_gain)


def _find_largest_worthwhile(
    rows: Sequence[ScalingRow], least_gain: float
) -> tuple[int | None, str]:
    """Return the largest worthwhile number of ranks, and a message."""
    if len(rows) < 2:
        return None, "there are figures of fewer than two numbers of ranks."
    for previous, row in pairwise(rows):
        gain = row.gain if row.most_gain is None else row.most_gain
        if gain is not None and gain < least_gain:
            reason = _describe_gain(previous, row, least_gain)
            return previous.np, f"it pays to {format_quantity(previous.np, 'rank')}: {reason}."
    return rows[-1].np, f"it pays to the most ranks that were tried, {rows[-1].np}."


def _describe_gain(previous: ScalingRow, row: ScalingRow, least_gain: float) -> str:
    assert row.gain is not None
    bound_text = "" if row.most_gain is None else f" (at most {format_percent(row.most_gain)})"
    gain_text = (
        f"from {previous.np} to {row.np} ranks, an added rank brings {format_percent(row.gain)}"
    )
    least_text = format_percent(least_gain)
    return f"{gain_text}{bound_text} of what one of the first does, less than {least_text}"


def _list_launch_rates(case: CasePart) -> list[float]:
    """Return the rate of each launch, in the same unit for all numbers of ranks."""
    scaled = case.scaled
    assert scaled is not None
    if scaled.throughput is not None:
        return [rate for rate in case.medians.get(scaled.throughput, ()) if rate > 0]
    return [_get_relative_work(case) / time for time in case.medians.get(HEADLINE, ()) if time > 0]


def _compute_median_rate(case: CasePart) -> float:
    return median(_list_launch_rates(case))


def _get_relative_work(case: CasePart) -> float:
    return float(case.np) if case.scaled is not None and case.scaled.work == "weak" else 1.0


def _find_limit_rate(case: CasePart) -> float | None:
    """Return the rate that the case's reference allows, less the schedule's bubble."""
    scaled = case.scaled
    assert scaled is not None
    name = scaled.throughput or HEADLINE
    reference = case.limits.get(name)
    sequential_time = case.metrics.get(_SEQUENTIAL_TIME)
    reference_value = reference.value if reference is not None else None
    if reference_value is None and sequential_time is not None and scaled.throughput is None:
        reference_value = sequential_time.value / case.np
    if not reference_value:
        return None
    bubble = case.metrics.get(_BUBBLE)
    busy_share = 1.0 - bubble.value if bubble is not None else 1.0
    return (
        reference_value if scaled.throughput else _get_relative_work(case) / reference_value
    ) * busy_share


def scaling_rows(scalings: Iterable[Scaling]) -> Iterator[tuple[str, ...]]:
    """Yield the cells of `SCALING_COLUMNS`: one row for each number of ranks.

    Speed-up, efficiency and gain of a row with a note are unreliable and begin with ``~``.
    """
    for scaling in scalings:
        for row in scaling.rows:
            prefix = DISTURBED if row.note else ""
            yield (
                *(scaling.of, scaling.work, str(row.np)),
                _format_cell(row.time_ms, format_time),
                _format_cell(row.speedup, _format_speedup, prefix),
                _format_cell(row.efficiency, format_percent, prefix),
                _format_interval(row.interval),
                _format_cell(row.limit, format_percent),
                _format_cell(row.gain, format_percent, prefix),
                row.note,
            )


def _format_cell(
    figure: float | None, format_value: Callable[[float], str], prefix: str = ""
) -> str:
    return "" if figure is None else prefix + format_value(figure)


def _format_speedup(speedup: float) -> str:
    return f"{speedup:.2f}x"


def _format_interval(ends: tuple[float, float] | None) -> str:
    if ends is None:
        return ""
    low, high = map(format_percent, ends)
    return f"{low.removesuffix(' %')} to {high}"


def scaling_remarks(scalings: Sequence[Scaling]) -> list[str]:
    """Return the remarks below the table: the worthwhile ranks, and needed launches."""
    remarks = [scaling.sentence for scaling in scalings]
    rows = [row for scaling in scalings for row in scaling.rows if row.gain is not None]
    if any(row.most_gain is None for row in rows):
        needed = compute_min_launches(1)
        remarks.append(f"Intervals need {needed} launches of each, as by --set repeat={needed}.")
    return remarks


def scaling_objects(scalings: Sequence[Scaling]) -> list[Mapping[str, Any]]:
    """Return the JSON objects of scalings."""
    return [asdict(scaling) for scaling in scalings]
