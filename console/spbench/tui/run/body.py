"""The panes of the Run page, and their layout at each size of the screen."""

from __future__ import annotations

from enum import Enum

from textual.app import ComposeResult
from textual.containers import Container, Horizontal, Vertical
from textual.geometry import Size
from textual.widgets import Input, Static

from spbench.tui.panes import Pane
from spbench.tui.run.case_rows import COLUMNS, LEGEND
from spbench.tui.run.charts import HistogramPane, TimelinePane
from spbench.tui.run.findings import FindingsPanel
from spbench.tui.run.gpu_panel import COLUMNS as GPU_COLUMNS
from spbench.tui.run.hosts_panel import COLUMNS as HOST_COLUMNS
from spbench.tui.run.log_view import LogView
from spbench.tui.run.rank_cells import build_rank_columns
from spbench.tui.widgets.fixed_rows import FixedRows
from spbench.tui.widgets.line_table import LineTable
from spbench.tui.widgets.rank_strip import RankStrip

MEDIUM_WIDTH = 100
"""Columns from which two charts are next to each other."""
WIDE_WIDTH = 150
"""Columns from which cases are next to ranks."""
TALL_HEIGHT = 32
"""Lines from which panes have borders."""
MAX_STRIP_LINES = 4
MAX_TABLE_SHARE = 0.58
"""Largest share of the height that a table takes if there is a panel below it."""
MIN_TABLE_LINES = 4
NO_LOADS = "no host has said its load"
NO_GPUS = "no host has reported a GPU"
NO_CASES = "waiting for the run to begin ..."
NO_RANKS = "no rank has begun here"
MAX_CASE_LINES = 10
MAX_CASE_LINES_SHORT = 5
"""Most lines of the cases above the ranks on a short screen, without their border."""
MIN_SPARE_FOR_FINDINGS = 3
MIN_SPARE_FOR_CHART = 9
"""Free lines of a short screen with few ranks, above which they show findings or a chart."""
_FINDINGS_PANE = "lower-findings-pane"


class Panel(Enum):
    """The content below the ranks; the values are the ids of the shown panes."""

    CHARTS = ("histogram-pane", "timeline-pane")
    HISTOGRAM = ("histogram-pane",)
    TIMELINE = ("timeline-pane",)
    FINDINGS = (_FINDINGS_PANE,)
    FINDINGS_AND_TIMELINE = (_FINDINGS_PANE, "timeline-pane")
    LOGS = ("logs-pane",)
    HOSTS = ("host-loads-pane",)
    GPUS = ("gpus-pane",)
    NONE = ()

    @property
    def shows_findings(self) -> bool:
        """Whether the findings are shown."""
        return _FINDINGS_PANE in self.value


def list_panels(size: Size) -> tuple[Panel, ...]:
    """Return the panels for a size; the first is shown until the user chooses another."""
    if size.width >= WIDE_WIDTH:
        panels: tuple[Panel, ...] = (
            Panel.CHARTS,
            Panel.HOSTS,
            Panel.GPUS,
            Panel.LOGS,
            Panel.NONE,
        )
    elif size.width >= MEDIUM_WIDTH:
        panels = (
            Panel.CHARTS,
            Panel.FINDINGS_AND_TIMELINE,
            Panel.HOSTS,
            Panel.GPUS,
            Panel.LOGS,
            Panel.NONE,
        )
    else:
        panels = (
            Panel.FINDINGS,
            Panel.HISTOGRAM,
            Panel.TIMELINE,
            Panel.HOSTS,
            Panel.GPUS,
            Panel.LOGS,
            Panel.NONE,
        )
    return panels if size.height >= TALL_HEIGHT else (Panel.NONE, *panels[:-1])


class RunBody(Container):
    """The panes: cases and findings at the left or above; strip, ranks and a panel.

    Attributes:
        panel: The panel that is shown.
        has_gpus: Whether a GPU was reported; without one their panel is left out.
    """

    DEFAULT_CSS = """
    RunBody {
        height: 1fr; layout: vertical;
        & #left { height: 5; }
        & #findings-pane { display: none; }
        & #cases-pane { height: 1fr; }
        & #right { height: 1fr; }
        & #strip { height: 2; margin: 0 2; }
        & #ranks-pane { height: 1fr; }
        & #filter { display: none; height: 1; padding: 0 1; background: $boost; }
        & #filter Static { width: 2; color: $text-accent; }
        & #filter Input { height: 1; background: $boost; padding: 0; }
        & #lower { width: 100%; height: 1fr; }
        & #lower > * { width: 1fr; height: 1fr; }
        &.-short #strip { margin: 0; }
        &.-wide { layout: horizontal; }
        &.-wide #left { width: 41%; min-width: 74; height: 1fr; }
        &.-wide #findings-pane { display: block; height: 1fr; }
        &.-wide #right { width: 1fr; }
    }
    """

    def __init__(self) -> None:
        super().__init__(id="body")
        self.panel = Panel.NONE
        self.has_gpus = False
        self._panels: tuple[Panel, ...] = (Panel.NONE,)
        self._user_chose_panel = False

    def compose(self) -> ComposeResult:
        with Vertical(id="left"):
            yield Pane(
                f"cases, {LEGEND}",
                LineTable(COLUMNS, FixedRows(COLUMNS), id="cases", empty=NO_CASES),
                id="cases-pane",
            )
            yield Pane("findings", FindingsPanel(id="findings"), id="findings-pane")
        columns = build_rank_columns(())
        with Vertical(id="right"):
            yield RankStrip(id="strip")
            yield Pane(
                "ranks",
                LineTable(
                    columns, FixedRows(columns), id="ranks", empty=NO_RANKS, sort_to_top=True
                ),
                id="ranks-pane",
            )
            with Horizontal(id="filter"):
                yield Static("/")
                yield _FilterInput(placeholder="words that a rank's row must have")
            with Horizontal(id="lower"):
                yield Pane("findings", FindingsPanel(id="lower-findings"), id=_FINDINGS_PANE)
                yield HistogramPane()
                yield TimelinePane()
                yield Pane(
                    "hosts",
                    LineTable(
                        HOST_COLUMNS, FixedRows(HOST_COLUMNS), id="host-loads", empty=NO_LOADS
                    ),
                    id="host-loads-pane",
                )
                yield Pane(
                    "GPUs",
                    LineTable(GPU_COLUMNS, FixedRows(GPU_COLUMNS), id="gpus", empty=NO_GPUS),
                    id="gpus-pane",
                )
                yield Pane("logs", LogView(id="logs"), id="logs-pane")

    def fit(self, size: Size) -> None:
        """Lay out the panes for a screen size."""
        self.set_class(size.width >= WIDE_WIDTH, "-wide")
        if size.width >= WIDE_WIDTH:
            self.query_one("#left").styles.height = "1fr"
        self.set_class(size.height < TALL_HEIGHT, "-short")
        for pane in self.query(Pane):
            pane.set_framed(size.height >= TALL_HEIGHT)
        panels = list_panels(size)
        if panels != self._panels:
            self._panels = panels
            self._user_chose_panel = False
            self._show(panels[0])

    def next_panel(self) -> None:
        """Show the next panel below the ranks; `Panel.NONE` hides all of them."""
        panels = [panel for panel in self._panels if self.has_gpus or panel is not Panel.GPUS]
        current = panels.index(self.panel) if self.panel in panels else 0
        self.show_panel(panels[(current + 1) % len(panels)])

    @property
    def shows_findings(self) -> bool:
        """Whether the findings are visible."""
        return self.has_class("-wide") or self.panel.shows_findings

    def suggest_findings(self) -> None:
        """Show the panel with the findings, unless the user has chosen a panel."""
        if self._findings_panel is not None and not self._user_chose_panel:
            self._show(self._findings_panel)

    @property
    def _findings_panel(self) -> Panel | None:
        """The panel with the findings; None on a wide screen, which always shows them."""
        return next((panel for panel in self._panels if panel.shows_findings), None)

    def show_panel(self, panel: Panel) -> None:
        """Show a panel below the ranks; if it is shown already, show the first one."""
        self._user_chose_panel = True
        self._show(panel if panel != self.panel else self._panels[0])

    def _show(self, panel: Panel) -> None:
        self.panel = panel
        self.query_one("#lower").display = self.panel is not Panel.NONE
        for pane in self.query("#lower > *"):
            pane.display = pane.id in self.panel.value

    @property
    def is_filter_open(self) -> bool:
        """Whether the input of the filter is visible."""
        return bool(self.query_one("#filter").display)

    def open_filter(self) -> None:
        """Show the input of the filter and focus it."""
        self.query_one("#filter").display = True
        # Unlike `focus`, this takes effect at once, so that keys typed ahead go to the input.
        self.screen.set_focus(self.query_one(_FilterInput))

    def close_filter(self) -> bool:
        """Show all ranks again; return whether the filter was open."""
        line = self.query_one("#filter")
        was_open = bool(line.display)
        line.display = False
        self.query_one(_FilterInput).clear()
        return was_open

    def limit_table_heights(self, cases: int, ranks: int, *, has_findings: bool) -> None:
        """Limit the heights of tables with few rows.

        If that leaves lines free on a short screen, and the user has chosen no panel, show the
        findings there, or a chart if there are no findings.

        Args:
            cases: Number of cases.
            ranks: Number of ranks.
            has_findings: Whether there are findings.
        """
        is_short = self.has_class("-short")
        is_wide = self.has_class("-wide")
        frame_lines = 1 if is_short else 3
        left = self.query_one("#left")
        right = self.query_one("#right")
        if not is_wide:
            left.styles.height = min(
                MAX_CASE_LINES_SHORT if is_short else MAX_CASE_LINES, cases + frame_lines
            )
        strip = self.query_one(RankStrip)
        strip_lines = -(-ranks // max(1, strip.size.width))
        strip.styles.height = strip.measure_text_lines(strip.size.width) + max(
            1, min(strip_lines, 1 if is_short else MAX_STRIP_LINES)
        )
        self._limit_height("#cases-pane", cases + frame_lines, left.size.height if is_wide else 0)
        if is_short and not self._user_chose_panel:
            spare_lines = right.size.height - ranks - frame_lines
            chart_panels = {Panel.HISTOGRAM, Panel.CHARTS}
            chart_panel = next(panel for panel in self._panels if panel in chart_panels)
            if (
                has_findings
                and spare_lines > MIN_SPARE_FOR_FINDINGS
                and self._findings_panel is not None
            ):
                self.suggest_findings()
            else:
                self._show(chart_panel if spare_lines > MIN_SPARE_FOR_CHART else Panel.NONE)
        shared_height = right.size.height if self.panel is not Panel.NONE else 0
        self._limit_height("#ranks-pane", ranks + frame_lines, shared_height)

    def _limit_height(self, pane: str, needed: int, shared: int) -> None:
        """Set the height of a pane to the needed lines, or its share of ``shared`` lines.

        With 0 shared lines, or if a pane fills the page, it takes all lines.
        """
        height: int | str = "1fr"
        if shared and self.screen.maximized is None:
            height = max(MIN_TABLE_LINES, min(needed, round(shared * MAX_TABLE_SHARE)))
        self.query_one(pane).styles.height = height


class _FilterInput(Input):
    """An input without a border."""

    HELP = "Words that a rank's row must have: `node03`, `slow`, `failed`, `tile 0,1`. Enter keeps."

    def on_mount(self) -> None:
        # A rule in DEFAULT_CSS would lose against the rule for all inputs in console.tcss.
        self.styles.border = ("none", "transparent")
