"""The table of all cases: status, time, reference, a small histogram, the reason."""

from __future__ import annotations

from collections.abc import Sequence

from spbench.report.formats.case_text import LEGEND, choose_headline, explain_status, time_cells
from spbench.report.formats.page.charts.distribution import draw_small_histogram
from spbench.report.formats.page.head import render_case_status
from spbench.report.formats.page.markup import (
    NOTHING,
    Markup,
    breakable_id,
    html_table,
    join_markup,
    tag,
)
from spbench.report.model import CasePart
from spbench_core.events.statuses import CaseStatus

COLUMNS = (
    *("verdict", "case", "benchmark", "ranks", "time", "p95", "reference", "efficiency"),
    *("samples", "why"),
)
NUMBER_INDICES = (3, 4, 5, 6, 7)
MAX_CHARACTERS = 300
"""The length of a reason in the table, in characters; the case's details have all of it."""
MAX_ROWS_BYTES = 1_400_000
"""The size of all rows, in bytes of HTML."""


Row = tuple[Markup, ...]


def render_case_rows(cases: Sequence[CasePart]) -> list[Row]:
    """Return a row of `COLUMNS` for each case, up to `MAX_ROWS_BYTES`."""
    rows = []
    free_bytes = MAX_ROWS_BYTES
    for case in cases:
        row = _make_row(case)
        free_bytes -= sum(len(cell.encode()) + 20 for cell in row)
        if free_bytes < 0:
            break
        rows.append(row)
    return rows


def case_table(rows: Sequence[Row], count: int, detailed: int = 0) -> Markup:
    """Return the table of these rows.

    Args:
        rows: The rows from `case_rows`.
        count: The number of cases, which may be larger than the number of rows.
        detailed: The number of first rows with a link to details.
    """
    columns = COLUMNS if any(row[-1] for row in rows) else COLUMNS[:-1]
    linked = (_add_link(row, index) if index < detailed else row for index, row in enumerate(rows))
    shown = [row[: len(columns)] for row in linked]
    note = NOTHING
    if hidden_count := count - len(rows):
        text = f"and {hidden_count} more cases, for which there is no room; the CSV has them"
        note = tag("p", text, class_="soft")
    legend = tag("ul", *(tag("li", line) for line in LEGEND), class_="soft") if rows else NOTHING
    table = html_table(columns, shown, NUMBER_INDICES)
    return tag("div", join_markup([table, note, legend]), class_="cases")


def details_anchor(index: int) -> str:
    """Return the anchor of a case's details."""
    return f"c{index}"


def collect_samples(case: CasePart, metric: str) -> list[float]:
    """Return a metric's samples of all repeats."""
    return [sample for repeat in case.samples.get(metric, ()) for sample in repeat]


def _add_link(row: Row, index: int) -> Row:
    status, id_, *other_cells = row
    return (status, tag("a", id_, href=f"#{details_anchor(index)}"), *other_cells)


def _make_row(case: CasePart) -> Row:
    metric_name, _ = choose_headline(case) or ("", None)
    time, p95, reference, efficiency = time_cells(case)
    if case.disturbed and efficiency:
        efficiency = tag("span", efficiency, class_="soft")
    cells = (
        render_case_status(case),
        breakable_id(case.id),
        case.benchmark,
        str(case.np),
        *(time, p95, reference, efficiency),
        draw_small_histogram(collect_samples(case, metric_name)),
        _shorten(explain_status(case)) if case.shown_status != CaseStatus.PASSED else "",
    )
    return tuple(join_markup([cell]) for cell in cells)


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]} ..."
