"""The panes with an overview: hosts by case, parts, and the previous run."""

from __future__ import annotations

from spbench.tui.panes import READING
from spbench.tui.run.body import RunBody
from spbench.tui.run.panes.charts import count_bars
from spbench.tui.run.panes.overview import (
    NO_PARTS,
    NO_PARTS_SO_FAR,
    HostMapPane,
    PartsPane,
    PreviousPane,
)
from spbench.tui.run.selection import RunSelection


class Overview:
    """The panes with an overview of a run.

    Args:
        body: The panes of the page.
        selection: The run, and the selected case.
    """

    def __init__(self, body: RunBody, selection: RunSelection) -> None:
        self._body = body
        self._selection = selection
        self._map_lines: list[int] = []

    @property
    def shows_hosts_by_case(self) -> bool:
        """Whether a map of the hosts is visible."""
        return any(pane.is_on_screen for pane in self._body.query(HostMapPane))

    @property
    def shows_parts(self) -> bool:
        """Whether the parts of an iteration are visible or may become so."""
        return self._body.is_full or any(pane.is_on_screen for pane in self._body.query(PartsPane))

    def update(self, *, paused: bool) -> bool:
        """Update the panes; return whether maps or parts need other lines."""
        if self.shows_hosts_by_case:
            self._update_maps(paused=paused)
        has_other_parts = self._update_parts()
        self._body.show_previous(self._selection.previous is not None)
        for previous_pane in self._body.query(PreviousPane):
            previous_pane.update_rows()
        lines_before = self._map_lines
        self._map_lines = [pane.map.count_lines() for pane in self._body.query(HostMapPane)]
        return has_other_parts or self._map_lines != lines_before

    def _update_maps(self, *, paused: bool) -> None:
        selection = self._selection
        case = selection.case
        content = (
            selection.list_hosts(),
            selection.compute_host_slowness(),
            case.id if case is not None else "",
            selection.list_slow_hosts(),
        )
        is_pending = selection.hosts.find_pending(selection.feed.state.cases.values()) is not None
        for map_pane in self._body.query(HostMapPane):
            map_pane.show(*content, paused=paused, is_pending=is_pending)

    def _update_parts(self) -> bool:
        """Update the parts of the case; return whether their pane has other lines."""
        case = self._selection.case
        bars = self._selection.bars
        groups = bars.get(case) if case is not None else None
        is_pending = groups is None and case is not None and bars.find_pending([case]) is not None
        group = groups[0] if groups else None
        max_bars = count_bars(case) if case is not None else 0
        missing_text = NO_PARTS_SO_FAR if max_bars else NO_PARTS
        for parts_pane in self._body.query(PartsPane):
            case_id = case.id if case is not None else ""
            parts_pane.show(group, case_id, READING if is_pending else missing_text)
        return self._body.set_part_bars(self._selection.max_part_bars if max_bars else 0)
