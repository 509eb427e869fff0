"""A heat map of the last measured links."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from spbench.record.outliers.links import HostPair, RankPair
from spbench.record.runs.folder import RunFolder, list_runs
from spbench.record.runs.history import RunSummary
from spbench.report.links import (
    LinkMatrix,
    LinkTable,
    find_last_link_matrix,
    read_widest_links,
)
from spbench.report.times import format_day_and_time
from spbench.tui.hosts.link_texts import (
    ALL_SIMILAR,
    describe_worst_link,
    find_worst_table,
    list_measurements,
)
from spbench.tui.widgets.heat_map import HeatMap, Matrix
from spbench.tui.widgets.text import cell_width

MAX_RANKS_DRAWN = 256
"""Largest number of ranks of a matrix of ranks; with more, hosts are drawn."""
_MAP_LINES = 2
"""Lines of the map without its rows: the heading, and the text about a cell."""
_MAP_TEXT_LINES = 3
"""Lines of the texts above and below the map."""
_MARGIN_LINES = 4
"""Lines of the pane without the map and the list of measurements."""
_MAX_SHARE = 0.6
"""Largest share of the column's height if the details of the host are above the links."""
NO_LINKS = "No run here has measured links between ranks. F5 measures them, on the hosts marked ●."


NewestRun = tuple[tuple[str, bool], ...]
"""The newest run and the played one, and whether each has ended; empty without runs."""
MeasuredLinks = tuple[RunSummary, LinkMatrix]
"""A run and the links that it measured."""


@dataclass(frozen=True, slots=True)
class LabelledMatrix:
    """Labels of a heat map, and its square matrices of values and of slowness."""

    labels: list[str]
    values: Matrix
    slowness: Matrix | None


class LinksPane(Vertical):
    """One measurement at one message size, between ranks or between hosts."""

    HELP: ClassVar[str] = """\
The links of the run that you watched or replayed, or else of the newest run that measured any; [
shows those of earlier runs, and ] of later ones. The darker a cell, the slower its link, compared
with the median of links within a host or between hosts. m shows the next measurement or message
size. h switches between all ranks and pairs of hosts, which have the value of their worst pair of
ranks."""
    DEFAULT_CSS = """
    LinksPane #measured, LinksPane #worst { height: auto; max-height: 2; color: $text-muted; }
    LinksPane HeatMap { height: 1fr; }
    LinksPane #measurements { height: auto; display: none; margin-top: 1; }
    LinksPane.-with-measurements #measurements { display: block; }
    LinksPane.-with-measurements #worst { display: none; }
    """

    class NewHeight(Message):
        """The pane has the lines that its map needs."""

    def __init__(self) -> None:
        super().__init__(classes="pane", id="links")
        self.border_title = "Links"
        self._runs: list[MeasuredLinks] = []
        self._offered_ids: list[str] = []
        self._run_index = 0
        self._may_have_earlier = True
        self._table_index = 0
        self._by_host = False
        self._fitted_lines = 0

    def compose(self) -> ComposeResult:
        yield Static(NO_LINKS, id="measured", markup=False)
        yield HeatMap(id="map")
        yield Static("", id="worst", markup=False)
        yield Static("", id="measurements", markup=False)

    def on_mount(self) -> None:
        """Hide the map until links are known."""
        self.query_one(HeatMap).display = False

    @property
    def has_links(self) -> bool:
        """Whether a run has measured links."""
        return bool(self._runs)

    @property
    def needed_lines(self) -> int:
        """The lines of the pane with all rows of the map, and with its frame."""
        num_rows = self._matrix.ranks if self._matrix is not None else 0
        return num_rows + _MAP_LINES + _MAP_TEXT_LINES + self.gutter.height

    @property
    def has_earlier(self) -> bool:
        """Whether an earlier run may have measured links."""
        return bool(self._runs) and (
            self._may_have_earlier or self._run_index + 1 < len(self._runs)
        )

    @property
    def has_later(self) -> bool:
        """Whether a later run than the shown one has measured links."""
        return self._run_index > 0

    @property
    def _matrix(self) -> LinkMatrix | None:
        return self._runs[self._run_index][1] if self._runs else None

    def show_runs(self, measured: list[MeasuredLinks]) -> None:
        """Show the links of the last of these runs.

        No runs, or the same ones as before, change nothing.
        """
        ids = [run.id for run, _ in measured]
        if not ids or ids == self._offered_ids:
            return
        self._offered_ids = ids
        self._runs = sorted(measured, key=lambda links: links[0].id, reverse=True)
        self._may_have_earlier = True
        self._table_index = find_worst_table(measured[-1][1])
        self._show_run(self._runs.index(measured[-1]))

    async def show_earlier(self, home: Path) -> bool:
        """Show the run with links before the shown one; return False without any."""
        runs = self._runs
        if self._run_index + 1 == len(runs):
            measured = await asyncio.to_thread(find_last_link_matrix, home, runs[-1][0].id)
            if runs is not self._runs:
                return True  # the links of a new run are shown now
            if measured is None:
                self._may_have_earlier = False
                self._show_run(self._run_index)
                return False
            runs.append(measured)
        self._show_run(self._run_index + 1)
        return True

    def show_later(self) -> None:
        """Show the run with links after the shown one."""
        if self.has_later:
            self._show_run(self._run_index - 1)

    def _show_run(self, index: int) -> None:
        self._run_index = index
        run, matrix = self._runs[index]
        keys = [
            *(["[: earlier run"] if self.has_earlier else []),
            *(["]: later run"] if self.has_later else []),
        ]
        note = f"  {', '.join(keys)}" if keys else ""
        self.border_title = Content(f"Links, {format_day_and_time(run.started)}{note}")
        self.border_subtitle = Content(f"{run.id} {matrix.case}")
        self._draw()

    def next_table(self) -> None:
        """Show the next measurement or message size."""
        if self._matrix:
            self._table_index = (self._table_index + 1) % len(self._matrix.tables)
            self._draw()

    def toggle_hosts(self) -> None:
        """Switch between links of ranks and of hosts."""
        self._by_host = not self._by_host
        self._draw()

    def _draw(self) -> None:
        if self._matrix is not None:
            self._show(self._matrix)

    @work(exclusive=True, group="map", description="the map of the links")
    async def _show(self, matrix: LinkMatrix) -> None:
        table = matrix.tables[min(self._table_index, len(matrix.tables) - 1)]
        by_host = self._by_host or len(table.ranks) > MAX_RANKS_DRAWN
        labelled = await asyncio.to_thread(
            _build_host_matrix if by_host else _build_rank_matrix, table
        )
        chart = self.query_one(HeatMap)
        chart.display = True
        chart.update(
            labelled.labels, labelled.values, table.unit, table.better, slowness=labelled.slowness
        )
        self.query_one("#measured", Static).update(self._describe(matrix, table, by_host))
        self.query_one("#worst", Static).update(describe_worst_link(table) or ALL_SIMILAR)
        await self._show_measurements(matrix, table, len(labelled.labels))

    async def _show_measurements(
        self, matrix: LinkMatrix, shown: LinkTable, num_labels: int
    ) -> None:
        """List the slowest link of each measurement if it fits below the map.

        The pane is as high as its contents, up to a share of the column.
        """
        map_lines = num_labels + _MAP_LINES
        self._fitted_lines = self._count_available_lines()
        fits = map_lines + len(matrix.tables) + _MARGIN_LINES <= self._fitted_lines
        lines: list[str] = []
        if fits and len(shown.ranks) <= MAX_RANKS_DRAWN:
            lines = await asyncio.to_thread(list_measurements, matrix, shown)
            fits = max(map(cell_width, lines)) <= self.size.width
        self.set_class(fits and bool(lines), "-with-measurements")
        is_whole = self._shares_column and map_lines + _MARGIN_LINES <= self._fitted_lines
        self.query_one(HeatMap).styles.height = map_lines if is_whole else "1fr"
        self.styles.height = None
        if self._shares_column and not is_whole:
            self.styles.height = f"{100 * _MAX_SHARE:.0f}%"
        self.query_one("#measurements", Static).update("\n".join(lines))
        self.post_message(self.NewHeight())

    def on_resize(self) -> None:
        """Use the new height."""
        self._draw()

    def refit(self) -> None:
        """Use the available height if the panes above have another height than before."""
        if self._count_available_lines() != self._fitted_lines:
            self._draw()

    def _count_available_lines(self) -> int:
        """Return the lines within the frame if the pane is as high as possible."""
        parent_lines = self.parent.size.height if isinstance(self.parent, Widget) else 0
        share = _MAX_SHARE if self._shares_column else 1
        return int(share * parent_lines) - self.gutter.height

    @property
    def _shares_column(self) -> bool:
        """Whether the details of the host are above."""
        return any(sibling.display for sibling in self.siblings)

    def _describe(self, matrix: LinkMatrix, table: LinkTable, by_host: bool) -> str:
        count = len(matrix.tables)
        position = f" ({matrix.tables.index(table) + 1} of {count}, m: next)" if count > 1 else ""
        ends = "hosts, worst pair of ranks of each two" if by_host else "ranks"
        title = table.title[:1].upper() + table.title[1:]
        return f"{title}, between {ends}{position}"


def _build_rank_matrix(table: LinkTable) -> LabelledMatrix:
    ranks = table.ranks
    slowness_by_pair = table.compute_slowness()
    return LabelledMatrix(
        [f"{rank} {table.hosts.get(rank, '')}".rstrip() for rank in ranks],
        [[table.get_value(source, target) for target in ranks] for source in ranks],
        [[_get_slowness(slowness_by_pair, source, target) for target in ranks] for source in ranks],
    )


def _get_slowness(
    slowness_by_pair: dict[RankPair, float], source: int, target: int
) -> float | None:
    return slowness_by_pair.get((source, target), slowness_by_pair.get((target, source)))


def _build_host_matrix(table: LinkTable) -> LabelledMatrix:
    """Return for each two hosts the worst pair of ranks, in both directions."""
    value_by_pair = table.worst_by_host()
    worst_slowness_by_pair: dict[HostPair, float] = defaultdict(float)
    for (source, target), slowness in table.compute_slowness().items():
        if source in table.hosts and target in table.hosts:
            ends = table.hosts[source], table.hosts[target]
            for pair in (ends, ends[::-1]):
                worst_slowness_by_pair[pair] = max(worst_slowness_by_pair[pair], slowness)
    hosts = list(dict.fromkeys(host for pair in value_by_pair for host in pair))
    return LabelledMatrix(
        hosts,
        [
            [value_by_pair.get((source_host, target_host)) for target_host in hosts]
            for source_host in hosts
        ],
        [
            [worst_slowness_by_pair.get((source_host, target_host)) for target_host in hosts]
            for source_host in hosts
        ],
    )


def read_last_links(
    home: Path, before: NewestRun | None, played: RunFolder | None
) -> tuple[NewestRun, list[MeasuredLinks]]:
    """Return the newest run and the played one, and the links if one is new.

    The links are those of the newest run that measured any, and those of the played run if it
    measured any, which are the last ones.

    Args:
        home: The folder of the runs.
        before: The value that was returned before.
        played: A run that was watched or replayed to its end, which may be outside the home.
    """
    runs = [*list_runs(home)[-1:], *([played] if played is not None else [])]
    newest_run = tuple((run.id, run.report.exists()) for run in runs)
    if newest_run == before:
        return newest_run, []
    measured = [find_last_link_matrix(home), read_widest_links(played) if played else None]
    links_by_run = {links[0].id: links for links in measured if links is not None}
    return newest_run, list(links_by_run.values())
