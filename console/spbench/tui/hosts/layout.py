"""The layout of the Hosts page for each size of the screen, and its panels."""

from __future__ import annotations

from enum import Enum

from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

WIDE_WIDTH = 100
"""Columns from which the sources take a third of the width."""
BROAD_WIDTH = 150
"""Columns from which the findings get more than a third of the width."""
WIDTHS: list[tuple[int, str]] | None = [
    (0, "-narrow"),
    (WIDE_WIDTH, "-wide"),
    (BROAD_WIDTH, "-broad"),
]
HEIGHTS: list[tuple[int, str]] | None = [(0, "-short"), (35, "-tall"), (45, "-high")]
"""With 35 lines, the details of a host are above the links; with 45, the load has charts."""

LAYOUT_CSS = """
HostsPage #body {
    height: 1fr; grid-size: 2 2; grid-columns: 1fr 2fr; grid-rows: 2fr 3fr;
}
HostsPage.-narrow #body { grid-columns: 29 1fr; grid-size: 2 3; }
HostsPage.-narrow #checks, HostsPage.-narrow #host { column-span: 2; }
HostsPage.-broad #body { grid-columns: 3fr 5fr; }
HostsPage DetailsPane { height: 1fr; }
HostsPage LinksPane { height: auto; }
HostsPage.-narrow.-short LinksPane { display: none; }
HostsPage LoadChartPane { display: none; height: 1fr; max-height: 15; }
HostsPage.-high.-machine LoadChartPane { display: block; max-height: 100%; }
HostsPage.-high.-machine FindingsPane { height: auto; max-height: 60%; }
HostsPage.-high.-machine DetailsPane { height: auto; max-height: 40%; }
HostsPage.-high.-crowded #memory-chart { display: none; }
HostsPage.-high.-crowded DetailsPane { height: 1fr; max-height: 100%; }
HostsPage.-links.-short LinksPane { display: block; height: 1fr; }
HostsPage.-links.-short DetailsPane { display: none; }
HostsPage.-panel-details #checks, HostsPage.-short.-panel-charts FindingsPane { display: none; }
HostsPage.-narrow.-short.-panel-details LinksPane { display: none; }
HostsPage.-narrow.-short.-panel-details DetailsPane { display: block; }
HostsPage.-narrow.-panel-details #body { grid-size: 2 2; }
HostsPage.-machine.-panel-charts LoadChartPane { display: block; }
HostsPage.-short.-panel-charts DetailsPane { display: none; }
HostsPage.-machine.-panel-charts LinksPane { display: none; }
"""
_MIN_CHART_LINES = 8
"""The fewest lines of a chart below details and links."""


class HostsPanel(Enum):
    """The content below the lists; the values are for titles that name the next one."""

    FINDINGS = "back"
    DETAILS = "details"
    CHARTS = "cores busy"


class NotedPane(Widget):
    """A pane with a note after its title, such as the key of the next panel."""

    _title = ""
    _note = ""

    def set_title(self, title: str) -> None:
        """Change the title."""
        self._title = title
        self.border_title = Content(title + self._note)

    def set_note(self, note: str) -> None:
        """Change the note after the title."""
        self._note = note
        self.set_title(self._title)


def update_crowded(page: Widget) -> None:
    """Hide the chart of the memory if details and links leave too few lines for it."""
    details = page.query_one("#details")
    needed_lines = details.query_one(Static).size.height + details.gutter.height
    needed_lines += page.query_one("#links").outer_size.height
    free_lines = page.query_one("#host").size.height - needed_lines
    page.set_class(free_lines < _MIN_CHART_LINES, "-crowded")


def list_panels(page: Widget) -> list[HostsPanel]:
    """Return the panels between which a key switches; one if the screen shows all."""
    panels = [HostsPanel.FINDINGS]
    if all(map(page.has_class, ("-narrow", "-short", "-links"))):
        panels.append(HostsPanel.DETAILS)
    if page.has_class("-machine") and not page.has_class("-high"):
        panels.append(HostsPanel.CHARTS)
    return panels
