"""Facts about a run or a case as a table with the labels at the left."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table
from rich.text import Text

from spbench.record.number_formatting import replace_line_controls
from spbench.report.run_details import Fact


def build_fact_table(facts: Iterable[Fact]) -> Table:
    """Return facts as a table that wraps texts at words."""
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(ratio=1)
    for fact in facts:
        table.add_row(Text(fact.label), Text(replace_line_controls(fact.text)))
    return table
