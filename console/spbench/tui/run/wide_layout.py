"""The sizes of the panes of the Run page on a wide screen, shared by need.

The heights depend on the size of the screen and on the cases of the run, not on its results, so
that each pane keeps its place from the start of a run to its end.
"""

from __future__ import annotations

from dataclasses import dataclass

from textual.containers import Container

from spbench.tui.run.panels import Panel
from spbench.tui.run.panes.overview import HostMapPane
from spbench.tui.widgets.line_table import LineTable
from spbench.tui.widgets.rank_strip import FEW_RANKS, MAX_TEXT_LINES, RankStrip

MIN_LEFT_WIDTH = 74
MIN_RIGHT_WIDTH = 77
"""Columns of the ranks with which no important column is left out."""
LEFT_SHARE = 0.41
"""Smallest share of the width for the cases, unless the ranks need it."""
PANE_MARGIN = 7
"""Columns of a table's pane without its columns: frame, mark of the cursor, and scroll bar."""
FRAME_LINES = 2
MIN_FINDINGS_LINES = 8
MAX_FINDINGS_LINES = 16
MIN_HISTOGRAM_LINES = 9
"""Lines of the smallest histogram below the findings, which get their lines first."""
MIN_CHART_LINES = 12
MAP_FRAME_LINES = 2
"""Lines of the map of the hosts without its rows: heading and legend."""
MIN_MAP_LINES = 6
MAX_MAP_SHARE = 0.34
MAX_PARTS_SHARE = 0.34
MIN_PARTS_LINES = 5
MIN_FINDINGS_ROWS = 4
MIN_FINDINGS_PANE_LINES = MIN_FINDINGS_ROWS + FRAME_LINES
"""Lines of the smallest pane of the parts, and of that of the findings on a full screen."""
MAX_STRIP_LINES = 4
MIN_LOADS_LINES = 5
"""Lines of the smallest panes, with their frames."""


def choose_left_width(width: int, cases_width: int) -> int:
    """Return the columns of the cases; the ranks take the others.

    Args:
        width: The columns of the screen.
        cases_width: The width of all columns of the cases.
    """
    needed_width = max(cases_width + PANE_MARGIN, round(width * LEFT_SHARE))
    return max(MIN_LEFT_WIDTH, min(needed_width, width - MIN_RIGHT_WIDTH))


@dataclass(frozen=True, slots=True)
class LeftHeights:
    """The heights of the panes below the cases; None takes the free lines.

    Attributes:
        has_histogram: Whether the histogram takes the free lines, and not the findings.
    """

    findings: int | None
    parts: int
    has_histogram: bool


def share_left(free_lines: int, *, parts: int) -> LeftHeights:
    """Share the lines below the cases.

    Args:
        free_lines: The lines below the cases and the previous run.
        parts: The lines of the parts of an iteration; 0 if they are hidden.
    """
    parts_lines = 0
    if parts:
        parts_lines = min(parts + FRAME_LINES, round(free_lines * MAX_PARTS_SHARE))
        is_too_low = parts_lines < MIN_PARTS_LINES
        if is_too_low or free_lines - parts_lines < MIN_FINDINGS_PANE_LINES:
            parts_lines = 0
    shared_lines = free_lines - parts_lines
    findings_lines = min(shared_lines - MIN_HISTOGRAM_LINES, MAX_FINDINGS_LINES)
    has_histogram = findings_lines >= MIN_FINDINGS_LINES
    return LeftHeights(findings_lines if has_histogram else None, parts_lines, has_histogram)


@dataclass(frozen=True, slots=True)
class RightHeights:
    """The heights of the panes below the charts of a full screen; 0 hides the loads."""

    host_map: int
    loads: int

    @property
    def total(self) -> int:
        """The lines of both panes."""
        return self.host_map + self.loads


def share_right(free_lines: int, *, host_map: int, loads: int, has_charts: bool) -> RightHeights:
    """Share the lines below the ranks; the charts take those that are left.

    Args:
        free_lines: The lines below the ranks.
        host_map: The lines of the map of the hosts.
        loads: The lines of the loads of the hosts; 0 if they are shown elsewhere.
        has_charts: Whether there are charts, or another panel, above both.
    """
    lower_lines = free_lines - (MIN_CHART_LINES if has_charts else 0)
    max_map_lines = round(MAX_MAP_SHARE * free_lines) if has_charts else lower_lines
    map_lines = max(MIN_MAP_LINES, min(host_map + FRAME_LINES, max_map_lines))
    loads_lines = min(loads + FRAME_LINES, lower_lines - map_lines) if loads else 0
    return RightHeights(map_lines, loads_lines if loads_lines >= MIN_LOADS_LINES else 0)


def fit_strip(
    strip: RankStrip, ranks: int, free_rows: int, *, is_short: bool, is_full: bool
) -> int:
    """Set the height of the strip, and return its lines without those of free rows.

    A full screen keeps all text lines; a longer text also takes a free row.

    Args:
        strip: The strip.
        ranks: The number of ranks with space in the table.
        free_rows: The number of them that the shown case does not have.
        is_short: Whether the screen is short.
        is_full: Whether the screen shows all panes at once.
    """
    cell_lines = 0
    if ranks > FEW_RANKS:
        max_cell_lines = 1 if is_short else MAX_STRIP_LINES
        cell_lines = min(-(-ranks // max(1, strip.size.width)), max_cell_lines)
    strip.max_text_lines = MAX_TEXT_LINES + (1 if is_full and free_rows else 0)
    needed_lines = strip.measure_text_lines(strip.size.width)
    text_lines = max(MAX_TEXT_LINES, needed_lines) if is_full else needed_lines
    strip.styles.height = cell_lines + text_lines
    return cell_lines + min(text_lines, MAX_TEXT_LINES)


def fit_left(body: Container, height: int, *, parts: int, is_short: bool, has_charts: bool) -> None:
    """Share the lines below the cases, or give all to the findings of a short screen.

    Args:
        body: The panes of the page.
        height: The lines of all panes at the left.
        parts: The lines of the parts of an iteration; 0 if they are hidden.
        is_short: Whether the screen is short.
        has_charts: Whether there are charts.
    """
    findings = body.query_one("#findings-pane")
    histogram = body.query_one("#left-histogram-pane")
    if body.screen.maximized is not None or is_short:
        findings.styles.height = "1fr"
        histogram.display = histogram.display and not is_short
        return
    above = (pane for pane in body.query("#cases-pane, #previous-pane") if pane.display)
    taken_lines = sum(int(pane.styles.height.value) for pane in above if pane.styles.height)
    heights = share_left(height - taken_lines, parts=parts)
    # Set once: each other height, also for a moment, costs a layout of the page.
    has_histogram = heights.has_histogram and has_charts
    findings.styles.height = heights.findings if has_histogram else "1fr"
    parts_pane = body.query_one("#parts-pane")
    parts_pane.styles.height = heights.parts
    parts_pane.display = heights.parts > 0
    histogram.display = has_histogram


def fit_right(
    body: Container, free_lines: int, panel: Panel, *, num_cases: int, is_full: bool
) -> None:
    """Share the lines below the ranks of a full screen."""
    extra = body.query_one("#extra")
    host_map = body.query_one("#host-map-pane", HostMapPane)
    loads = body.query_one("#extra-loads-pane")
    if not is_full or body.screen.maximized is not None:
        host_map.styles.height = "1fr"
        loads.styles.height = "1fr"
        return
    # Two rows at first, since a hidden table is not filled.
    host_count = max(2, body.query_one("#extra-loads", LineTable).row_count)
    has_charts = panel is not Panel.NONE
    heights = share_right(
        free_lines,
        host_map=max(num_cases + MAP_FRAME_LINES, host_map.map.count_lines()),
        loads=0 if panel is Panel.HOSTS else host_count + 1,
        has_charts=has_charts,
    )
    extra.styles.height = heights.total if has_charts else "1fr"
    host_map.styles.height = heights.host_map if has_charts else "1fr"
    loads.styles.height = heights.loads
    loads.display = heights.loads > 0
