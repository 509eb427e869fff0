"""Panes of a plan, and the columns that they are in."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Container, Vertical
from textual.geometry import Region, Size
from textual.layout import Layout, WidgetPlacement
from textual.layouts.horizontal import HorizontalLayout
from textual.layouts.vertical import VerticalLayout
from textual.widget import Widget
from textual.widgets import Static

WIDTHS: list[tuple[int, str]] | None = [(0, "-narrow"), (150, "-wide")]
"""With 150 columns memory, devices and layers are next to the stages."""
HEIGHTS: list[tuple[int, str]] | None = [(0, "-low"), (55, "-high")]
"""With 55 lines, the alternatives are explained below their table."""


class PlanPane(Vertical):
    """A part of the plan with a legend; on a narrow screen it has only a title.

    Args:
        title: The title.
        legend: The meaning of its columns or bars: in the lower border, or else a line.
        id: The id.
    """

    DEFAULT_CSS = """
    PlanPane { height: auto; }
    PlanPane > .legend { display: none; }
    PlanPane.frameless > .legend { display: block; }
    """

    def __init__(self, title: str, legend: str = "", id: str | None = None) -> None:
        super().__init__(id=id, classes="pane")
        self.border_title = title
        self.border_subtitle = legend

    def compose(self) -> ComposeResult:
        yield from super().compose()
        yield Static(self.border_subtitle or "", classes="legend note", markup=False)

    def set_legend(self, legend: str) -> None:
        """Change the legend."""
        self.border_subtitle = legend
        self.query_one(".legend", Static).update(legend)


class LevelColumns(Container):
    """Columns that end at the same line if they are next to each other."""

    @property
    def layout(self) -> Layout:
        """The layout of the stylesheet, or one that makes columns equally high."""
        layout = super().layout
        return _LEVEL if isinstance(layout, HorizontalLayout) else layout


class PlanColumn(Vertical):
    """Panes from the top down; in level columns, the last one reaches to the end."""

    @property
    def layout(self) -> Layout:
        """The layout of the stylesheet, or one that fills the column."""
        columns = self.parent
        is_level = isinstance(columns, LevelColumns) and columns.layout is _LEVEL
        return _FILLED if is_level else super().layout


class _LevelLayout(HorizontalLayout):
    """Children next to each other, as high as the highest one or the container."""

    def arrange(
        self, parent: Widget, children: list[Widget], size: Size, greedy: bool = True
    ) -> list[WidgetPlacement]:
        placements = list(super().arrange(parent, children, size, greedy))
        heights = [placement.region.height for placement in placements]
        return [_resize(placement, max(size.height, *heights)) for placement in placements]


class _FilledLayout(VerticalLayout):
    """Children from the top down; the last one fills the container."""

    def arrange(
        self, parent: Widget, children: list[Widget], size: Size, greedy: bool = True
    ) -> list[WidgetPlacement]:
        placements = list(super().arrange(parent, children, size, greedy))
        if placements:
            region = placements[-1].region
            height = max(region.height, size.height - region.y)
            placements[-1] = _resize(placements[-1], height)
        return placements


def _resize(placement: WidgetPlacement, height: int) -> WidgetPlacement:
    region = placement.region
    return placement._replace(region=Region(region.x, region.y, region.width, height))


_LEVEL = _LevelLayout()
_FILLED = _FilledLayout()
