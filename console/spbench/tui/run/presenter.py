"""The presenter of a run, which schedules the updates of the panes.

Ranks and logs are updated in each tick. The other parts (charts, strip, findings, cases, hosts and
GPUs) take longer: a tick updates a share of them, all in `SLOW_INTERVAL`, requested ones first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from functools import partial
from time import monotonic

from textual.widget import Widget

from spbench.record.case_state import CaseState
from spbench.record.messages.cases import describe_time_reference
from spbench.record.messages.phases import describe_phase
from spbench.tui.cells import name_readings
from spbench.tui.panes import Pane
from spbench.tui.run.body import RunBody
from spbench.tui.run.case_rows import LEGEND
from spbench.tui.run.findings import FindingKind, RunFinding
from spbench.tui.run.overview import Overview
from spbench.tui.run.panels import Panel
from spbench.tui.run.panes.charts import ChartPane
from spbench.tui.run.panes.findings_panel import FindingsPanel
from spbench.tui.run.panes.gpu_panel import GpuRows
from spbench.tui.run.panes.hosts_panel import HostLoadRows, HostLoadsPane
from spbench.tui.run.panes.log_view import LogView
from spbench.tui.run.rank_cells import describe_row
from spbench.tui.run.rank_source import RankSource
from spbench.tui.run.selection import RunSelection
from spbench.tui.run.table_cursors import TableCursors
from spbench.tui.widgets.line_table import LineTable
from spbench.tui.widgets.rank_strip import RankStrip

SLOW_INTERVAL = 0.5
"""Time in which all slow parts are updated once, in seconds."""
SETTLE_SECONDS = 1.2
"""Time for which updates continue after the last change, in seconds.

It exceeds `SLOW_INTERVAL`, so that every part shows the last change.
"""
MAX_RANKS_AT_ONCE = 256
"""Most ranks that update the strip with their rows; for thousands that would take too long."""
MANY_RANKS_INTERVAL = 0.25
"""Time between two updates of more ranks than that, in seconds.

Comparing and drawing 4,096 ranks ten times per second would take a tenth of a core.
"""
_Update = Callable[[], None]


class RunPresenter:
    """The updates of the panes of the Run page for one run.

    Attributes:
        selection: The run, and the selected case, rank and metric.
        paused: Whether ranks, strip, charts, findings and logs are paused.
        findings: The findings that are shown.
        cursors: The cursors of its tables.
        overview: The panes with an overview.
    """

    def __init__(self, body: RunBody, selection: RunSelection) -> None:
        self._body = body
        self.selection = selection
        body.leave_suggestion()
        self.overview = Overview(body, selection)
        self.cases = body.query_one("#cases", LineTable)
        self.ranks = body.query_one("#ranks", LineTable)
        self.strip = body.query_one(RankStrip)
        self.paused = False
        self.findings: list[RunFinding] = []
        self._version = -1
        self._active_until = 0.0
        self._settled = True
        self._last_tick = 0.0
        self._ranks_due = 0.0
        self._case = selection.case
        self._progress: object = None
        self._outcome_shown = False
        self._first_case = ""
        self._culprit_case: CaseState | None = None
        panes = (pane for pane in body.query(Pane) if isinstance(pane, ChartPane))
        charts = [partial(selection.update_chart, pane) for pane in panes]
        self._charts: list[_Update] = [*charts]
        self._rank_parts: list[_Update] = [*charts, self._show_strip]
        self._parts = deque(
            [
                *self._rank_parts,
                self._show_findings,
                self._show_cases,
                self._show_hosts,
                self._show_overview,
            ]
        )
        self._requested: set[_Update] = set()
        self._source: RankSource = selection.ranks
        self.cursors = TableCursors()
        self._strip_content: object = None
        self._ended = False
        self.ranks.paused = False
        self.ranks.filter = ""
        self.ranks.restore_order()
        self.cursors.set_rows(self.cases, selection.cases)
        self._host_loads = HostLoadRows(selection.feed.state.host_loads)
        for pane in body.query(HostLoadsPane):
            pane.query_one(LineTable).set_rows(self._host_loads, self._host_loads.columns)
        self.gpus = body.query_one("#gpus", LineTable)
        self.gpus.set_rows(GpuRows(selection.feed.state.gpu_loads))
        self.cursors.set_rows(self.ranks, self._source, self._source.columns)
        for show in (*self._charts, self._show_findings):
            show()  # they have the contents of the run that was shown before

    def tick(self) -> None:
        """Update the ranks and a share of the other parts, if there were recent changes."""
        now = monotonic()
        elapsed = now - self._last_tick
        self._last_tick = now
        feed = self.selection.feed
        if feed.ended and not self._ended:
            self._ended = True
            self.pause(False)  # show the events that came during the pause
        if self._version != feed.version or self.selection.ranks.busy:
            self._version = feed.version
            self.stay_active()

        outdated_parts = self._list_outdated_parts()
        if outdated_parts:
            self._requested.update(outdated_parts)
            self._update_parts(len(self._requested))
        elif now <= self._active_until:
            share = round(len(self._parts) * elapsed / SLOW_INTERVAL)
            self._update_parts(max(1, min(share, len(self._parts))))
        elif not self._settled:
            # If ticks are far apart, some parts had no update since the last change.
            self._settled = True
            self._update_parts(len(self._parts))

    def _list_outdated_parts(self) -> list[_Update]:
        """Return the parts that have to change in the same tick as headline and ranks."""
        selection = self.selection
        parts: list[_Update] = []
        if selection.case is not self._case and not self.paused:
            self._case = selection.case
            self._ranks_due = 0.0
            parts += self._rank_parts
        running = selection.running_case
        status = None if running is None else (running.id, running.status)
        progress = status, describe_phase(selection.feed.state, selection.feed.now)
        if progress != self._progress:
            self._progress = progress
            # The headline, the row of the case and empty charts name the same phase.
            parts += [self._show_cases, *([] if self.paused else self._charts)]
        return parts

    def stay_active(self) -> None:
        """Continue updates for a while, with a last update of all parts."""
        self._active_until = monotonic() + SETTLE_SECONDS
        self._settled = False

    def update_all(self) -> None:
        """Update everything at once, for another run or another size."""
        self.stay_active()
        self._ranks_due = 0.0
        self._requested.update(self._parts)
        self._show_logs()
        self._update_parts(len(self._parts))

    def update_rank_soon(self) -> None:
        """Update the parts that show the selected rank next, even while paused."""
        self.stay_active()
        self._ranks_due = 0.0
        self._requested.update(self._rank_parts)
        self._show_logs()

    def _update_parts(self, count: int) -> None:
        """Update ranks, logs and the next ``count`` parts; in a pause only requested ones."""
        if not self.paused:
            has_many_ranks = len(self._source.ranks()) > MAX_RANKS_AT_ONCE
            if not has_many_ranks or monotonic() >= self._ranks_due:
                self._ranks_due = monotonic() + MANY_RANKS_INTERVAL
                self._show_ranks()
            # In the same update, since it names the skew of a row.
            if not has_many_ranks:
                self._show_strip()
            self._show_logs()
        for _ in range(count):
            part = next((part for part in self._parts if part in self._requested), self._parts[0])
            self._parts.remove(part)
            self._parts.append(part)
            if not self.paused or part in self._requested or part == self._show_cases:
                part()
            self._requested.discard(part)

    def show_outcome(self) -> bool:
        """Show the case of the worst problem and the findings once the run has ended.

        A case, a rank or a panel that the user chose stays. Return whether it was done now.
        """
        run = self.selection.feed.state.run
        selection = self.selection
        if self._outcome_shown or run is None or run.finished is None:
            return False
        self._outcome_shown = True
        notable = selection.find_notable_case()
        if notable is not None and selection.follows_running and selection.rank is None:
            selection.choose(notable)
            self._first_case = notable if selection.has_problem() else ""
        self._show_findings()  # first, since the first problem changes the panel
        # The logs have the traceback of a case that failed before its first sample.
        shows_logs = selection.metric is None and bool(selection.feed.logs)
        self._body.suggest_findings(Panel.LOGS if shows_logs else None)
        return True

    def describe_first_case(self) -> str:
        """Return why an ended run shows a case that the user has not chosen, if it does."""
        case = self.selection.case
        if case is None or case.id != self._first_case:
            return ""
        return f"shown: {case.id}, the worst problem"

    def pause(self, paused: bool) -> None:
        """Pause the ranks, or continue."""
        self.paused = self.ranks.paused = paused
        self.stay_active()

    def filter_ranks(self, text: str) -> None:
        """Show only the ranks with these words in their rows."""
        with self.cursors.moved_by_page(self.ranks):
            self.ranks.filter = text
        self.stay_active()

    @property
    def is_slowest_first(self) -> bool:
        """Whether the slowest ranks are first."""
        return self.ranks.sorted_by == ("skew", True)

    def sort_slowest_first(self) -> None:
        """Sort the slowest ranks first and choose the top one."""
        self.ranks.sort_by("skew", reverse=True)
        # Chosen here, since the cursor may be on the slowest rank already.
        if isinstance(self.ranks.cursor_key, int):
            self.selection.rank = self.ranks.cursor_key
            self.update_rank_soon()

    def get_text_to_copy(self, focused: Widget | None) -> str:
        """Return the findings if they have the focus, or else the row of the rank."""
        if isinstance(focused, FindingsPanel):
            return "\n".join(finding.text for finding in self.findings)
        rank = self.ranks.cursor_key
        row = self.selection.ranks.row(rank) if isinstance(rank, int) else None
        return describe_row(row) if row else ""

    def _show_cases(self) -> None:
        selection = self.selection
        selection.cases.update()
        self.cursors.show(self.cases, selection.cases, selection.cases.columns)
        self._body.share_width(selection.cases.measure_width())
        remark = selection.cases.efficiency_note() or LEGEND
        self._body.query_one("#cases-pane", Pane).set_remark(remark)
        self._body.show_case_note(describe_time_reference(selection.case))
        self._limit_table_heights()
        # If the user has just moved the cursor, its message is still to come: do not move it back.
        if self.cursors.is_untouched(self.cases) and selection.case is not None:
            self.cursors.move(self.cases, selection.case.id)

    def _show_ranks(self) -> None:
        source = self.selection.ranks
        source.update()
        self.cursors.show(self.ranks, source, source.columns)
        self._source = source
        match_text = f"{self.ranks.match_count} of {self.ranks.row_count} match"
        column_note = source.describe_columns(self.ranks.shown_columns)
        remark = "; ".join(filter(None, (self.selection.describe_launches(), column_note)))
        if self.ranks.filter:
            remark = f"{match_text} {self.ranks.filter!r}"
        pane = self._body.query_one("#ranks-pane", Pane)
        pane.set_title(f"Ranks of {source.case.id}" if source.case else "Ranks")
        pane.set_remark(remark)

    def _show_findings(self) -> None:
        self.findings = self.selection.findings.collect()
        for panel in self._body.query(FindingsPanel):
            if panel.is_on_screen:
                panel.show(self.findings)
        self._show_problem()
        # Also here, because the cases may have been updated for the last time before the findings.
        self._limit_table_heights()

    def _show_problem(self) -> None:
        """Keep the findings in view while there is a problem."""
        self._body.show_problem(
            any(finding.is_problem for finding in self.findings),
            has_charts=self.selection.has_charts,
        )

    def _limit_table_heights(self) -> None:
        """Limit the heights of the tables, and choose the panel if the user has not."""
        has_findings = bool(self.selection.feed.state.findings) or any(
            finding.kind is not FindingKind.NOTE for finding in self.findings
        )
        shows_other_panel = self._body.limit_table_heights(
            self.cases.row_count,
            max(self.ranks.row_count, self.selection.max_ranks if self._body.is_full else 0),
            has_findings=has_findings,
            has_samples=self.selection.has_charts,
        )
        if shows_other_panel:  # it is filled when it is on the screen
            self._body.call_after_refresh(self.stay_active)

    def _show_hosts(self) -> None:
        self._body.leave_out(self.selection.list_empty_panels())
        ended = self.selection.feed.ended
        self._host_loads.update()
        for pane in self._body.query(HostLoadsPane):
            pane.show(self._host_loads, ended=ended)
        self._body.query_one("#gpus-pane", Pane).set_title(name_readings("GPUs", ended=ended))
        if self.gpus.is_on_screen or not self.gpus.row_count:
            self.gpus.update_rows()

    def _show_strip(self) -> None:
        source = self._source
        rank = self.selection.rank
        failed_ranks = source.failed_ranks()
        self._move_to_culprit(source, failed_ranks)
        message = source.describe_slowness()
        content = (source.ratios(), failed_ranks, rank, message, source.slow_ranks())
        if content != self._strip_content:
            self._strip_content = content
            self.strip.update(*content)

    def _move_to_culprit(self, source: RankSource, failed_ranks: Collection[int]) -> None:
        """Move the cursor to the rank with a problem, once, unless one is chosen."""
        case = source.case
        if case is None or case is self._culprit_case or self.selection.rank is not None:
            return
        culprit = source.find_culprit(failed_ranks)
        if culprit is not None and self.cursors.is_untouched(self.ranks):
            self._culprit_case = case
            self.cursors.move(self.ranks, culprit)

    def _show_logs(self) -> None:
        view = self._body.query_one(LogView)
        rank = self.selection.rank
        if view.is_on_screen:
            view.show(self.selection.feed, rank)
            owner = "all ranks" if rank is None else f"rank {rank}"
            self._body.query_one("#logs-pane", Pane).set_title(f"Logs of {owner}")

    def _show_overview(self) -> None:
        """Update hosts by case, parts of an iteration, and the previous run."""
        if self.overview.update(paused=self.paused):
            # Also here, because this may be the last update: fit the map, and its remark next.
            self._limit_table_heights()
            self.stay_active()
