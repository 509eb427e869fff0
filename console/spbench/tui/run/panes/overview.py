"""Panes with an overview: hosts by case, parts of a step, and the previous run."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Static

from spbench.record.comparison import NOTABLE_RANK
from spbench.record.messages.slowness import describe_brief_ratio, describe_ratio
from spbench.record.number_formatting import DISTURBED, format_factor, format_value
from spbench.report.previous_times import PreviousRun, PreviousTime
from spbench.tui.cells import PRELIMINARY, format_time_cell
from spbench.tui.panes import READING, Pane
from spbench.tui.run.case_rows import RunCaseRows
from spbench.tui.run.panes.charts import BarGroup
from spbench.tui.widgets.dots import Piece
from spbench.tui.widgets.fixed_rows import FixedRows
from spbench.tui.widgets.glyphs import cap_brief_slowness, render_slowness_legend
from spbench.tui.widgets.heat_map import HeatMap
from spbench.tui.widgets.line_table import LineTable
from spbench.tui.widgets.stacked_bars import StackedBars
from spbench.tui.widgets.table_columns import Column, TableCell
from spbench.tui.widgets.text import cell_width, fit, join_fitting

MAX_HOST_COLUMNS = 16
"""Most hosts with a column; more hosts have a cell each for the shown case only."""
HOST_MAP_TITLE = "Hosts by case: slowest rank / typical rank, whole case"
PREVIOUS_TITLE = "Previous run"
NO_PREVIOUS = "no earlier run of the suite shares a case"
NO_HOST_COMPARED = "no hosts are compared"
NO_PARTS = "this benchmark measures no parts of an iteration"
NO_PARTS_SO_FAR = "no parts of an iteration are measured so far"
PREVIOUS_COLUMNS = (
    Column("case", "case", 14, flexible=True),
    Column("then", "then", 9, "right"),
    Column("now", "now", 9, "right"),
    Column("ratio", "now / then", 10, "right"),
)


class HostMap(HeatMap):
    """The slowness of each host: by case, or in the shown case with many hosts."""

    HELP: ClassVar[str] = (
        "One cell for each host and case: the time of its slowest rank over that of the typical\n"
        "rank with the same work. ░ near the median, ▒ from 1.1x, ▓ slow from 1.3x, █ from 1.9x,\n"
        "· not compared.\n"
        "More than 16 hosts: one cell for each host, in the shown case, in order of ranks.\n"
        "Arrows, Home, End or a click read a cell out, Escape lets it go."
    )
    NOTABLE: ClassVar[float] = NOTABLE_RANK

    empty_text = READING
    _hosts: Sequence[str] = ()
    _shown_case = ""
    _slow_hosts: Mapping[str, Collection[str]] | None = None
    _is_grid = False
    _content: object = None
    _revealed: object = None

    @property
    def has_content(self) -> bool:
        """Whether hosts were shown."""
        return self._content is not None

    def show(
        self,
        hosts: Sequence[str],
        slowness_by_case: Mapping[str, Mapping[str, float]],
        shown_case: str,
        slow_hosts: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        """Show hosts.

        Args:
            hosts: The hosts in order.
            slowness_by_case: The slowness by case and host.
            shown_case: The case of the ranks on the page.
            slow_hosts: The hosts by case that are slow by the rules for findings. Default: those
                with a notable ratio.
        """
        content = (hosts, slowness_by_case, shown_case, slow_hosts, self.size, self.empty_text)
        if content == self._content:
            return
        self._content = content
        self._hosts = hosts
        self._shown_case = shown_case
        self._slow_hosts = slow_hosts
        self._is_grid = len(hosts) > MAX_HOST_COLUMNS
        if self._is_grid:
            self._show_grid(slowness_by_case.get(shown_case, {}))
            return
        cases = [case for case in slowness_by_case if slowness_by_case[case]]
        compared = {host for case in cases for host in slowness_by_case[case]}
        hosts = self._hosts = [host for host in hosts if host in compared]
        rows = [[slowness_by_case[case].get(host) for host in hosts] for case in cases]
        marks = [
            [self._limit_brief(ratio, case, host) for ratio, host in zip(row, hosts, strict=True)]
            for row, case in zip(rows, cases, strict=True)
        ]
        self.update(cases, rows, "x", "lower", hosts, marks)
        if shown_case in cases and self.cursor is None:
            # Not with each update, because the user may have scrolled.
            revealed = (shown_case, self.size)
            if revealed != self._revealed:
                self._revealed = revealed
                self.reveal_row(cases.index(shown_case))

    def count_lines(self) -> int:
        """Return the number of lines of all rows, with the heading and the legend."""
        return self.count_rows() + 2 if self.count_rows() else 1

    def describe_hidden(self) -> str:
        """Return how many cases do not fit; empty if all do."""
        hidden_count = 0 if self._is_grid else self.count_hidden_rows()
        if not hidden_count:
            return ""
        return f"{hidden_count} more: scroll, or use a larger terminal"

    def _show_grid(self, slowness: Mapping[str, float]) -> None:
        """Show one cell for each host, in as many lines as needed."""
        per_line = max(1, (self.size.width - 18) // 2)
        lines = [
            self._hosts[start : start + per_line] for start in range(0, len(self._hosts), per_line)
        ]
        padding = [None] * per_line
        rows = [[*map(slowness.get, line), *padding][:per_line] for line in lines]
        marks = [
            [self._limit_brief(slowness.get(host), self._shown_case, host) for host in line]
            for line in lines
        ]
        marks = [[*line, *padding][:per_line] for line in marks]
        columns = [str(index) for index in range(per_line)]
        self.update([line[0] for line in lines], rows, "x", "lower", columns, marks)

    def _limit_brief(self, ratio: float | None, case: str, host: str) -> float | None:
        """Return the ratio for the mark of a host, limited if it is too briefly slow."""
        if ratio is None or not self._is_brief(case, host):
            return ratio
        return cap_brief_slowness(ratio, self.NOTABLE)

    def _is_brief(self, case: str, host: str) -> bool:
        return self._slow_hosts is not None and host not in self._slow_hosts.get(case, ())

    def _render_heading(self, frame: Any) -> list[tuple[str, str]]:
        if self._is_grid:
            return [(f"one cell for each host, in {self._shown_case}", "axis")]
        width = frame.column_width - 1
        if max(map(cell_width, self._columns)) > width:
            return super()._render_heading(frame)
        labels = "".join(f"{fit(host, width, 'right')} " for host in self._columns)
        return [(" " * frame.label_width + labels, "axis")]

    def _render_summary(self, width: int) -> list[Piece]:
        if self.cursor is None:
            return render_slowness_legend(width, self.NOTABLE, ascii=self.ascii)
        return [(join_fitting(self._describe_cell(self.cursor), width), "text")]

    def _describe_cell(self, stop: int) -> list[str]:
        """Return the value of a cell in words."""
        row, column = divmod(stop, len(self._columns))
        case = self._shown_case if self._is_grid else self._rows[row]
        index = stop if self._is_grid else column
        if index >= len(self._hosts):
            return ["no host"]
        ratio = self._values[row][column]
        position = f"{self._hosts[index]} in {case}"
        if ratio is None:
            return [f"{position}: not compared"]
        is_brief = ratio >= self.NOTABLE and self._is_brief(case, self._hosts[index])
        describe = describe_brief_ratio if is_brief else describe_ratio
        return [f"{position}: {describe(ratio, 'the median rank')}"]


class HostMapPane(Pane):
    """The slowness of hosts in a frame."""

    def __init__(self, name: str) -> None:
        super().__init__(HOST_MAP_TITLE, HostMap(id=name), id=f"{name}-pane")

    @property
    def map(self) -> HostMap:
        """The map."""
        return self.query_one(HostMap)

    def show(
        self,
        hosts: Sequence[str],
        slowness_by_case: Mapping[str, Mapping[str, float]],
        shown_case: str,
        slow_hosts: Mapping[str, Collection[str]],
        *,
        paused: bool,
        is_pending: bool,
    ) -> None:
        """Show hosts in a visible map; in a pause, its content stays."""
        host_map = self.map
        host_map.empty_text = READING if is_pending else NO_HOST_COMPARED
        if host_map.is_on_screen and not (paused and host_map.has_content):
            host_map.show(hosts, slowness_by_case, shown_case, slow_hosts)
            self.set_remark(host_map.describe_hidden())


class PartsPane(Pane):
    """The parts of an iteration in a frame, as bars of all ranks and of each."""

    DEFAULT_CSS = """
    PartsPane VerticalScroll { height: 1fr; scrollbar-size: 1 1; }
    PartsPane StackedBars { height: auto; }
    PartsPane Static { height: auto; color: $text-muted; }
    """

    def __init__(self, name: str) -> None:
        super().__init__("Parts of an iteration", id=f"{name}-pane")
        self._group: BarGroup | None = None
        self._note = Static(READING, markup=False)
        self._note_text = READING
        self._chart = StackedBars()
        self._chart.display = False

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield self._note
            yield self._chart

    def show(self, group: BarGroup | None, case: str, note_text: str) -> None:
        """Show the bars of a case, or a note if it has no parts so far."""
        if note_text != self._note_text:
            self._note_text = note_text
            self._note.update(note_text)
        if group is self._group:
            return
        self._group = group
        self._note.display = group is None
        self._chart.display = group is not None
        if group is None:
            self.set_title("Parts of an iteration")
            self.set_remark("")
            return
        group.update(self._chart)
        self._chart.refresh(layout=True)
        mean = format_value(group.total.mean, group.total.unit)
        self.set_title(f"Parts of an iteration of {case}, mean {mean}")
        self.set_remark(group.describe_outliers())


class PreviousRows:
    """The times of cases in the previous run and in this one.

    Args:
        times: The times of the previous run, by case.
        cases: The cases of this run.
    """

    def __init__(self, times: Mapping[str, PreviousTime], cases: RunCaseRows) -> None:
        self._times = times
        self._cases = cases

    def keys(self) -> Sequence[Hashable]:
        """Return the ids of the cases that both runs have."""
        return [case for case in list(self._cases.keys()) if case in self._times]

    def version(self, key: Hashable) -> Hashable:
        """Return the row of the case, since equal rows have equal cells."""
        return self._cases.version(key)

    def cells(self, key: Hashable) -> Sequence[TableCell | str]:
        """Return the cells of a case."""
        row = self._cases.get(str(key))
        previous = self._times[str(key)]
        then_mark = _choose_mark(previous.is_preliminary, previous.disturbed)
        now_mark = "" if row.time is None else _choose_mark(row.is_preliminary, row.disturbed)
        ratio = self._compute_ratio(str(key))
        ratio_mark = then_mark or now_mark
        return [
            row.id,
            TableCell(then_mark + format_time_cell(previous.time_ms), "muted"),
            now_mark + format_time_cell(row.time),
            "" if ratio is None else ratio_mark + format_factor(ratio),
        ]

    def sort_value(self, key: Hashable, column: str) -> Any:
        """Return the sort key of a case."""
        values = {
            "case": key,
            "then": self._times[str(key)].time_ms,
            "now": self._cases.get(str(key)).time,
            "ratio": self._compute_ratio(str(key)),
        }
        return values[column]

    def search_text(self, key: Hashable) -> str:
        """Return the id of the case."""
        return str(key).lower()

    def _compute_ratio(self, case: str) -> float | None:
        row = self._cases.get(case)
        previous = self._times[case]
        is_preliminary = row.is_preliminary or previous.is_preliminary
        if row.time is None or is_preliminary or previous.time_ms <= 0:
            return None
        return row.time / previous.time_ms


def _choose_mark(is_preliminary: bool, disturbed: bool) -> str:
    if is_preliminary:
        return PRELIMINARY
    return DISTURBED if disturbed else ""


class PreviousPane(Pane):
    """The times of the previous run in a frame."""

    def __init__(self, name: str) -> None:
        table = LineTable(
            PREVIOUS_COLUMNS,
            FixedRows(PREVIOUS_COLUMNS),
            id=name,
            empty=READING,
        )
        super().__init__(PREVIOUS_TITLE, table, id=f"{name}-pane")
        self.set_remark("c: the comparison")

    def clear(self) -> None:
        """Show no times, because those of another run are not known."""
        table = self.query_one(LineTable)
        table.set_empty_text(READING)
        table.set_rows(FixedRows(PREVIOUS_COLUMNS))
        self.set_title(PREVIOUS_TITLE)

    def show_missing(self) -> None:
        """Show that there is no previous run."""
        self.query_one(LineTable).set_empty_text(NO_PREVIOUS)

    def show(self, rows: PreviousRows, previous: PreviousRun) -> None:
        """Show the rows of another previous run; the title has why it is not comparable."""
        self.query_one(LineTable).set_rows(rows)
        run = previous.run.summary
        title = f"{PREVIOUS_TITLE}: {run.suite}"
        if run.started is not None:
            title += f", {datetime.fromtimestamp(run.started, UTC):%Y-%m-%d %H:%M} UTC"
        if previous.remark:
            title += f" ({previous.remark})"
        self.set_title(title)

    def update_rows(self) -> None:
        """Update the times, also those of a hidden table without rows."""
        table = self.query_one(LineTable)
        if table.is_on_screen or not table.row_count:
            table.update_rows()
