"""The panels below the ranks of the Run page, for each size of the screen."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import Enum

from textual.geometry import Size

MEDIUM_WIDTH = 100
"""Columns from which two charts are next to each other."""
WIDE_WIDTH = 150
"""Columns from which cases are next to ranks."""
TALL_HEIGHT = 32
"""Lines from which panes have borders."""
FULL_HEIGHT = 48
"""Lines from which a wide screen shows hosts and parts of a step without a key."""
FINDINGS_PANE = "lower-findings-pane"


class Panel(Enum):
    """The content below the ranks; the values are the ids of the shown panes."""

    CHARTS = ("histogram-pane", "timeline-pane")
    HISTOGRAM = ("histogram-pane",)
    TIMELINE = ("timeline-pane",)
    FINDINGS = (FINDINGS_PANE,)
    FINDINGS_AND_TIMELINE = (FINDINGS_PANE, "timeline-pane")
    LOGS = ("logs-pane",)
    HOSTS = ("host-loads-pane",)
    GPUS = ("gpus-pane",)
    HOST_MAP = ("lower-host-map-pane",)
    PARTS = ("lower-parts-pane",)
    MAP_AND_PARTS = ("lower-host-map-pane", "lower-parts-pane")
    PREVIOUS = ("lower-previous-pane",)
    NONE = ("",)  # Python 3.11.2 gives a member with an empty tuple another value

    @property
    def shows_findings(self) -> bool:
        """Whether the findings are shown."""
        return FINDINGS_PANE in self.value


_NAMES: Mapping[Panel, str] = {
    Panel.CHARTS: "charts",
    Panel.HISTOGRAM: "histogram",
    Panel.TIMELINE: "iterations",
    Panel.FINDINGS: "findings",
    Panel.FINDINGS_AND_TIMELINE: "findings",
    Panel.LOGS: "logs",
    Panel.HOSTS: "load of hosts",
    Panel.GPUS: "GPUs",
    Panel.HOST_MAP: "hosts by case",
    Panel.PARTS: "parts of an iteration",
    Panel.MAP_AND_PARTS: "hosts and parts",
    Panel.PREVIOUS: "previous run",
    Panel.NONE: "hide",
}
CHART_PANELS = (Panel.CHARTS, Panel.HISTOGRAM, Panel.TIMELINE, Panel.FINDINGS_AND_TIMELINE)
_LAST_PANELS = (Panel.HOSTS, Panel.GPUS, Panel.LOGS, Panel.NONE)


def list_panels(size: Size) -> tuple[Panel, ...]:
    """Return the panels for a size; the first is shown until the user chooses another."""
    if size.width >= WIDE_WIDTH and size.height >= FULL_HEIGHT:
        panels: tuple[Panel, ...] = (Panel.CHARTS, *_LAST_PANELS)
    elif size.width >= WIDE_WIDTH:
        panels = (Panel.CHARTS, Panel.MAP_AND_PARTS, Panel.PREVIOUS, *_LAST_PANELS)
    elif size.width >= MEDIUM_WIDTH:
        panels = (
            Panel.CHARTS,
            Panel.FINDINGS_AND_TIMELINE,
            Panel.MAP_AND_PARTS,
            Panel.PREVIOUS,
            *_LAST_PANELS,
        )
    else:
        panels = (
            Panel.FINDINGS,
            Panel.HISTOGRAM,
            Panel.TIMELINE,
            Panel.HOST_MAP,
            Panel.PARTS,
            Panel.PREVIOUS,
            *_LAST_PANELS,
        )
    return panels if size.height >= TALL_HEIGHT else (Panel.NONE, *panels[:-1])


def find_next_panel(
    panel: Panel, panels: Sequence[Panel], empty_panels: Collection[Panel]
) -> Panel:
    """Return the panel with contents that follows another one."""
    start = panels.index(panel) + 1
    following = (*panels[start:], *panels[:start])
    return next(item for item in following if item not in empty_panels)


def describe_position(
    panel: Panel, panels: Sequence[Panel], empty_panels: Collection[Panel]
) -> str:
    """Return ``2 of 6, v: logs``: the position of a panel, and the next one."""
    hidden = {*empty_panels, Panel.NONE} - {panel}
    shown = [item for item in panels if item not in hidden]
    next_name = _NAMES[find_next_panel(panel, panels, empty_panels)]
    return f"{shown.index(panel) + 1} of {len(shown)}, v: {next_name}"


def list_panes(panel: Panel, *, has_problem: bool, has_charts: bool) -> tuple[str, ...]:
    """Return the ids of the panes of a panel.

    Args:
        panel: The panel.
        has_problem: Whether findings on a problem are next to the logs.
        has_charts: Whether there are samples, or some may come; otherwise one pane shows why not.
    """
    panes: tuple[str, ...] = panel.value
    if panel is Panel.LOGS and has_problem:
        return (FINDINGS_PANE, *panes)
    if panel in CHART_PANELS and not has_charts:
        return panes[:1] if panel.shows_findings else panes[-1:]
    return panes
