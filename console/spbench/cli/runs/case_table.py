"""The table of cases in plain lines: one line per case, never wider than the terminal or pipe."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from spbench.cli.tables import PIPE_WIDTH
from spbench.record.case_state import CaseState, MetricInfo
from spbench.record.efficiency import ABOVE_REFERENCE, compute_efficiency, format_efficiency
from spbench.record.metric_names import find_iteration_name, find_metric_help, separate_metrics
from spbench.record.noise import describe_case_noise, is_disturbed
from spbench.record.number_formatting import (
    DISTURBED,
    GLYPHS,
    NOISY,
    format_count,
    format_size,
    format_time,
    format_value,
    strip_controls,
)
from spbench.record.run_parts import JobState
from spbench.report.text_tables import cut_middle, drop_parameter_names, shorten_ids

_TIME_LEGEND = "time: the slowest rank of each iteration, then the median."
_EFFICIENCY_LEGEND = (
    "efficiency: reference / time. reference: what simpler operations (a ping-pong and a copy, a "
    "single rank, layers one by one) need for the same work in the same job."
)
_CHECKS_LEGEND = "checks: passed / made, one per check and rank."
MOST_EXPLAINED = 3
"""The number of benchmarks up to which the legend of a run explains what was timed."""
_EXPLANATIONS = "`spbench results show` explains an iteration and the rate of each benchmark."
_REFERENCES = "`spbench results show` has the origin of each reference."
_SWEEP_LEGEND = (
    "algbw: size / time. busbw: algbw scaled to the traffic per link, as nccl-tests does. #wrong: "
    "wrong elements in all checks."
)
_GAP = "  "
_SHORTEST_ID = 18
_OPTIONAL = 1
_COUNTER = 2
_ALWAYS = 9
"""The importance of columns that are shown if ids still fit, of ``[ 1/12]``, and of the time."""
_RATE_UNITS = ("GB/s", "GFLOP/s", "1/s")
_SIZE_KEY = re.compile(r"(?<=[\[,])size=[^,\]]*,?")


_NOTES = {
    "disturbed": (
        f"{DISTURBED} not the efficiency of the hardware: ranks shared cores, or other work used "
        "them."
    ),
    "above": f"{ABOVE_REFERENCE}.",
    "repeats": "Values of repeated cases, and their references, are the medians of their repeats.",
    "noisy": f"{NOISY} other work disturbed the times.",
}
"""The notes below the table, in their order; each is printed if a row needs it."""


@dataclass(frozen=True, slots=True)
class _Row:
    """A case with what several of its cells need, worked out once: samples may be many.

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
                ("above", efficiency is not None and efficiency >= 1.005),
                ("repeats", self.case.repeats > 1),
                ("noisy", self.noisy),
            )
            if is_needed
        }


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of figures; those of the least importance are left out first.

    ``metric`` is the metric that it shows, if it is the same in all rows.
    """

    title: str
    width: int
    importance: int
    cell: Callable[[_Row], str]
    metric: str = ""


class CaseTable:
    """Formats cases as rows below a header.

    A sweep of collectives has the columns of nccl-tests; other cases have time, reference,
    efficiency and checks. In a narrow table the less important columns are left out, then ids are
    shortened.

    Args:
        cases: The cases.
        jobs: The launches.
        width: The most columns of a line; None for the width of a pipe.
        detailed: Whether details follow each row: rows have no number, and the legend explains all
            benchmarks.
    """

    def __init__(
        self,
        cases: Mapping[str, CaseState],
        jobs: Mapping[int, JobState],
        width: int | None = None,
        detailed: bool = False,
    ) -> None:
        self._detailed = detailed
        self._jobs = jobs
        self._width = width or PIPE_WIDTH
        self._total = len(cases)
        self._counter = len(f"[{self._total}/{self._total}] ") if not detailed else 0
        self._notes: set[str] = set()
        self._benchmarks: dict[str, CaseState] = {}
        sweeps = [case for case in cases.values() if is_collective(case)]
        others = [case for case in cases.values() if not is_collective(case)]
        self._sweeps = self._choose(self._sweep_columns(sweeps), map(_shown_id, sweeps))
        self._others = self._choose(self._case_columns(others), map(_shown_id, others))
        self._has_sweeps = bool(sweeps)
        self._header_of: _Layout | None = None

    def lines(self, case: CaseState, number: int = 0) -> list[str]:
        """Return the row of a judged case, below a header if the columns change with it."""
        header = self.begin(case)
        times = case.summary("time_ms")
        row = _Row(
            case,
            None if times is None else times.p50,
            case.measured.limits.get("time_ms", {}).get("value"),
            is_disturbed(case, self._jobs),
            describe_case_noise(case) is not None,
        )
        self._notes |= row.notes
        self._benchmarks.setdefault(case.identity.benchmark, case)
        return [*header, self._layout_of(case).line(row, number, self._total)]

    def metrics_in_row(self, case: CaseState) -> set[str]:
        """Return the metrics that the row of a case shows, apart from its time."""
        columns = self._layout_of(case).columns
        rate = _rate_metric(case) if any(column.cell is _rate for column in columns) else None
        return {column.metric for column in columns} | ({rate.name} if rate else set())

    def begin(self, case: CaseState) -> list[str]:
        """Return the header, unless it is that of the case before."""
        layout = self._layout_of(case)
        if layout is self._header_of:
            return []
        self._header_of = layout
        return [layout.header()]

    def _layout_of(self, case: CaseState) -> _Layout:
        return self._sweeps if is_collective(case) else self._others

    def legend(self) -> Iterator[str]:
        """Yield what the columns and signs of the rows mean, as far as they were used."""
        if self._header_of is None:
            return
        yield ""
        has_references = "efficiency" in self._notes
        efficiency = [_EFFICIENCY_LEGEND] if has_references else []
        efficiency += [_REFERENCES] if has_references and not self._detailed else []
        yield " ".join([_TIME_LEGEND, *efficiency, _CHECKS_LEGEND])
        if self._has_sweeps:
            yield _SWEEP_LEGEND
        others = {name: case for name, case in self._benchmarks.items() if not is_collective(case)}
        if len(others) > MOST_EXPLAINED and not self._detailed:
            yield _EXPLANATIONS
        else:
            yield from (
                f"{name}: {words}."
                for name, case in others.items()
                if (words := self._explain(case))
            )
        yield from (note for key, note in _NOTES.items() if key in self._notes)

    def _explain(self, case: CaseState) -> str:
        """Describe an iteration of a case's benchmark, and its rate if that is a column."""
        benchmark = case.identity.benchmark
        rate = _rate_metric(case)
        parts = (
            [f"an iteration is {iteration}"]
            if (iteration := find_iteration_name(benchmark))
            else []
        )
        title = next((column.title for column in self._others.columns if column.cell is _rate), "")
        if rate is not None and title:
            parts.append(f"{title}: {find_metric_help(benchmark, rate.name)}")
        return "; ".join(filter(None, parts))

    @staticmethod
    def _case_columns(cases: Sequence[CaseState]) -> list[_Column]:
        ranks = {case.identity.np for case in cases}
        most = len(str(max(ranks, default=1)))
        checks = (case.identity.np * len(case.identity.declared_checks) for case in cases)
        digits = len(str(max(checks, default=1)))
        rates = [rate for case in cases if (rate := _rate_metric(case)) is not None]
        bandwidths = all(rate.unit == "GB/s" for rate in rates)
        columns = [
            _Column("ranks", max(5, most), 3, lambda row: str(row.case.identity.np)),
            _Column("time", 8, 9, _time),
            _Column("reference", 9, 5, _reference),
            _Column("efficiency", 10, 7, _efficiency),
            _Column("bandwidth" if bandwidths else "rate", 15, 1, _rate),
            _Column("checks", max(6, 2 * digits + 1), 4, _checks),
        ]
        unused = {"ranks"} if len(ranks) < 2 else set()
        if not rates:
            unused |= {"bandwidth", "rate"}
        return [column for column in columns if column.title not in unused]

    @staticmethod
    def _sweep_columns(cases: Sequence[CaseState]) -> list[_Column]:
        ranks = {case.identity.np for case in cases}
        columns = [
            _Column("ranks", 5, 2, lambda row: str(row.case.identity.np)),
            _Column("size", 8, 9, _message_size),
            _Column("count", 7, 1, _element_count),
            _Column("type", 5, 2, lambda row: str(row.case.identity.params.get("dtype", "-"))),
            _Column("time", 8, 9, _time),
            _Column("algbw", 9, 5, lambda row: _median(row.case, "algbw_gb_s"), "algbw_gb_s"),
            _Column("busbw", 9, 8, lambda row: _median(row.case, "busbw_gb_s"), "busbw_gb_s"),
            _Column("reference", 9, 1, _reference),
            _Column("#wrong", 6, 7, _wrong_elements, "wrong"),
            _Column("efficiency", 10, 4, _efficiency),
        ]
        return columns if len(ranks) > 1 else columns[1:]

    def _choose(self, columns: list[_Column], ids: Iterable[str]) -> _Layout:
        """Return the layout with the most columns that fit next to whole ids, or to short ones."""
        names = [strip_controls(id_) for id_ in ids]
        whole = max(map(len, names), default=0)
        layouts = list(self._layouts(columns))
        for layout in layouts:
            if layout.complete and layout.id_width >= whole:
                return layout.with_ids(names)
        short = max((len(drop_parameter_names(name)) for name in names), default=0)
        needed = min(whole, max(short, _SHORTEST_ID))
        for layout in layouts:
            if layout.id_width >= needed:
                break
        return layout.with_ids(names)

    def _layouts(self, columns: list[_Column]) -> Iterator[_Layout]:
        """Yield layouts with fewer and fewer columns, each with the room that ids have in it."""
        counter = self._counter
        kept = list(columns)
        while True:
            complete = not {column.title for column in columns if column.importance > _OPTIONAL} - {
                column.title for column in kept
            }
            used = sum(len(_GAP) + column.width for column in kept)
            room = self._width - counter - _Layout.STATUS - len(_GAP) - used
            yield _Layout(counter, room, tuple(kept), complete and counter == self._counter)
            least = min((column.importance for column in kept), default=_ALWAYS)
            if counter and least > _COUNTER:
                counter = 0
            elif least < _ALWAYS:
                kept = [column for column in kept if column.importance > least]
            else:
                return


@dataclass(frozen=True, slots=True)
class _Layout:
    """The columns of a table.

    Attributes:
        counter: The characters that ``[ 1/12] `` takes; 0 if it is left out.
        id_width: The characters that ids may take.
        columns: The columns behind the id.
        complete: Whether no column is left out, apart from optional ones.
        names: The ids as they are shown, by id.
    """

    counter: int
    id_width: int
    columns: tuple[_Column, ...]
    complete: bool
    names: Mapping[str, str] = field(default_factory=dict)
    STATUS: ClassVar = 11

    def with_ids(self, ids: Sequence[str]) -> _Layout:
        """Return the layout for these ids, with no more room for them than they take."""
        groups: dict[str, list[str]] = {}
        for id_ in ids:
            groups.setdefault(id_.partition("[")[0], []).append(id_)
        # Within an entry of the suite, all ids are shortened or none.
        names = {
            id_: short
            for group in groups.values()
            for id_, short in zip(group, shorten_ids(group, max(4, self.id_width)), strict=True)
        }
        longest = max(map(len, names.values()), default=4)
        return replace(self, names=names, id_width=max(4, longest))

    def header(self) -> str:
        titles = _GAP.join(f"{column.title:>{column.width}}" for column in self.columns)
        lead = f"{'':{self.counter}}{'status':<{self.STATUS}}"
        return f"{lead}{_GAP}{'case':<{self.id_width}}{_GAP}{titles}".rstrip()

    def line(self, row: _Row, number: int, total: int) -> str:
        counter = f"[{number:>{len(str(total))}}/{total}] " if self.counter else ""
        verdict = row.case.verdict.final_status
        status = f"{GLYPHS.get(row.case.status, '?')} {verdict}{f' {NOISY}' if row.noisy else ''}"
        name = self.names[strip_controls(_shown_id(row.case))]
        cells = _GAP.join(
            f"{cut_middle(column.cell(row), column.width):>{column.width}}"
            for column in self.columns
        )
        line = f"{counter}{status:<{self.STATUS}}{_GAP}{name:<{self.id_width}}{_GAP}{cells}"
        return line.rstrip()


def is_collective(case: CaseState) -> bool:
    """Whether a case is a point of a sweep of collectives, with the columns of nccl-tests."""
    return "busbw_gb_s" in case.identity.metrics and "size" in case.identity.params


def _shown_id(case: CaseState) -> str:
    return _id_without_size(case) if is_collective(case) else case.id


def _id_without_size(case: CaseState) -> str:
    name = _SIZE_KEY.sub("", case.id).replace(",]", "]")
    return name.removesuffix("[]")


def _time(row: _Row) -> str:
    return "-" if row.time is None else format_time(row.time)


def _reference(row: _Row) -> str:
    return "-" if row.reference is None else format_time(row.reference)


def _efficiency(row: _Row) -> str:
    return format_efficiency(row.efficiency, disturbed=row.disturbed) or "-"


def _checks(row: _Row) -> str:
    passed, total = row.case.check_counts
    return f"{passed}/{total}" if total else "-"


def _rate_metric(case: CaseState) -> MetricInfo | None:
    """Return the first rate of the timed work; None if all rates are of other loops."""
    separate = separate_metrics(case.identity.benchmark)
    rates = (
        info
        for info in case.identity.metrics.values()
        if info.unit in _RATE_UNITS and info.better == "higher" and info.name not in separate
    )
    return next(rates, None)


def _rate(row: _Row) -> str:
    rate = _rate_metric(row.case)
    return "-" if rate is None else _median(row.case, rate.name)


def _median(case: CaseState, metric: str) -> str:
    summary = case.summary(metric)
    if summary is None:
        return "-"
    return format_value(summary.p50, case.identity.metrics[metric].unit, metric)


def _message_size(row: _Row) -> str:
    size = row.case.identity.params.get("size")
    return format_size(size) if isinstance(size, int) else "-"


def _wrong_elements(row: _Row) -> str:
    summary = row.case.summary("wrong")
    # The worst repeat: a median would hide wrong elements of a few.
    return "-" if summary is None else format_count(math.ceil(summary.max))


def _element_count(row: _Row) -> str:
    summary = row.case.summary("count")
    return "-" if summary is None else format_count(summary.p50)
