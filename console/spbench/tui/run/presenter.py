"""The presenter of a run: it updates each pane as often as needed, and only where it is seen."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from time import monotonic

from textual.widget import Widget

from spbench.tui.cells import FULL_IDS_WIDTH
from spbench.tui.panes import Pane
from spbench.tui.run.body import Body
from spbench.tui.run.charts import ChartPane
from spbench.tui.run.hosts_panel import HostLoadRows
from spbench.tui.run.log_view import LogView
from spbench.tui.run.rank_cells import describe_row
from spbench.tui.run.rank_source import RankSource
from spbench.tui.run.selection import RunSelection
from spbench.tui.run.words import FindingsPanel, RunFinding
from spbench.tui.widgets.line_table import LineTable
from spbench.tui.widgets.rank_strip import RankStrip
from spbench.tui.widgets.table_columns import Column, Rows
from spbench_core.events.statuses import CaseStatus

SLOW_INTERVAL = 0.5
"""Seconds between two looks at cases, strip, charts and words, at least."""
SETTLE_SECONDS = 1.2
"""Seconds for which the panes are looked at after the last change: each has its own pace."""

_OUTCOMES = frozenset({"slow", CaseStatus.FAILED, CaseStatus.ERROR, CaseStatus.TIMEOUT})
"""The kinds of sentences that open the findings when a run ends."""
_Update = Callable[[], None]


class RunPresenter:
    """Presents a run in the panes.

    Attributes:
        selection: The run, and what was chosen in it.
        paused: Whether ranks, strip, charts, words and logs stand still.
        words: The words that are shown.
    """

    def __init__(self, body: Body, selection: RunSelection) -> None:
        self._body = body
        self.selection = selection
        self.cases = body.query_one("#cases", LineTable)
        self.ranks = body.query_one("#ranks", LineTable)
        self.strip = body.query_one(RankStrip)
        self.paused = False
        self.findings: list[RunFinding] = []
        self._version = -1
        self._until = 0.0
        self._settled = True
        self._ticked = 0.0
        self._case = selection.case
        self._shows_outcome = False
        panes = (pane for pane in body.query(Pane) if isinstance(pane, ChartPane))
        charts = [partial(self._show_chart, pane) for pane in panes]
        self._of_rank: list[_Update] = [*charts, self._show_strip]
        self._parts = deque([*self._of_rank, self._show_words, self._show_cases, self._show_hosts])
        self._asked: set[_Update] = set()
        self._source: RankSource = selection.ranks
        self._known: dict[LineTable, Hashable] = {}
        self._strip_shows: object = None
        self._ended = False
        self.ranks.paused = False
        self.ranks.filter = ""
        self._set_rows(self.cases, selection.cases)
        self.hosts = body.query_one("#host-loads", LineTable)
        self.hosts.set_rows(HostLoadRows(selection.feed.state.host_loads))
        self._set_rows(self.ranks, self._source, self._source.columns)

    def tick(self) -> None:
        """Bring up to date what is due: the ranks each time, of the other parts one or two."""
        now = monotonic()
        passed, self._ticked = now - self._ticked, now
        if self.selection.feed.ended and not self._ended:
            self._ended = True
            self.pause(False)  # nothing moves any more, and what came while it was held is shown
        if self._version != self.selection.feed.version or self.selection.ranks.busy:
            self._version = self.selection.feed.version
            self._go_on(now)
        if self.selection.case is not self._case and not self.paused:
            # The title of the ranks changes in this tick; so do charts and strip.
            self._case = self.selection.case
            self._asked.update(self._of_rank)
            self._bring_up(len(self._of_rank))
        elif now <= self._until:
            # One after another, so that no tick has to do them all.
            share = round(len(self._parts) * passed / SLOW_INTERVAL)
            self._bring_up(max(1, min(share, len(self._parts))))
        elif not self._settled:  # where ticks are far apart, none may have come in time
            self._settled = True
            self._bring_up(len(self._parts))

    def _go_on(self, now: float) -> None:
        """Bring parts up to date for a while, and at last all of them once more."""
        self._until = now + SETTLE_SECONDS
        self._settled = False

    def update_all(self) -> None:
        """Bring everything up to date at once: there is another run or another size."""
        self._go_on(monotonic())
        self._asked.update(self._parts)
        self._show_logs()
        self._bring_up(len(self._parts))

    def update_rank_soon(self) -> None:
        """Bring up to date first what is of the chosen rank, even while all stands still."""
        self._go_on(monotonic())
        self._asked.update(self._of_rank)
        self._show_logs()

    def _bring_up(self, parts: int) -> None:
        if not self.paused:
            self._show_ranks()
            self._show_logs()
        for _ in range(parts):
            part = next((part for part in self._parts if part in self._asked), self._parts[0])
            self._parts.remove(part)
            self._parts.append(part)
            if not self.paused or part in self._asked or part == self._show_cases:
                part()
            self._asked.discard(part)

    def show_outcome(self) -> bool:
        """Show the first failed case and the findings when the run ends; return whether it did now.

        A case, a rank or a panel that the reader chose stays.
        """
        run = self.selection.feed.state.run
        selection = self.selection
        if self._shows_outcome or run is None or run.finished is None:
            return False
        self._shows_outcome = True
        if any(word.kind in _OUTCOMES for word in selection.findings.collect()):
            self._body.suggest_findings()
        failed = selection.first_failed_case()
        if failed is not None and selection.follows_running and selection.rank is None:
            selection.choose(failed)
        return True

    def pause(self, paused: bool) -> None:
        """Let the ranks stand still, or go on."""
        self.paused = self.ranks.paused = paused
        self._go_on(monotonic())

    def filter(self, words: str) -> None:
        """Show only the ranks whose rows have these words."""
        before = self.ranks.cursor_key
        self.ranks.filter = words
        self._note(self.ranks, before)
        self._go_on(monotonic())

    def sort_by_slowness(self) -> None:
        """Let the slowest ranks stand first, or sort by number again."""
        slowest_first = self.ranks.sorted_by == ("skew", True)
        self.ranks.sort_by(*((None, False) if slowest_first else ("skew", True)))

    def get_text_to_copy(self, focused: Widget | None) -> str:
        """Return what there is to copy: the words where they have the focus, else the row."""
        if isinstance(focused, FindingsPanel):
            return "\n".join(word.text for word in self.findings)
        rank = self.ranks.cursor_key
        row = self.selection.ranks.row(rank) if isinstance(rank, int) else None
        return describe_row(row) if row else ""

    def is_user_choice(self, message: LineTable.RowHighlighted) -> bool:
        """Whether a row was chosen by key or pointer, not by an update of the page."""
        table = message.table
        if message.key in (self._known.get(table), None) or message.key != table.cursor_key:
            return False
        self._known[table] = message.key
        return table.has_focus

    def move_cursor(self, table: LineTable, key: Hashable) -> None:
        """Put a table's cursor on a row for the page."""
        before = table.cursor_key
        table.move_to(key)
        self._note(table, before)

    def _note(self, table: LineTable, before: Hashable) -> None:
        if table.cursor_key != before:
            self._known[table] = table.cursor_key

    def _set_rows(
        self, table: LineTable, rows: Rows, columns: Sequence[Column] | None = None
    ) -> None:
        before = table.cursor_key
        table.set_rows(rows, columns)
        self._note(table, before)

    def _update(self, table: LineTable) -> None:
        before = table.cursor_key
        table.update_rows()
        self._note(table, before)

    def _show_cases(self) -> None:
        selection = self.selection
        selection.cases.short_ids = self.cases.size.width < FULL_IDS_WIDTH
        selection.cases.update()
        self._update(self.cases)
        self._body.query_one("#cases-pane", Pane).set_remark(selection.cases.efficiency_note())
        findings = self.selection.feed.state.findings
        has_findings = bool(findings) or any(word.kind != "note" for word in self.findings)
        self._body.size_tables(self.cases.total, self.ranks.total, has_findings=has_findings)
        # what the reader has just chosen is heard of after this: it must not be moved away from
        untouched = self.cases.cursor_key == self._known.get(self.cases)
        if untouched and selection.case is not None:
            self.move_cursor(self.cases, selection.case.id)

    def _show_ranks(self) -> None:
        source = self.selection.ranks
        source.update()
        if source is self._source and source.columns == self.ranks.columns:
            self._update(self.ranks)
        else:
            self._source = source
            self._set_rows(self.ranks, source, source.columns)
        title = f"ranks of {source.case.id}" if source.case else "ranks"
        if self.ranks.filter:
            title += f", {self.ranks.shown} of {self.ranks.total} match {self.ranks.filter!r}"
        self._body.query_one("#ranks-pane", Pane).set_title(title)

    def _show_words(self) -> None:
        self.findings = self.selection.findings.collect()
        for panel in self._body.query(FindingsPanel):
            if panel.is_on_screen:
                panel.show(self.findings)

    def _show_hosts(self) -> None:
        if self.hosts.is_on_screen:
            self.hosts.update_rows()

    def _show_strip(self) -> None:
        source = self._source
        rank = self.selection.rank
        shows = (source.ratios(), source.failed_ranks(), rank)
        if shows != self._strip_shows:
            self._strip_shows = shows
            self.strip.update(*shows)

    def _show_chart(self, pane: ChartPane) -> None:
        counted = self.selection.samples()
        metric = self.selection.metric
        if not pane.is_on_screen:
            return
        if counted is None or metric is None:
            pane.clear()
        else:
            pane.show(counted, metric, self.selection.rank)

    def _show_logs(self) -> None:
        view = self._body.query_one(LogView)
        rank = self.selection.rank
        if view.is_on_screen:
            view.show(self.selection.feed, rank)
            whose = "all ranks" if rank is None else f"rank {rank}"
            self._body.query_one("#logs-pane", Pane).set_title(f"logs of {whose}")
