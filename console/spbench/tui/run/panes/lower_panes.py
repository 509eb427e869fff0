"""The panes below the ranks of the Run page, of which one panel is shown."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal

from spbench.tui.panes import Pane
from spbench.tui.run.panels import FINDINGS_PANE
from spbench.tui.run.panes.charts import HistogramPane, TimelinePane
from spbench.tui.run.panes.findings_panel import FindingsPanel
from spbench.tui.run.panes.gpu_panel import COLUMNS as GPU_COLUMNS
from spbench.tui.run.panes.hosts_panel import HostLoadsPane
from spbench.tui.run.panes.log_view import LogView
from spbench.tui.run.panes.overview import HostMapPane, PartsPane, PreviousPane
from spbench.tui.widgets.fixed_rows import FixedRows
from spbench.tui.widgets.line_table import LineTable

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
