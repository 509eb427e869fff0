"""The busy cores and the used memory of this machine over the last minutes."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical

from spbench.record.machine.host_loads import HISTORY_LENGTH, LoadHistory
from spbench.report.scale import Scale
from spbench.tui.hosts.layout import NotedPane
from spbench.tui.widgets.timeline import TimelineChart

_WHOLE_RANGE = Scale(0.0, 100.0)


class LoadChartPane(Vertical, NotedPane):
    """A chart of a share in percent, one value for each reading.

    Args:
        title: The title.
        id: The id.
    """

    HELP = """\
The share of the time of all cores of this machine that was used, or of its memory, one value for
each reading. A run that is measured while other work uses the cores takes longer."""

    def __init__(self, title: str, id: str) -> None:
        super().__init__(classes="pane load-chart", id=id)
        self.set_title(title)

    def compose(self) -> ComposeResult:
        yield TimelineChart()

    def show(self, history: LoadHistory, seconds_per_reading: float) -> None:
        """Show the readings so far."""
        self.border_subtitle = f"every {seconds_per_reading:g} s, newest at the right"
        # The first readings are at the right too.
        values: list[float | None] = [None] * (HISTORY_LENGTH - len(history.last))
        values += [100 * share for share in history.last]
        self.query_one(TimelineChart).update(values, "%", "none", "", axis=_WHOLE_RANGE)
