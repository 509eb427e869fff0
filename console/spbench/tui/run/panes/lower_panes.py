"""The panes below the ranks of the Run page, of which one panel is shown."""

from __future__ import annotations

from collections.abc import Collection

from textual.app import ComposeResult
from textual.containers import Horizontal

from spbench.tui.panes import Pane
from spbench.tui.run.panels import CHART_PANELS, FINDINGS_PANE, Panel
from spbench.tui.run.panes.charts import HistogramPane, TimelinePane
from spbench.tui.run.panes.findings_panel import FindingsPanel
from spbench.tui.run.panes.gpu_panel import COLUMNS as GPU_COLUMNS
from spbench.tui.run.panes.hosts_panel import HostLoadsPane
from spbench.tui.run.panes.log_view import LogView
from spbench.tui.run.panes.overview import HostMapPane, PartsPane, PreviousPane
from spbench.tui.widgets.fixed_rows import FixedRows
from spbench.tui.widgets.line_table import LineTable

MIN_PANEL_LINES = 4
MIN_CHART_LINES = 12
"""Lines of the panel below the ranks that many cases leave to it: without and with content."""
NO_GPUS = "no host has reported a GPU"


class LowerPanes(Horizontal):
    """All panes that the panels of the page show, next to each other."""

    DEFAULT_CSS = """
    LowerPanes { width: 100%; height: 1fr; & > * { width: 1fr; height: 1fr; } }
    """

    def __init__(self) -> None:
        super().__init__(id="lower")

    def compose(self) -> ComposeResult:
        yield Pane("Findings", FindingsPanel(id="lower-findings"), id=FINDINGS_PANE)
        yield HistogramPane("histogram")
        yield TimelinePane()
        yield HostMapPane("lower-host-map")
        yield PartsPane("lower-parts")
        yield PreviousPane("lower-previous")
        yield HostLoadsPane("host-loads")
        yield Pane(
            "GPUs",
            LineTable(GPU_COLUMNS, FixedRows(GPU_COLUMNS), id="gpus", empty=NO_GPUS),
            id="gpus-pane",
        )
        yield Pane("Logs", LogView(id="logs"), id="logs-pane")

    def show_panes(self, shown_ids: Collection[str], position: str) -> None:
        """Show panes, the last one with the position of the panel and the key of the next."""
        last: Pane | None = None
        for pane in self.query_children(Pane):
            pane.display = pane.id in shown_ids
            if pane.display:
                last = pane
        for pane in self.query_children(Pane):
            pane.set_hint(position if pane is last else "")

    def count_lines(
        self, panel: Panel, page_lines: int, *, is_short: bool, has_samples: bool
    ) -> int:
        """Return the number of lines that a panel needs.

        Args:
            panel: The panel.
            page_lines: The lines of all panes of the page.
            is_short: Whether the screen is short, so that panes have no frames.
            has_samples: Whether the charts have samples.
        """
        if panel is Panel.NONE:
            return 0
        lines = MIN_CHART_LINES
        if panel is Panel.FINDINGS or (panel in CHART_PANELS and not has_samples):
            text_lines = 0
            if panel.shows_findings:
                text_lines = self.query_one("#lower-findings", FindingsPanel).text_lines
            frame_lines = 1 if is_short else 3
            lines = min(max(text_lines + frame_lines, MIN_PANEL_LINES), MIN_CHART_LINES)
        return min(lines, page_lines // 3) if is_short else lines
