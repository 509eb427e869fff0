"""A run on a terminal: lines of events, and below them a live table of ranks."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from spbench.cli.runs.lines import LineView
from spbench.record.case_figures import is_open
from spbench.record.comparison import NOTABLE_RANK
from spbench.record.messages.phases import describe_phase
from spbench.record.number_formatting import (
    GLYPHS,
    format_duration,
    format_factor,
    format_time,
    replace_controls,
)
from spbench.record.rank_rows import RankRow
from spbench.record.state import RunState
from spbench_core.events.fields import Event
from spbench_core.events.statuses import CaseStatus, CheckOutcome, RankPhase

if TYPE_CHECKING:
    from spbench.engine.run_estimate import RunEstimate

INTERVAL = 0.2
"""The least seconds between two frames: this process may share cores with the ranks."""
MAX_ROWS = 16
_OWN = "own+wait"
_OWN_LEGEND = (
    f"{_OWN}: the median without waits for slower ranks; skew: that over that of the typical rank "
    "with the same work"
)
_PHASE_STYLES = {RankPhase.ERROR: "bold red"}
_CHECK_STYLES = {CheckOutcome.PASSED: "green", CheckOutcome.FAILED: "bold red"}
WIDE = 100
"""The least columns of a terminal for the whole table."""
_WIDE_COLUMNS = ("iterations", "last", _OWN, "p95")
_LEADING_COLUMNS = ("rank", "host")
_TRAILING_COLUMNS = ("phase", "iterations", "last", "median", _OWN, "p95", "p99", "skew", "check")
"""The columns before and after those of the ranks' coordinates."""
_NUMBER_COLUMNS = {"rank", *_TRAILING_COLUMNS} - {"phase", "check"}


class LiveView:
    """Lines above, a table of the ranks below, redrawn at most every `INTERVAL`."""

    def __init__(
        self,
        state: RunState,
        console: Console,
        verbosity: int,
        next_step: str = "",
        estimate: RunEstimate | None = None,
    ) -> None:
        self._state = state
        self._frame_time = 0.0
        self._now = 0.0
        self._live = Live(console=console, auto_refresh=False, redirect_stderr=False)
        self._lines = LineView(state, self._print, verbosity, console.width, next_step, estimate)
        self._live.start()

    def __call__(self, event: Event) -> None:
        """Print the event, and draw a new frame if one is due."""
        self._lines(event)
        self._now = event["time"]
        now = time.monotonic()
        if now - self._frame_time >= INTERVAL:
            self._frame_time = now
            self._live.update(self.render_frame(), refresh=True)

    def finish(self, report: str) -> None:
        """Draw the last frame, then print the status of the run."""
        self._live.update(self.render_frame(), refresh=True)
        self.close()
        self._lines.finish(report)

    def close(self) -> None:
        """Release the terminal."""
        self._live.stop()

    def _print(self, line: str) -> None:
        self._live.console.print(colour_status(line), soft_wrap=True)

    def render_frame(self) -> RenderableType:
        """Return the progress and the table of the ranks."""
        if not self._lines.rows.ranks():
            return Text("starting ...", style="dim")
        case = self._lines.rows.case
        title = (
            f"times of each rank in {replace_controls(case.id)}" if case is not None else "ranks"
        )
        return Group(
            self._render_headline(), Text(title, style="dim", no_wrap=True), self._render_table()
        )

    def _render_headline(self) -> Text:
        cases = self._state.cases.values()
        done = sum(case.status.is_final for case in cases)
        running = next(
            (case.id for case in cases if case.status == CaseStatus.RUNNING and is_open(case)), ""
        )
        width = 24
        filled = width * done // max(1, len(self._state.cases))
        bar = "█" * filled + "░" * (width - filled)
        elapsed = max(0.0, self._now - self._state.run.started) if self._state.run else 0.0
        parts = (
            f"{bar} {done}/{len(self._state.cases)} cases",
            format_duration(elapsed),
            self._lines.format_remaining(self._now),
            replace_controls(running),
            replace_controls(describe_phase(self._state, self._now)),
        )
        return Text("  ".join(filter(None, parts)), no_wrap=True, overflow="ellipsis")

    def _render_table(self) -> Table:
        table = Table(box=None, pad_edge=False, header_style="bold")
        rows = self._lines.rows
        narrow = self._live.console.width < WIDE
        coordinate_names = [
            coordinate.name
            for coordinate in rows.coordinate_names()
            if coordinate.differs or not narrow
        ]
        rank_count = len(rows.ranks())
        shown = rows.slowest(MAX_ROWS) if rank_count > MAX_ROWS else rows.rows()
        hidden_columns = {*_WIDE_COLUMNS} if narrow else set()
        if all(row.active is None for row in shown):
            hidden_columns.add(_OWN)
        columns = [name for name in _TRAILING_COLUMNS if name not in hidden_columns]
        for name in (*_LEADING_COLUMNS, *coordinate_names, *columns):
            table.add_column(
                replace_controls(name),
                justify="right" if name in _NUMBER_COLUMNS else "left",
                no_wrap=True,
            )
        for row in shown:
            cells = _format_cells(row)
            coordinates = (
                Text(replace_controls(row.coordinates.get(name, ""))) for name in coordinate_names
            )
            table.add_row(*map(cells.get, _LEADING_COLUMNS), *coordinates, *map(cells.get, columns))
        captions = (
            [f"the slowest {MAX_ROWS} of {rank_count} ranks"] if rank_count > MAX_ROWS else []
        )
        if _OWN in columns:
            captions.append(_OWN_LEGEND)
        table.caption = "; ".join(captions)
        return table


def _format_cells(row: RankRow) -> dict[str, Text]:
    skew = "" if row.skew is None else format_factor(row.skew)
    slow = row.skew is not None and row.skew >= NOTABLE_RANK
    check = f"{GLYPHS[row.check]} {row.check}" if row.check is not None else ""
    check_style = _CHECK_STYLES[row.check] if row.check is not None else ""
    ms_by_name = {
        "last": row.last,
        "median": row.p50,
        _OWN: row.active,
        "p95": row.p95,
        "p99": row.p99,
    }
    return {
        "rank": Text(str(row.rank)),
        "host": Text(replace_controls(row.host)),
        "phase": Text(replace_controls(row.activity), style=_PHASE_STYLES.get(row.phase, "")),
        "iterations": Text(str(row.iterations or "")),
        **{name: _format_cell_time(value) for name, value in ms_by_name.items()},
        "skew": Text(f"{skew} slow" if slow else skew, style="yellow" if slow else ""),
        "check": Text(check, style=check_style),
    }


def _format_cell_time(value: float | None) -> Text:
    return Text("" if value is None else format_time(value))


def colour_status(line: str) -> Text:
    """Return a line with its status coloured."""
    text = Text(line)
    text.highlight_regex(r"✓ passed|^passed:", "green")
    text.highlight_regex(r"✗ \w+|^(failed|error|timeout):", "bold red")
    return text
