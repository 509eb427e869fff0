"""The table of cases in plain lines: one line per case that fits the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from spbench.cli.runs.case_columns import (
    CaseCells,
    CaseColumn,
    find_rate_metric,
    is_collective,
    make_case_columns,
    make_sweep_columns,
    rate_cell,
    shown_id,
)
from spbench.record.case_state import CaseState
from spbench.record.efficiency import ABOVE_REFERENCE, SLOW_REFERENCE
from spbench.record.metric_names import find_iteration_name, find_metric_help
from spbench.record.noise import describe_case_noise, is_disturbed
from spbench.record.number_formatting import (
    DISTURBED,
    NOISY,
    format_status,
    replace_controls,
)
from spbench.record.planted_faults import FaultOutcome
from spbench.record.run_parts import JobState
from spbench.report.text_tables import PIPE_WIDTH, cut_middle, drop_parameter_names, shorten_ids
from spbench_core.events.statuses import CaseStatus

_TIME_LEGEND = "time: the slowest rank of each iteration, then the median."
_EFFICIENCY_LEGEND = (
    "efficiency: reference / time. reference: what simpler operations (a ping-pong and a copy, a "
    "single rank, layers one by one) need for the same work in the same job."
)
_CHECKS_LEGEND = "checks: passed / made, one per check and rank."
MAX_EXPLAINED = 3
"""The most benchmarks for which the legend of a run explains an iteration."""
_EXPLANATIONS = "`spbench results show` explains an iteration and the rate of each benchmark."
_REFERENCES = "`spbench results show` has the origin of each reference."
_SWEEP_LEGEND = (
    "algbw: size / time. busbw: algbw scaled to the traffic per link, as nccl-tests does. #wrong: "
    "wrong elements in all checks."
)
_GAP = "  "
_STATUS_WIDTH = len(format_status(CaseStatus.CANCELLED))
_FAULT_STATUS_WIDTH = len(f"{format_status(CaseStatus.FAILED, FaultOutcome.FOUND)} {NOISY}")
_SHORTEST_ID = 18
_OPTIONAL = 1
"""Importance of columns that are only shown if whole ids fit next to them."""
_COUNTER = 2
"""Importance of ``[ 1/12]``."""
_ALWAYS = 9
"""Importance of columns that are always shown, such as the time."""


_NOTES = {
    "disturbed": (
        f"{DISTURBED} not the efficiency of the hardware: ranks shared cores, or other work used "
        "them."
    ),
    "above": f"{ABOVE_REFERENCE}.",
    "far above": f"{SLOW_REFERENCE}.",
    "repeats": "Values of repeated cases, and their references, are the medians of their repeats.",
    "noisy": f"{NOISY} other work disturbed the times.",
}
"""The notes below the table, in their order; each is printed if a row needs it."""


class CaseTable:
    """A table that formats cases as rows below a header.

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
        has_faults = any(case.identity.inject for case in cases.values())
        self._status_width = _FAULT_STATUS_WIDTH if has_faults else _STATUS_WIDTH
        self._counter = len(f"[{self._total}/{self._total}] ") if not detailed else 0
        self._notes: set[str] = set()
        self._benchmarks: dict[str, CaseState] = {}
        sweeps = [case for case in cases.values() if is_collective(case)]
        others = [case for case in cases.values() if not is_collective(case)]
        self._sweeps = self._choose_layout(make_sweep_columns(sweeps), map(shown_id, sweeps))
        self._others = self._choose_layout(make_case_columns(others), map(shown_id, others))
        self._has_sweeps = bool(sweeps)
        self._header_layout: _Layout | None = None

    def render_case(self, case: CaseState, number: int = 0) -> list[str]:
        """Return the row of a judged case, below a header if the columns change with it."""
        header = self.render_new_header(case)
        time_summary = case.summary("time_ms")
        row = CaseCells(
            case,
            None if time_summary is None else time_summary.p50,
            case.measured.median_references.get("time_ms", {}).get("value"),
            is_disturbed(case, self._jobs),
            describe_case_noise(case) is not None,
        )
        self._notes |= row.notes
        self._benchmarks.setdefault(case.identity.benchmark, case)
        return [*header, self._find_layout(case).render_row(row, number, self._total)]

    def metrics_in_row(self, case: CaseState) -> set[str]:
        """Return the metrics that the row of a case shows, except its time."""
        columns = self._find_layout(case).columns
        metrics = {column.metric for column in columns}
        rate = find_rate_metric(case)
        if rate is not None and any(column.cell is rate_cell for column in columns):
            metrics.add(rate.name)
        return metrics

    def render_new_header(self, case: CaseState) -> list[str]:
        """Return the header, unless it is the same as for the case before."""
        layout = self._find_layout(case)
        if layout is self._header_layout:
            return []
        self._header_layout = layout
        return [layout.render_header()]

    def _find_layout(self, case: CaseState) -> _Layout:
        return self._sweeps if is_collective(case) else self._others

    def render_legend(self) -> Iterator[str]:
        """Yield the legend of the columns and signs that were used."""
        if self._header_layout is None:
            return
        yield ""
        has_references = "efficiency" in self._notes
        efficiency = [_EFFICIENCY_LEGEND] if has_references else []
        efficiency += [_REFERENCES] if has_references and not self._detailed else []
        yield " ".join([_TIME_LEGEND, *efficiency, _CHECKS_LEGEND])
        if self._has_sweeps:
            yield _SWEEP_LEGEND
        others = {name: case for name, case in self._benchmarks.items() if not is_collective(case)}
        if len(others) > MAX_EXPLAINED and not self._detailed:
            yield _EXPLANATIONS
        else:
            yield from (
                f"{name}: {explanation}."
                for name, case in others.items()
                if (explanation := self._explain(case))
            )
        yield from (note for key, note in _NOTES.items() if key in self._notes)

    def _explain(self, case: CaseState) -> str:
        """Describe an iteration of a case's benchmark, and its rate if that is a column."""
        benchmark = case.identity.benchmark
        rate = find_rate_metric(case)
        parts = []
        if iteration := find_iteration_name(benchmark):
            parts.append(f"an iteration is {iteration}")
        title = next(
            (column.title for column in self._others.columns if column.cell is rate_cell), ""
        )
        if rate is not None and title:
            parts.append(f"{title}: {find_metric_help(benchmark, rate.name)}")
        return "; ".join(filter(None, parts))

    def _choose_layout(self, columns: list[CaseColumn], ids: Iterable[str]) -> _Layout:
        """Return the layout with most columns that fit next to whole or shortened ids."""
        clean_ids = [replace_controls(id_) for id_ in ids]
        max_id_width = max(map(len, clean_ids), default=0)
        layouts = list(self._generate_layouts(columns))
        for layout in layouts:
            if layout.complete and layout.id_width >= max_id_width:
                return layout.fit_ids(clean_ids)
        max_short_id_width = max(
            (len(drop_parameter_names(clean_id)) for clean_id in clean_ids), default=0
        )
        needed_id_width = min(max_id_width, max(max_short_id_width, _SHORTEST_ID))
        for layout in layouts:
            if layout.id_width >= needed_id_width:
                break
        return layout.fit_ids(clean_ids)

    def _generate_layouts(self, columns: list[CaseColumn]) -> Iterator[_Layout]:
        """Yield layouts with fewer and fewer columns, each with the width left for ids."""
        counter_width = self._counter
        columns_left = list(columns)
        while True:
            is_complete = not {
                column.title for column in columns if column.importance > _OPTIONAL
            } - {column.title for column in columns_left}
            used_width = sum(len(_GAP) + column.width for column in columns_left)
            id_width = self._width - counter_width - self._status_width - len(_GAP) - used_width
            yield _Layout(
                counter_width,
                self._status_width,
                id_width,
                tuple(columns_left),
                is_complete and counter_width == self._counter,
            )
            least_importance = min((column.importance for column in columns_left), default=_ALWAYS)
            if counter_width and least_importance > _COUNTER:
                counter_width = 0
            elif least_importance < _ALWAYS:
                columns_left = [
                    column for column in columns_left if column.importance > least_importance
                ]
            else:
                return


@dataclass(frozen=True, slots=True)
class _Layout:
    """The columns of a table.

    Attributes:
        counter: The width of ``[ 1/12] ``; 0 if it is left out.
        status: The width of the status.
        id_width: The most characters of an id.
        columns: The columns behind the id.
        complete: Whether no column is left out, except optional ones.
        names: The shown ids, by id.
    """

    counter: int
    status: int
    id_width: int
    columns: tuple[CaseColumn, ...]
    complete: bool
    names: Mapping[str, str] = field(default_factory=dict)

    def fit_ids(self, ids: Sequence[str]) -> _Layout:
        """Return the layout for these ids, no wider than they need."""
        ids_by_entry: dict[str, list[str]] = {}
        for id_ in ids:
            ids_by_entry.setdefault(id_.partition("[")[0], []).append(id_)
        # Within an entry of the suite, all ids are shortened or none.
        shown_id_by_id = {
            id_: shown_id
            for group in ids_by_entry.values()
            for id_, shown_id in zip(group, shorten_ids(group, max(4, self.id_width)), strict=True)
        }
        max_id_width = max(map(len, shown_id_by_id.values()), default=4)
        return replace(self, names=shown_id_by_id, id_width=max(4, max_id_width))

    def render_header(self) -> str:
        titles = _GAP.join(f"{column.title:>{column.width}}" for column in self.columns)
        lead = f"{'':{self.counter}}{'status':<{self.status}}"
        return f"{lead}{_GAP}{'case':<{self.id_width}}{_GAP}{titles}".rstrip()

    def render_row(self, row: CaseCells, number: int, total: int) -> str:
        counter = f"[{number:>{len(str(total))}}/{total}] " if self.counter else ""
        noisy_sign = f" {NOISY}" if row.noisy else ""
        execution = row.case.execution
        status = f"{format_status(execution.status, execution.status_text)}{noisy_sign}"
        name = self.names[replace_controls(shown_id(row.case))]
        cells = _GAP.join(
            f"{cut_middle(column.cell(row), column.width):>{column.width}}"
            for column in self.columns
        )
        line = f"{counter}{status:<{self.status}}{_GAP}{name:<{self.id_width}}{_GAP}{cells}"
        return line.rstrip()
