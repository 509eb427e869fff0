"""The panes of the Run page, and their layout at each size of the screen."""

from __future__ import annotations

from collections.abc import Collection

from textual.app import ComposeResult
from textual.containers import Container, Horizontal, Vertical
from textual.geometry import Size
from textual.widgets import Static

from spbench.tui.panes import Pane
from spbench.tui.run.case_rows import COLUMNS
from spbench.tui.run.panels import (
    CHART_PANELS,
    FINDINGS_PANE,
    FULL_HEIGHT,
    MEDIUM_WIDTH,
    TALL_HEIGHT,
    WIDE_WIDTH,
    Panel,
    describe_position,
    find_next_panel,
    list_panels,
    list_panes,
)
from spbench.tui.run.panes.charts import HistogramPane
from spbench.tui.run.panes.filter_input import FilterInput
from spbench.tui.run.panes.findings_panel import FindingsPanel
from spbench.tui.run.panes.hosts_panel import HostLoadsPane
from spbench.tui.run.panes.lower_panes import LowerPanes
from spbench.tui.run.panes.overview import HostMapPane, PartsPane, PreviousPane
from spbench.tui.run.rank_cells import build_rank_columns
from spbench.tui.run.wide_layout import (
    MIN_FINDINGS_PANE_LINES,
    choose_left_width,
    fit_left,
    fit_right,
    fit_strip,
)
from spbench.tui.widgets.fixed_rows import FixedRows
from spbench.tui.widgets.line_table import LineTable
from spbench.tui.widgets.rank_strip import RankStrip
from spbench.tui.widgets.text import wrap_words

MAX_NOTE_LINES = 2
PARTS_LEGEND_LINES = 2
MAX_TABLE_SHARE = 0.58
"""Largest share of the height that a table takes if there is a panel below it."""
MIN_TABLE_LINES = 5
FRAME_LINES = 3
FRAME_LINES_SHORT = 2
"""Lines of a table's pane without its rows: title, heading and, on a tall screen, border."""
NO_CASES = "waiting for the run to begin ..."
NO_RANKS = "no rank has begun here"
MIN_CASE_LINES = 10
MIN_CASE_LINES_SHORT = 6
"""Lines of the cases above the ranks, even if other panes need more lines."""
MIN_SPARE_FOR_FINDINGS = 3
MIN_SPARE_FOR_CHART = 7
"""Free lines of a short screen with few ranks, above which they show findings or a chart."""


class RunBody(Container):
    """The panes: cases and findings at the left or above; strip, ranks and a panel.

    Attributes:
        panel: The panel that is shown.
        empty_panels: The panels without contents, which are left out.
    """

    DEFAULT_CSS = """
    RunBody {
        height: 1fr; layout: vertical;
        & #left { height: 6; }
        & #findings-pane { display: none; }
        & #cases-pane { height: 1fr; }
        & #cases { height: 1fr; }
        & #case-note { display: none; height: auto; max-height: 2; color: $text-muted; }
        & #right { height: 1fr; }
        & #strip { height: 2; }
        & #ranks-pane { height: 1fr; }
        & #filter { display: none; height: 1; padding: 0 1; background: $boost; }
        & #filter Static { width: 2; color: $text-accent; }
        & #filter Input { height: 1; background: $boost; padding: 0; }
        & #extra, & #previous-pane, & #parts-pane { display: none; }
        & #extra { height: 1fr; }
        & #extra > * { height: 1fr; }
        & #left-histogram-pane { display: none; height: 1fr; }
        &.-full #extra { display: block; }
        &.-wide { layout: horizontal; }
        &.-wide #left { height: 1fr; }
        &.-wide #findings-pane { display: block; height: 1fr; }
        &.-wide #right { width: 1fr; }
    }
    """

    def __init__(self) -> None:
        super().__init__(id="body")
        self.panel = Panel.NONE
        self.empty_panels: Collection[Panel] = frozenset()
        self._panels: tuple[Panel, ...] = (Panel.NONE,)
        self._user_chose_panel = False
        self._has_problem = False
        self._has_charts = True
        self._case_note = ""
        self._parts_lines = 0
        self._cases_width = 0
        self._width = 0

    def compose(self) -> ComposeResult:
        with Vertical(id="left"):
            yield Pane(
                "Cases",
                LineTable(COLUMNS, FixedRows(COLUMNS), id="cases", empty=NO_CASES),
                Static(id="case-note", markup=False),
                id="cases-pane",
            )
            yield PreviousPane("previous")
            yield Pane("Findings", FindingsPanel(id="findings"), id="findings-pane")
            yield PartsPane("parts")
            yield HistogramPane("left-histogram")
        columns = build_rank_columns(())
        with Vertical(id="right"):
            yield Pane(
                "Ranks",
                RankStrip(id="strip"),
                LineTable(
                    columns, FixedRows(columns), id="ranks", empty=NO_RANKS, sort_to_top=True
                ),
                id="ranks-pane",
            )
            with Horizontal(id="filter"):
                yield Static("/")
                yield FilterInput(placeholder="words that a rank's row must have")
            yield LowerPanes()
            with Vertical(id="extra"):
                yield HostMapPane("host-map")
                yield HostLoadsPane("extra-loads")

    def fit(self, size: Size) -> None:
        """Lay out the panes for a screen size."""
        self.set_class(size.width >= WIDE_WIDTH, "-wide")
        self._width = size.width
        self._fit_width()
        self.set_class(size.height < TALL_HEIGHT, "-short")
        self.set_class(size.width >= WIDE_WIDTH and size.height >= FULL_HEIGHT, "-full")
        for pane in self.query(Pane):
            pane.set_framed(size.height >= TALL_HEIGHT)
        panels = list_panels(size)
        if panels != self._panels:
            self._panels = panels
            self._user_chose_panel = False
            self._show(self._first_panel)

    def share_width(self, cases_width: int) -> None:
        """Share the width of a wide screen; the columns of the cases need ``cases_width``.

        The panes keep their columns if the cases need fewer later.
        """
        if cases_width > self._cases_width:
            self._cases_width = cases_width
            self._fit_width()

    def _fit_width(self) -> None:
        left = self.query_one("#left")
        if self._width >= WIDE_WIDTH:
            left.styles.width = choose_left_width(self._width, self._cases_width)
            left.styles.height = "1fr"
        else:
            left.styles.width = "1fr"
            self.query_one("#left-histogram-pane").display = False

    def next_panel(self) -> None:
        """Show the next panel with contents; `Panel.NONE` hides all of them."""
        self.show_panel(find_next_panel(self.panel, self._panels, self.empty_panels))

    def leave_out(self, empty_panels: Collection[Panel]) -> None:
        """Leave out panels that would show nothing."""
        if empty_panels != self.empty_panels:
            self.empty_panels = empty_panels
            self._show(self.panel)

    @property
    def shows_findings(self) -> bool:
        """Whether the findings are visible."""
        return self.has_class("-wide") or FINDINGS_PANE in self._list_panes()

    def show_problem(self, has_problem: bool, *, has_charts: bool) -> None:
        """Keep findings of a problem in view, and hide charts without samples."""
        if (has_problem, has_charts) == (self._has_problem, self._has_charts):
            return
        has_changed = has_problem != self._has_problem
        self._has_problem = has_problem
        self._has_charts = has_charts
        is_free = has_changed and not self._user_chose_panel and not self.has_class("-short")
        self._show(self._first_panel if is_free else self.panel)

    def leave_suggestion(self) -> None:
        """Show the first panel for another run, also if the user chose one before."""
        self._cases_width = 0
        self._user_chose_panel = False
        self._show(self._first_panel)

    @property
    def _first_panel(self) -> Panel:
        """The panel that is shown until the user chooses another."""
        if self._has_problem and not self.has_class("-short"):
            return self._findings_panel or self._panels[0]
        return self._panels[0]

    def _list_panes(self) -> tuple[str, ...]:
        is_medium = MEDIUM_WIDTH <= self._width < WIDE_WIDTH
        return list_panes(
            self.panel, has_problem=self._has_problem and is_medium, has_charts=self._has_charts
        )

    def suggest_findings(self, otherwise: Panel | None = None) -> None:
        """Show findings, or a panel next to them, unless the user has chosen one."""
        panel = self._findings_panel or otherwise
        if panel is not None and not self._user_chose_panel:
            self._show(panel)

    @property
    def _findings_panel(self) -> Panel | None:
        """The panel with the findings; None on a wide screen, which always shows them."""
        return next((panel for panel in self._panels if panel.shows_findings), None)

    def show_panel(self, panel: Panel) -> None:
        """Show a panel below the ranks; if it is shown already, show the first one."""
        self._user_chose_panel = True
        self._show(panel if panel != self.panel else self._first_panel)

    def _show(self, panel: Panel) -> None:
        self.panel = panel
        self.query_one("#lower").display = self._visible_panel is not Panel.NONE
        position = describe_position(panel, self._panels, self.empty_panels)
        self.query_one(LowerPanes).show_panes(self._list_panes(), position)
        self._hide_second_histogram()

    @property
    def _visible_panel(self) -> Panel:
        """The panel; none on a full screen if its charts have no samples."""
        is_empty = self.panel in CHART_PANELS and not self._has_charts
        hides = is_empty and self.is_full and not self._user_chose_panel
        return Panel.NONE if hides else self.panel

    def _hide_second_histogram(self) -> None:
        """Show the histogram at one place only, if the timeline is next to it."""
        if self.panel is Panel.CHARTS and self._has_charts:
            is_left = self.query_one("#left-histogram-pane").display
            self.query_one("#histogram-pane").display = not is_left

    @property
    def is_filter_open(self) -> bool:
        """Whether the input of the filter is visible."""
        return bool(self.query_one("#filter").display)

    def open_filter(self) -> None:
        """Show the input of the filter and focus it."""
        self.query_one("#filter").display = True
        # Unlike `focus`, this takes effect at once, so that keys typed ahead go to the input.
        self.screen.set_focus(self.query_one(FilterInput))

    def close_filter(self) -> bool:
        """Show all ranks again; return whether the filter was open."""
        line = self.query_one("#filter")
        was_open = bool(line.display)
        line.display = False
        self.query_one(FilterInput).clear()
        return was_open

    @property
    def is_full(self) -> bool:
        """Whether the screen is so large that it shows all panes at once."""
        return self.has_class("-full")

    def set_part_bars(self, max_bars: int) -> bool:
        """Plan for the parts of an iteration; return whether their lines changed.

        Only a full screen has them; `fit_left` shows them if there are lines for them.

        Args:
            max_bars: The most bars of a case; 0 if the shown case has no parts.
        """
        lines_before = self._parts_lines
        self._parts_lines = max_bars + PARTS_LEGEND_LINES if max_bars and self.is_full else 0
        if not self.is_full:
            self.query_one("#parts-pane").display = False
        return self._parts_lines != lines_before

    def show_previous(self, has_previous: bool) -> None:
        """Show the previous run next to the cases of a full screen, if there is one."""
        self.query_one("#previous-pane").display = has_previous and self.is_full

    def limit_table_heights(
        self, cases: int, ranks: int, *, has_findings: bool, has_samples: bool
    ) -> bool:
        """Limit the heights of tables with few rows, and give the free lines to the cases.

        If that leaves lines free on a short screen, and the user has chosen no panel, show the
        findings there, or a chart if there are no findings. Return whether the panel has changed.

        Args:
            cases: Number of cases.
            ranks: Number of ranks.
            has_findings: Whether there are findings.
            has_samples: Whether the charts have samples.
        """
        previous_panel = self.panel
        is_short = self.has_class("-short")
        is_wide = self.has_class("-wide")
        frame_lines = FRAME_LINES_SHORT if is_short else FRAME_LINES
        right = self.query_one("#right")
        cases_lines = max(1, cases) + frame_lines + self._count_note_lines()
        free_rows = ranks - self.query_one("#ranks", LineTable).row_count
        strip = self.query_one(RankStrip)
        strip_lines = fit_strip(strip, ranks, free_rows, is_short=is_short, is_full=self.is_full)
        ranks_lines = max(1, ranks) + frame_lines + strip_lines
        min_case_lines = min(cases_lines, MIN_CASE_LINES_SHORT if is_short else MIN_CASE_LINES)
        height = right.size.height if is_wide else self.size.height
        if is_short and not self._user_chose_panel:
            taken_lines = ranks_lines if is_wide else ranks_lines + min_case_lines
            self._choose_short_panel(height - taken_lines, has_findings=has_findings)
        if not is_wide:
            panel_lines = self.query_one(LowerPanes).count_lines(
                self.panel, self.size.height, is_short=is_short, has_samples=has_samples
            )
            max_ranks_lines = max(MIN_TABLE_LINES, round(height * MAX_TABLE_SHARE))
            free_lines = height - min(ranks_lines, max_ranks_lines) - panel_lines
            left_lines = max(min_case_lines, min(cases_lines, free_lines))
            self.query_one("#left").styles.height = left_lines
            height -= left_lines
        left_height = self.query_one("#left").size.height if is_wide else 0
        self._limit_height("#cases-pane", cases_lines, left_height)
        max_previous_lines = left_height - cases_lines - MIN_FINDINGS_PANE_LINES
        previous_lines = min(cases + frame_lines, max_previous_lines)
        self._limit_height("#previous-pane", previous_lines, left_height // 2)
        if is_wide:
            fit_left(
                self,
                left_height,
                parts=self._parts_lines,
                is_short=is_short,
                has_charts=self._has_charts,
            )
            self._hide_second_histogram()
        panel = self._visible_panel
        shares_height = panel is not Panel.NONE or self.is_full
        self._limit_height("#ranks-pane", ranks_lines, height if shares_height else 0)
        table_lines = min(ranks_lines, round(right.size.height * MAX_TABLE_SHARE))
        free_lines = right.size.height - table_lines
        fit_right(self, free_lines, panel, num_cases=cases, is_full=self.is_full)
        return self.panel is not previous_panel

    def show_case_note(self, note: str) -> None:
        """Show a note on the selected case below the cases, on a screen with space for it."""
        widget = self.query_one("#case-note", Static)
        lines = wrap_words(note, self.query_one("#cases").size.width, MAX_NOTE_LINES)
        text = "\n".join(lines)
        if text != self._case_note:
            self._case_note = text
            widget.update(text)
        widget.display = bool(note) and not self.has_class("-short")

    def _count_note_lines(self) -> int:
        if self.is_full:
            return MAX_NOTE_LINES
        is_shown = self.query_one("#case-note", Static).display
        return self._case_note.count("\n") + 1 if is_shown else 0

    def _choose_short_panel(self, spare_lines: int, *, has_findings: bool) -> None:
        """Show findings or a chart in the free lines of a short screen."""
        chart_panels = {Panel.HISTOGRAM, Panel.CHARTS}
        chart_panel = next(panel for panel in self._panels if panel in chart_panels)
        has_space = spare_lines > MIN_SPARE_FOR_FINDINGS
        if has_findings and has_space and self._findings_panel is not None:
            self.suggest_findings()
        else:
            self._show(chart_panel if spare_lines > MIN_SPARE_FOR_CHART else Panel.NONE)

    def _limit_height(self, pane: str, needed: int, shared: int) -> None:
        """Set the height of a pane to the needed lines, or its share of ``shared`` lines.

        With 0 shared lines, or if a pane fills the page, it takes all lines.
        """
        height: int | str = "1fr"
        if shared and self.screen.maximized is None:
            height = max(MIN_TABLE_LINES, min(needed, round(shared * MAX_TABLE_SHARE)))
        self.query_one(pane).styles.height = height
