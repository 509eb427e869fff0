"""Scaling: the cases of one entry over numbers of ranks, their efficiency and where it ends.

The speed-up is the work over time on some ranks over that on the fewest, the efficiency the
speed-up over the ratio of the ranks, for strong and weak scaling alike. A launch is one sample, and
the interval of a ratio is that of `difference`. More ranks pay as long as each that is added brings
a given share of what one of the fewest brings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from spbench.record.number_formatting import DISTURBED, format_percent, format_time
from spbench.report.comparison.model import HEADLINE
from spbench.report.model import CasePart
from spbench.report.recorded import RecordedRun
from spbench.stats.difference import Difference, estimate_difference, least_launches
from spbench.stats.summary import median
from spbench_core.events.statuses import CaseStatus
from spbench_core.quantities import format_quantity

DEFAULT_LEAST_GAIN = 0.5
"""The share of a rank that one more is to bring, unless told otherwise."""
SCALING_COLUMNS = (
    *("case", "work", "ranks", "time", "speed-up"),
    *("efficiency", "95 % interval", "reference", "gain", "note"),
)
SCALING_NUMBER_COLUMNS = (2, 3, 4, 5, 6, 7, 8)
"""The columns of numbers."""
_BUBBLE = "ideal_bubble"
_BY_ONE = "sequential_ms"


@dataclass(frozen=True, slots=True)
class ScalingRow:
    """A case on one number of ranks.

    Attributes:
        time_ms: The median time; None where the case came to none.
        speedup: The work over time, over that on the fewest ranks.
        efficiency: That over the ratio of the ranks.
        interval: The ends of the efficiency's 95 % interval; None with too few launches.
        limit: The efficiency that the case's limit allows.
        gain: What each rank brings that the row before had not, over what one of the fewest brings.
        most_gain: The most that it can be by its interval; None with too few launches.
        note: Why figures lack, or say little.
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
        work: ``strong``: the work of all stays the same; ``weak``: that of a rank.
        rows: One for each number of ranks, rising.
        pays_to: The most ranks that pay; None where there are no figures of two.
        sentence: Where it stops to pay.
    """

    of: str
    work: str
    rows: tuple[ScalingRow, ...]
    pays_to: int | None
    sentence: str


def compute_scalings(run: RecordedRun, least_gain: float = DEFAULT_LEAST_GAIN) -> list[Scaling]:
    """Return what a run says of scaling, for each case that it has on several numbers of ranks.

    Args:
        run: The run.
        least_gain: The share of a rank that one more is to bring.
    """
    groups: dict[str, list[CasePart]] = {}
    for case in run.cases.values():
        if case.scaled is not None:
            groups.setdefault(case.scaled.of, []).append(case)
    return [_scaling(of, sorted(cases, key=_np), least_gain) for of, cases in groups.items()]


def _np(case: CasePart) -> int:
    return case.np


def _scaling(of: str, cases: Sequence[CasePart], worth: float) -> Scaling:
    measured = [case for case in cases if case.status == CaseStatus.PASSED and _rates(case)]
    rows = {case.np: ScalingRow(case.id, case.np, note=_missing(case)) for case in cases}
    for before, case in zip([None, *measured], measured, strict=False):
        rows[case.np] = _row(measured[0], before, case)
    shown = tuple(rows.values())
    pays_to, sentence = _pays([row for row in shown if row.speedup is not None], worth)
    assert cases[0].scaled is not None
    return Scaling(of, cases[0].scaled.work, shown, pays_to, f"{of}: {sentence}")


def _missing(case: CasePart) -> str:
    return case.reason or case.status if case.status != CaseStatus.PASSED else "it has no times"


def _row(first: CasePart, before: CasePart | None, case: CasePart) -> ScalingRow:
    ranks = case.np / first.np
    whole = estimate_difference(_rates(first), _rates(case))
    gain, most = (None, None) if before is None else _gain(first, before, case)
    limit = _limit(case)
    return ScalingRow(
        case.id,
        case.np,
        time_ms=case.metrics[HEADLINE].value,
        speedup=whole.ratio,
        efficiency=whole.ratio / ranks,
        interval=_divided(whole, ranks) if case is not first else None,
        limit=None if limit is None else limit / _rate(first) / ranks,
        gain=gain,
        most_gain=most,
        note=_note(case),
    )


def _note(case: CasePart) -> str:
    reasons = ("more ranks than cores" if case.crowded else "", "noisy" if case.noisy else "")
    return ", ".join(filter(None, reasons))


def _divided(whole: Difference, ranks: float) -> tuple[float, float] | None:
    if whole.low is None or whole.high is None:
        return None
    return whole.low / ranks, whole.high / ranks


def _gain(first: CasePart, before: CasePart, case: CasePart) -> tuple[float, float | None]:
    """Return what each added rank brings, over one of the first, and the most that it can be."""
    step = estimate_difference(_rates(before), _rates(case))
    # Of the rates of one of the first ranks.
    unit = _rate(first) / first.np * (case.np - before.np)
    gained = _rate(before) / unit
    most = None if step.high is None else gained * (step.high - 1.0)
    return gained * (step.ratio - 1.0), most


def _pays(rows: Sequence[ScalingRow], worth: float) -> tuple[int | None, str]:
    if len(rows) < 2:
        return None, "there are figures of fewer than two numbers of ranks."
    for before, row in pairwise(rows):
        gain = row.gain if row.most_gain is None else row.most_gain
        if gain is not None and gain < worth:
            return (
                before.np,
                f"it pays to {format_quantity(before.np, 'rank')}: {_brings(before, row, worth)}.",
            )
    return rows[-1].np, f"it pays to the most ranks that were tried, {rows[-1].np}."


def _brings(before: ScalingRow, row: ScalingRow, worth: float) -> str:
    assert row.gain is not None
    bound = "" if row.most_gain is None else f" (at most {format_percent(row.most_gain)})"
    added = f"from {before.np} to {row.np} ranks, an added rank brings {format_percent(row.gain)}"
    return f"{added}{bound} of what one of the first does, less than {format_percent(worth)}"


def _rates(case: CasePart) -> list[float]:
    """Return the work over time of each launch, in one unit for all numbers of ranks."""
    scaled = case.scaled
    assert scaled is not None
    if scaled.throughput is not None:
        return [rate for rate in case.medians.get(scaled.throughput, ()) if rate > 0]
    return [_work(case) / time for time in case.medians.get(HEADLINE, ()) if time > 0]


def _rate(case: CasePart) -> float:
    return median(_rates(case))


def _work(case: CasePart) -> float:
    return float(case.np) if case.scaled is not None and case.scaled.work == "weak" else 1.0


def _limit(case: CasePart) -> float | None:
    """Return the rate that the case's limit allows: that of its schedule, where it has one."""
    scaled = case.scaled
    assert scaled is not None
    name = scaled.throughput or HEADLINE
    limit = case.limits.get(name)
    by_one = case.metrics.get(_BY_ONE)
    value = limit.value if limit is not None else None
    if value is None and by_one is not None and scaled.throughput is None:
        value = by_one.value / case.np
    if not value:
        return None
    bubble = case.metrics.get(_BUBBLE)
    share = 1.0 - bubble.value if bubble is not None else 1.0
    return (value if scaled.throughput else _work(case) / value) * share


def scaling_rows(found: Iterable[Scaling]) -> Iterator[tuple[str, ...]]:
    """Yield the cells of `SCALING_COLUMNS`: one row for each number of ranks.

    Speed-up, efficiency and gain of a row with a note, which other work may have changed, begin
    with ``~``.
    """
    for scaling in found:
        for row in scaling.rows:
            sign = DISTURBED if row.note else ""
            yield (
                *(scaling.of, scaling.work, str(row.np)),
                _cell(row.time_ms, format_time),
                _cell(row.speedup, _factor, sign),
                _cell(row.efficiency, format_percent, sign),
                _interval(row.interval),
                _cell(row.limit, format_percent),
                _cell(row.gain, format_percent, sign),
                row.note,
            )


def _cell(value: float | None, write: Callable[[float], str], sign: str = "") -> str:
    return "" if value is None else sign + write(value)


def _factor(value: float) -> str:
    return f"{value:.2f}x"


def _interval(ends: tuple[float, float] | None) -> str:
    if ends is None:
        return ""
    low, high = map(format_percent, ends)
    return f"{low.removesuffix(' %')} to {high}"


def scaling_remarks(found: Sequence[Scaling]) -> list[str]:
    """Return the sentences below the table: where each stops to pay, and what intervals need."""
    told = [one.sentence for one in found]
    pairs = [row for one in found for row in one.rows if row.gain is not None]
    if any(row.most_gain is None for row in pairs):
        least = least_launches(1)
        told.append(f"Intervals need {least} launches of each, as by --set repeat={least}.")
    return told


def scaling_objects(found: Sequence[Scaling]) -> list[Mapping[str, Any]]:
    """Return what was found as JSON has it."""
    return [asdict(one) for one in found]
