"""The load of the hosts of a run: cores, memory, network and GPUs."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from typing import Any

from spbench.record.machine.host_loads import HostLoads, LoadHistory
from spbench.record.number_formatting import format_percent, format_rate
from spbench.tui.cells import name_readings
from spbench.tui.panes import Pane
from spbench.tui.widgets.fixed_rows import FixedRows
from spbench.tui.widgets.glyphs import render_sparkline
from spbench.tui.widgets.line_table import LineTable
from spbench.tui.widgets.table_columns import Column, TableCell

SPARKLINE_WIDTH = 7
"""Cells of a sparkline, one per second."""
_SHARES = ("cpu", "memory", "gpu")
_RATES = ("received", "sent")
BUSY_SHARE = 0.95
LOADS_TITLE = "Load of the hosts"
NO_LOADS = "no host has said its load"
COLUMNS = (
    Column("host", "host", 9, flexible=True),
    *(
        Column(name, title, SPARKLINE_WIDTH + 6, drop_priority=rank)
        for name, title, rank in (
            ("cpu", "cpu", 0),
            ("memory", "memory", 1),
            ("received", "received", 2),
            ("sent", "sent", 3),
            ("gpu", "gpu", 4),
        )
    ),
)


class HostLoadsPane(Pane):
    """The loads of the hosts in a frame."""

    def __init__(self, name: str) -> None:
        table = LineTable(COLUMNS, FixedRows(COLUMNS), id=name, empty=NO_LOADS)
        super().__init__(name_readings(LOADS_TITLE, ended=False), table, id=f"{name}-pane")

    def show(self, rows: HostLoadRows, *, ended: bool) -> None:
        """Show the loads; the title has whether they are those at the end of the run."""
        self.set_title(name_readings(LOADS_TITLE, ended=ended))
        table = self.query_one(LineTable)
        if not table.is_on_screen and table.row_count:
            return  # filled once while it is hidden, for the first frame that shows it
        if table.shows(rows, rows.columns):
            table.update_rows()
        else:
            table.set_rows(rows, rows.columns)


class HostLoadRows:
    """One row per host: a sparkline of the last seconds and the newest value.

    Attributes:
        columns: The columns of the table; only `update` changes them.
    """

    def __init__(self, loads: HostLoads) -> None:
        self.columns: tuple[Column, ...] = COLUMNS
        self._loads = loads
        self.update()

    def update(self) -> None:
        """Leave out the column of the GPUs on hosts without any."""
        has_gpus = any(self._loads.get(host, "gpu") for host in self._loads.hosts())
        self.columns = COLUMNS if has_gpus else COLUMNS[:-1]

    def keys(self) -> Sequence[Hashable]:
        """Return the hosts, sorted by name and number."""
        return sorted(self._loads.hosts(), key=split_numbers)

    def version(self, key: Hashable) -> Hashable:
        """Return the numbers of readings, which change with each reading of the host."""
        return tuple(
            history.count if (history := self._loads.get(str(key), name)) else 0
            for name in (*_SHARES, *_RATES)
        )

    def cells(self, key: Hashable) -> Sequence[TableCell | str]:
        """Return the cells of a host."""
        host = str(key)
        names = (column.key for column in self.columns[1:])
        return [host, *(_render_load(name, self._loads.get(host, name)) for name in names)]

    def sort_value(self, key: Hashable, column: str) -> Any:
        """Return the sort key of a host, its newest reading."""
        if column == "host":
            return key
        history = self._loads.get(str(key), column)
        return history.last[-1] if history else None

    def search_text(self, key: Hashable) -> str:
        """Return the name of the host."""
        return str(key).lower()


def split_numbers(host: str) -> list[tuple[int, str]]:
    """Return a sort key of a host, by which numbers are compared by value."""
    parts = re.split(r"(\d+)", host)
    return [(int(part), "") if part.isdecimal() else (0, part) for part in parts]


def _render_load(name: str, history: LoadHistory | None) -> TableCell:
    if history is None or not history.last:
        return TableCell("")
    newest_value = history.last[-1]
    if name in _SHARES:
        bars = render_sparkline(history.last, SPARKLINE_WIDTH, 1.0)
        text = f"{bars} {format_percent(newest_value):>5}"
        return TableCell(text, "slow" if name == "cpu" and newest_value > BUSY_SHARE else "")
    bars = render_sparkline(history.last, SPARKLINE_WIDTH, history.maximum)
    return TableCell(f"{bars} {format_rate(newest_value / 1e9)}")
