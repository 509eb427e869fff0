"""The table of all cases: verdict, time, reference, the shape of the samples, and why not."""

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
NUMBER_COLUMNS = (3, 4, 5, 6, 7)
MOST_CHARACTERS = 300
"""Letters of a sentence in the table; its case's details have all of it."""
MOST_ROWS_BYTES = 1_400_000


Row = tuple[Markup, ...]


def case_rows(cases: Sequence[CasePart]) -> list[Row]:
    """Return a row of `COLUMNS` for each case, as many as there is room for."""
    rows = []
    room = MOST_ROWS_BYTES
    for case in cases:
        row = _row(case)
        room -= sum(len(cell.encode()) + 20 for cell in row)
        if room < 0:
            break
        rows.append(row)
    return rows


def case_table(rows: Sequence[Row], count: int, detailed: int = 0) -> Markup:
    """Return the table of these rows.

    Args:
        rows: Those of `case_rows`.
        count: The number of cases, of which there may be more.
        detailed: So many of the first rows lead to details.
    """
    columns = COLUMNS if any(row[-1] for row in rows) else COLUMNS[:-1]
    linked = (_linked(row, at) if at < detailed else row for at, row in enumerate(rows))
    shown = [row[: len(columns)] for row in linked]
    more = count - len(rows)
    told = f"and {more} more cases, for which there is no room; the CSV has them" if more else ""
    note = tag("p", told, class_="soft") if told else NOTHING
    legend = tag("ul", *(tag("li", line) for line in LEGEND), class_="soft") if rows else NOTHING
    return tag(
        "div",
        join_markup([html_table(columns, shown, NUMBER_COLUMNS), note, legend]),
        class_="cases",
    )


def details_anchor(at: int) -> str:
    """Return the anchor of a case's details."""
    return f"c{at}"


def collect_samples(case: CasePart, metric: str) -> list[float]:
    """Return a metric's samples of all repeats."""
    return [value for repeat in case.samples.get(metric, ()) for value in repeat]


def _linked(row: Row, at: int) -> Row:
    verdict, shown, *others = row
    return (verdict, tag("a", shown, href=f"#{details_anchor(at)}"), *others)


def _row(case: CasePart) -> Row:
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
        _short(explain_status(case)) if case.shown_status != CaseStatus.PASSED else "",
    )
    return tuple(join_markup([cell]) for cell in cells)


def _short(words: str) -> str:
    return words if len(words) <= MOST_CHARACTERS else f"{words[:MOST_CHARACTERS]} ..."
