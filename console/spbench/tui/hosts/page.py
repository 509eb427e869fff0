"""The Hosts page: hostfiles, facts about each host, and measured links."""

from __future__ import annotations

import asyncio
import math
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Grid, Vertical
from textual.worker import Worker

from spbench.launch.choice import LaunchChoice
from spbench.launch.hosts.names import is_local
from spbench.record.runs.folder import RunFolder
from spbench.record.runs.history import RunSummary
from spbench.tui.context import ConsoleContext
from spbench.tui.hosts.bindings import FOOTER, HOSTS_BINDINGS
from spbench.tui.hosts.details_pane import DetailsPane, read_last_runs
from spbench.tui.hosts.host_survey import HostSurvey
from spbench.tui.hosts.layout import (
    HEIGHTS,
    LAYOUT_CSS,
    WIDTHS,
    HostsPanel,
    list_panels,
    update_crowded,
)
from spbench.tui.hosts.links_pane import LinksPane, NewestRun, read_last_links
from spbench.tui.hosts.links_start import start_links
from spbench.tui.hosts.load_chart import LoadChartPane
from spbench.tui.hosts.machine_monitor import MachineMonitor, find_own_runs
from spbench.tui.hosts.panes import FindingsPane, HostsPane
from spbench.tui.hosts.sources import (
    COLUMNS,
    HostSource,
    SourceRows,
    SourcesPane,
    SourceTable,
    read_sources,
)
from spbench.tui.page import Page
from spbench.tui.widgets.line_table import LineTable

_MAX_LIST_SHARE = 0.35
"""Largest share of the height that the lists of sources and hosts take."""
_MAX_SHORT_LINES = 8
"""The lines that the lists may take on a low screen, and that an error gets."""
_MIN_FINDINGS_LINES = 5
"""The lines that findings keep next to links on a narrow screen."""
_LIST_MARGIN = 3
"""Lines of a list's pane without its rows: the frame and the heading."""


class HostsPage(Page):
    """Hostfiles, facts and findings of hosts, and the links between them."""

    NAME = "hosts"
    HELP = """\
The hosts that runs can use. r asks the hosts under the cursor over ssh for their cores, memory,
load, devices and libraries. This machine needs no ssh, and its load is read every few seconds.
Below are the findings on one host with their remedies, what is known of it, and the links of the
last run that measured any; F5 measures them, and [ shows earlier ones. On a small screen, v shows
details and charts."""
    AUTO_FOCUS = "#sources"
    MODIFYING_ACTIONS = frozenset({"start_links"})
    HORIZONTAL_BREAKPOINTS = WIDTHS
    VERTICAL_BREAKPOINTS = HEIGHTS
    FOOTER = FOOTER
    BINDINGS: ClassVar[list[BindingType]] = HOSTS_BINDINGS
    DEFAULT_CSS = LAYOUT_CSS

    poll_seconds = 5.0
    """Time between two reads of hostfiles and runs."""
    load_seconds: ClassVar[float] = 3.0
    """Time between two readings of the load of this machine, while the page is shown."""

    def __init__(self, context: ConsoleContext) -> None:
        super().__init__(context)
        self._sources = SourceRows()
        self._survey = HostSurvey(context.options.environ)
        self._poll_worker: Worker[None] | None = None
        self._polled_at = -math.inf
        self._shown: object = None
        self._newest_run: NewestRun | None = None
        self._monitor = MachineMonitor()
        self._load_worker: Worker[None] | None = None
        self._load_read_at = -math.inf
        self._last_runs: list[RunSummary] = []
        self._panel = HostsPanel.FINDINGS
        self._grid_rows = ""
        self._typed_choice: LaunchChoice | None = None
        self._polled: tuple[LaunchChoice | None, RunFolder | None] = (None, None)

    def compose_body(self) -> ComposeResult:
        """Yield sources and hosts, and below them findings and links."""
        with Grid(id="body"):
            with SourcesPane(classes="pane") as pane:
                pane.border_title = "Hostfiles"
                yield SourceTable(COLUMNS, self._sources, id="sources")
            yield HostsPane(self._survey.facts, self._survey.pending)
            with Vertical(id="checks"):
                yield FindingsPane()
                yield LoadChartPane("Cores busy", id="load-chart")
            with Vertical(id="host"):
                yield DetailsPane()
                yield LinksPane()
                yield LoadChartPane("Memory used", id="memory-chart")

    @property
    def _table(self) -> LineTable:
        return self.query_one("#sources", LineTable)

    @property
    def _hosts_pane(self) -> HostsPane:
        return self.query_one(HostsPane)

    def _get_source(self) -> HostSource | None:
        return self._sources.sources.get(self._table.cursor_key)

    def refresh_page(self) -> None:
        """Show new answers; read hostfiles and measured links periodically."""
        is_polling = self._poll_worker is not None and not self._poll_worker.is_finished
        is_due = time.monotonic() - self._polled_at >= self.poll_seconds
        polled = (self.context.launch_choice, self._find_played_run())
        if not is_polling and (is_due or polled != self._polled):
            self._poll_worker = self.run_worker(self._poll, group="look")
        is_reading = self._load_worker is not None and not self._load_worker.is_finished
        if not is_reading and time.monotonic() - self._load_read_at >= self.load_seconds:
            self._load_worker = self.run_worker(self._read_load, group="load")
        shown = (self._survey.version, self._hosts_pane.host, self.context.launch_choice)
        if shown != self._shown:
            self._shown = shown
            self._show_survey()

    async def _read_load(self) -> None:
        """Read the load of this machine; other hosts are only asked after a key."""
        await asyncio.to_thread(lambda: self._monitor.read(find_own_runs(self.context)))
        self._load_read_at = time.monotonic()
        load = self._monitor.load
        mean = load.load_means[0] if load.load_means else None
        self._survey.update_load(mean, load.findings)
        self._show_details()

    def _show_details(self) -> None:
        host = self._hosts_pane.host
        is_machine = host is not None and is_local(host)
        self.set_class(is_machine, "-machine")
        self._show_panel(self._panel)
        self.query_one(DetailsPane).show(
            host,
            self._survey.facts.get(host or ""),
            self._monitor if is_machine else None,
            [run for run in self._last_runs if run.host == host],
        )
        load = self._monitor.load
        for id, history in (("#load-chart", load.cpu), ("#memory-chart", load.memory)):
            self.query_one(id, LoadChartPane).show(history, self.load_seconds)
        self.call_after_refresh(self.query_one(LinksPane).refit)
        self.call_after_refresh(update_crowded, self)

    def _show_panel(self, panel: HostsPanel) -> None:
        """Show a panel, or the findings if there is no such panel for this size or host."""
        panels = list_panels(self)
        self._panel = panel if panel in panels else HostsPanel.FINDINGS
        self.set_class(self._panel is HostsPanel.DETAILS, "-panel-details")
        self.set_class(self._panel is HostsPanel.CHARTS, "-panel-charts")
        position = panels.index(self._panel)
        others = [other.value for other in (*panels[position + 1 :], *panels[:position])]
        note = f"  v: {', '.join(others)}" if others else ""
        self.query_one(FindingsPane).set_note(note if self._panel is HostsPanel.FINDINGS else "")
        self.query_one(DetailsPane).set_note(note if self._panel is HostsPanel.DETAILS else "")
        self.query_one("#load-chart", LoadChartPane).set_note(note)
        self._fit_rows()

    def _find_played_run(self) -> RunFolder | None:
        """Return the run that was watched or replayed to its end."""
        feed = self.context.feed
        return feed.folder if feed is not None and feed.ended else None

    async def _poll(self) -> None:
        options = self.context.options
        choice = self.context.launch_choice
        played = self._find_played_run()
        self._polled = (choice, played)
        if choice.hosts is not None or choice.hostfile is not None:
            self._typed_choice = choice
        sources = await asyncio.to_thread(read_sources, options, self._typed_choice)
        sources_by_name: dict[Hashable, HostSource] = {source.name: source for source in sources}
        if sources_by_name != self._sources.sources:
            self._show_sources(sources_by_name)
        newest_run, measured = await asyncio.to_thread(
            read_last_links, options.home, self._newest_run, played
        )
        if newest_run != self._newest_run:
            self._newest_run = newest_run
            self._last_runs = await asyncio.to_thread(read_last_runs, options.home)
            links = self.query_one(LinksPane)
            links.show_runs(measured)
            self.set_class(links.has_links, "-links")
            self._fit_rows()
            self._show_details()
        self._polled_at = time.monotonic()

    def _show_sources(self, sources: dict[Hashable, HostSource]) -> None:
        is_first_time = not self._sources.sources
        self._sources.sources = sources
        self._table.set_rows(self._sources)
        self._show_source()
        if is_first_time:
            self._start_survey(self._survey.examine_machine(socket.gethostname()))

    def _show_source(self) -> None:
        source = self._get_source()
        if source is not None:
            self._hosts_pane.show_source(source)
            self._fit_rows()

    def on_resize(self) -> None:
        """Use the new size; the classes for it are set after this event."""
        self.call_after_refresh(lambda: self._show_panel(self._panel))

    def _fit_rows(self) -> None:
        """Make the upper panes as high as their lists, up to a share of the page."""
        source = self._get_source()
        num_hosts = len(source.hosts.names) if source is not None and source.hosts else 0
        needed_lines = max(num_hosts, self._table.row_count) + _LIST_MARGIN
        if source is not None and source.error:
            needed_lines = max(needed_lines, _MAX_SHORT_LINES)
        max_lines = max(_MAX_SHORT_LINES, int(_MAX_LIST_SHARE * self.size.height))
        lower_rows = "1fr"
        if self.has_class("-narrow") and self._panel is not HostsPanel.DETAILS:
            lower_rows = "1fr 1fr"
            if self._panel is HostsPanel.FINDINGS:
                list_lines = min(needed_lines, max_lines)
                max_share = (self.size.height - list_lines) // 2
                if self.has_class("-links"):
                    links_lines = self.query_one(LinksPane).needed_lines
                    free_lines = self.query_one("#body").size.height - list_lines - links_lines
                    max_share = min(max_share, max(_MIN_FINDINGS_LINES, free_lines))
                lower_rows = f"{min(self.query_one(FindingsPane).needed_lines, max_share)} 1fr"
        grid_rows = f"{min(needed_lines, max_lines)} {lower_rows}"
        if grid_rows != self._grid_rows:
            self._grid_rows = grid_rows
            self.query_one("#body").styles.grid_rows = grid_rows

    def _show_survey(self) -> None:
        """Show the current state of the survey."""
        pending = self._survey.pending
        hosts = self._hosts_pane
        self._sources.launch_choice = self.context.launch_choice
        self._table.update_rows()
        hosts.show_progress(f"asking {len(pending)}, Esc stops" if pending else "")
        source = self._get_source()
        facts = self._survey.facts
        names = source.hosts.names if source and source.hosts else ()
        self.query_one(FindingsPane).show(
            hosts.host,
            facts.get(hosts.host or ""),
            self._survey.machine_findings if hosts.host and is_local(hosts.host) else (),
            [facts[name] for name in names if name in facts],
            self._survey.answer_times.get(hosts.host or "", ""),
        )
        self._show_details()
        self.call_after_refresh(self._fit_rows)  # the lines of new findings are known then

    def on_links_pane_new_height(self) -> None:
        """Show the chart of the memory if the links leave the lines for it."""
        self.call_after_refresh(update_crowded, self)

    def on_line_table_row_highlighted(self, event: LineTable.RowHighlighted) -> None:
        """Show the hosts of the source under the cursor."""
        if event.table is self._table:
            self._show_source()

    def on_line_table_row_selected(self, event: LineTable.RowSelected) -> None:
        """Use a source, or query a host."""
        if event.table is self._table:
            self.action_use()
        else:
            self.action_examine_one()

    def _start_survey(self, queries: Coroutine[None, None, None]) -> None:
        self.run_worker(queries, group="asking")

    def offers(self, action: str) -> bool:
        """Return whether an action has the hosts or links that it needs."""
        if action == "stop":
            return bool(self._survey.pending)
        if action == "use" and self.focused is self._table:
            return False  # enter does the same, and the bar shows that
        if action in ("use", "examine"):
            source = self._get_source()
            return source is not None and source.hosts is not None
        if action == "examine_one":
            return self._hosts_pane.host is not None and not self._hosts_pane.table.has_focus
        if action == "panel":
            return len(list_panels(self)) > 1
        links = self.query_one(LinksPane)
        if action in ("earlier_links", "later_links"):
            return links.has_earlier if action == "earlier_links" else links.has_later
        return action not in ("measure", "swap") or links.has_links

    def describe_location(self) -> tuple[str, ...]:
        """Return the hostfile and the host under the cursor."""
        source = self._get_source()
        return (source.title if source is not None else "", self._hosts_pane.host or "")

    def action_use(self) -> None:
        """Use the hosts under the cursor for runs started in the console."""
        source = self._get_source()
        if source is None or source.hosts is None:
            self.notify("this file has no valid hosts; fix it first", severity="warning")
            return
        self.context.launch_choice = self.context.launch_choice.replace_hosts(source.choice)
        self.notify(f"runs from here use {source.title}", markup=False)

    def action_examine(self) -> None:
        """Query all hosts of the source under the cursor."""
        source = self._get_source()
        if source is not None and source.hosts is not None:
            self._start_survey(self._survey.query_hosts(source.hosts.names))

    def action_examine_one(self) -> None:
        """Query the host under the cursor."""
        if self._hosts_pane.host is not None:
            self._start_survey(self._survey.query_hosts([self._hosts_pane.host]))

    def action_stop(self) -> None:
        """Stop all queries."""
        self.cancel_work("asking")

    def action_filter(self) -> None:
        """Ask for a filter."""
        self._hosts_pane.open_filter()

    def action_panel(self) -> None:
        """Show the next panel."""
        panels = list_panels(self)
        self._show_panel(panels[(panels.index(self._panel) + 1) % len(panels)])

    def action_measure(self) -> None:
        """Show the next measurement and message size."""
        self.query_one(LinksPane).next_table()

    def action_start_links(self) -> None:
        """Measure the links of the hosts that runs use."""
        self.start_action(start_links, self)

    def action_earlier_links(self) -> None:
        """Show the links of the run with links before the shown one."""
        show: Callable[[], Awaitable[None]] = self._show_earlier_links
        self.run_worker(show, group="links", exclusive=True)

    async def _show_earlier_links(self) -> None:
        if not await self.query_one(LinksPane).show_earlier(self.context.options.home):
            self.notify("no earlier run here has measured links")

    def action_later_links(self) -> None:
        """Show the links of the run with links after the shown one."""
        self.query_one(LinksPane).show_later()

    def action_swap(self) -> None:
        """Switch between links of ranks and of hosts."""
        self.query_one(LinksPane).toggle_hosts()
