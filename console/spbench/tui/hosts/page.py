"""The Hosts page: hostfiles, the facts of each host, and the speed of the links between them."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Coroutine, Hashable
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Grid, Vertical
from textual.worker import Worker

from spbench.record.runs.folder import list_runs
from spbench.record.runs.history import RunSummary
from spbench.report.links import LinkMatrix, find_last_link_matrix
from spbench.tui.context import ConsoleContext
from spbench.tui.hosts.asking import HostSurvey
from spbench.tui.hosts.findings_pane import FindingsPane
from spbench.tui.hosts.hosts_pane import HostsPane
from spbench.tui.hosts.links_pane import LinksPane
from spbench.tui.hosts.sources import COLUMNS, HostSource, SourceRows, read_sources
from spbench.tui.page import Page
from spbench.tui.widgets.keys import key
from spbench.tui.widgets.line_table import LineTable

POLL_INTERVAL = 5.0
"""Seconds between two looks at the hostfiles and the runs."""
WIDE_WIDTH = 100
"""Columns from which the sources take a third of them."""
_WIDTHS: list[tuple[int, str]] | None = [(0, "-narrow"), (WIDE_WIDTH, "-wide")]

NewestRun = tuple[tuple[str, bool], ...]
"""The newest run, and whether it has ended; () without runs."""


class SourcesPane(Vertical):
    """This machine, the command line's hosts and the hostfiles near."""

    HELP = """\
Where hosts come from: this machine, the command line, and the hostfiles in the folder where the
console was opened. u or enter makes runs that are started here use the hosts under the cursor; ●
marks those in use. With this machine, a suite that names a hostfile uses that."""


class HostsPage(Page):
    """Hostfiles, what doctor knows of each host, and the links between them."""

    NAME = "hosts"
    HELP = """\
The hosts there are to choose from, and what each has. d asks the hosts under the cursor what they
have, over ssh; nothing is asked before. Below: what was found on one host and how to fix it, and
the links that were measured last."""
    AUTO_FOCUS = "#sources"
    HORIZONTAL_BREAKPOINTS = _WIDTHS
    BINDINGS: ClassVar[list[BindingType]] = [
        key("hosts.use", "u", "use", "Use", "Use these hosts in runs from here", show=True),
        key("hosts.examine", "d", "examine", "Examine", "Ask each of these hosts", show=True),
        key("hosts.filter", "slash", "filter", "Filter", "Filter the hosts", show=True),
        key("hosts.measure", "m", "measure", "Measure", "The next measurement", show=True),
        key("hosts.swap", "h", "swap", "Swap", "Links of ranks, or of hosts"),
        key(
            "hosts.examine-one", "x", "examine_one", "Examine one", "Ask the host under the cursor"
        ),
        key("hosts.stop", "escape", "stop", "Stop", "Stop asking hosts"),
    ]
    DEFAULT_CSS = """
    HostsPage #body {
        height: 1fr; grid-size: 2 2; grid-columns: 1fr 2fr; grid-rows: 2fr 3fr;
    }
    HostsPage.-narrow #body { grid-columns: 29 1fr; }
    """

    def __init__(self, context: ConsoleContext) -> None:
        super().__init__(context)
        self._sources = SourceRows()
        self._asking = HostSurvey(context.options.environ)
        self._looking: Worker[None] | None = None
        self._looked = -POLL_INTERVAL
        self._shown: object = None
        self._measured: NewestRun | None = None

    def compose_body(self) -> ComposeResult:
        """Return sources and hosts, and below them findings and links."""
        with Grid(id="body"):
            with SourcesPane(classes="pane") as pane:
                pane.border_title = "Hostfiles"
                yield LineTable(COLUMNS, self._sources, id="sources")
            yield HostsPane(self._asking.facts, self._asking.pending)
            yield FindingsPane()
            yield LinksPane()

    @property
    def _table(self) -> LineTable:
        return self.query_one("#sources", LineTable)

    @property
    def _hosts(self) -> HostsPane:
        return self.query_one(HostsPane)

    def _source(self) -> HostSource | None:
        return self._sources.sources.get(self._table.cursor_key)

    # What there is

    def refresh_page(self) -> None:
        """Show what has become known; every few seconds, look for hostfiles and measured links."""
        looking = self._looking is not None and not self._looking.is_finished
        if not looking and time.monotonic() - self._looked >= POLL_INTERVAL:
            self._looking = self.run_worker(self._look(), group="look")
        shown = (self._asking.version, self._hosts.host, self.context.launch_choice)
        if shown != self._shown:
            self._shown = shown
            self._tell()

    async def _look(self) -> None:
        opening = self.context.options
        read = await asyncio.to_thread(read_sources, opening)
        if not self.app.is_running:
            return
        found: dict[Hashable, HostSource] = {source.name: source for source in read}
        if found != self._sources.sources:
            self._show_sources(found)
        measured, matrix = await asyncio.to_thread(_last_links, opening.home, self._measured)
        if measured != self._measured and self.app.is_running:
            self._measured = measured
            self.query_one(LinksPane).show_matrix(matrix)
        self._looked = time.monotonic()

    def _show_sources(self, found: dict[Hashable, HostSource]) -> None:
        first = not self._sources.sources
        self._sources.sources = found
        self._table.update_rows()
        self._show_source()
        if first:
            machine = next(iter(found.values())).hosts
            self._start(self._asking.examine_machine(machine.names[0] if machine else "localhost"))

    def _show_source(self) -> None:
        source = self._source()
        if source is not None:
            self._hosts.show_source(source)

    def _tell(self) -> None:
        """Show what is known of the hosts by now."""
        asked = self._asking.pending
        hosts = self._hosts
        self._sources.launch_choice = self.context.launch_choice
        self._table.update_rows()
        hosts.show_progress(f"asking {len(asked)}, esc stops" if asked else "")
        source = self._source()
        facts = self._asking.facts
        names = source.hosts.names if source and source.hosts else ()
        self.query_one(FindingsPane).show(
            hosts.host,
            facts.get(hosts.host or ""),
            self._asking.machine_findings if hosts.host == socket.gethostname() else (),
            [facts[name] for name in names if name in facts],
        )

    def on_line_table_row_highlighted(self, event: LineTable.RowHighlighted) -> None:
        """Show the hosts of the source under the cursor."""
        if event.table is self._table:
            self._show_source()

    def on_line_table_row_selected(self, event: LineTable.RowSelected) -> None:
        """Use a source, or ask a host."""
        if event.table is self._table:
            self.action_use()
        else:
            self.action_examine_one()

    # Actions

    def _start(self, asking: Coroutine[None, None, None]) -> None:
        self.run_worker(asking, group="asking")

    def action_use(self) -> None:
        """Let runs that are started here use the hosts under the cursor."""
        source = self._source()
        if source is None or source.hosts is None:
            self.notify("this file has no valid hosts; fix it first", severity="warning")
            return
        self.context.launch_choice = self.context.launch_choice.replace_hosts(source.choice)
        self.notify(f"runs from here use {source.name}", markup=False)

    def action_examine(self) -> None:
        """Ask all hosts of the source under the cursor."""
        source = self._source()
        if source is not None and source.hosts is not None:
            self._start(self._asking.ask(source.hosts.names))

    def action_examine_one(self) -> None:
        """Ask the host under the cursor."""
        if self._hosts.host is not None:
            self._start(self._asking.ask([self._hosts.host]))

    def action_stop(self) -> None:
        """Stop asking."""
        self.cancel_work("asking")

    def action_filter(self) -> None:
        """Write a filter."""
        self._hosts.open_filter()

    def action_measure(self) -> None:
        """Show the next measurement and message size."""
        self.query_one(LinksPane).next_table()

    def action_swap(self) -> None:
        """Show the links between hosts, or those between ranks."""
        self.query_one(LinksPane).toggle_hosts()


def _last_links(
    home: Path, before: NewestRun | None
) -> tuple[NewestRun, tuple[RunSummary, LinkMatrix] | None]:
    """Return the newest run, and the links measured last where that is another than before."""
    runs = list_runs(home)[-1:]
    measured = tuple((run.id, run.report.exists()) for run in runs)
    return measured, None if measured == before else find_last_link_matrix(home)
