"""The parts of a page on several cases: comparison, links, scaling, provenance."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

from spbench.record.findings import NOTABLE_LINK
from spbench.record.number_formatting import format_factor, format_time
from spbench.report.comparison.model import RunComparison
from spbench.report.comparison.notes import (
    comparison_notes,
    comparison_summary,
    comparison_warnings,
    table_notes,
)
from spbench.report.comparison.rows import (
    CASE_COLUMNS,
    METRIC_COLUMNS,
    OutcomeLabel,
    case_rows,
    metric_rows,
)
from spbench.report.formats.page.charts.heat_map import MAX_RANKS, draw_heat_map
from spbench.report.formats.page.charts.plots import (
    PlottedLine,
    PlottedPoint,
    draw_lines,
    draw_predictions,
)
from spbench.report.formats.page.markup import (
    NOTHING,
    Markup,
    breakable_id,
    html_table,
    join_markup,
    tag,
    tile_grid,
)
from spbench.report.links import LinkTable, build_link_matrices
from spbench.report.model import LaunchPart
from spbench.report.predictions import PredictedTime, find_predictions
from spbench.report.recorded import RecordedRun
from spbench.report.scaling import (
    SCALING_COLUMNS,
    SCALING_NUMBER_COLUMNS,
    Scaling,
    compute_scalings,
    scaling_remarks,
    scaling_rows,
)
from spbench.report.text_tables import TextColumn

MAX_MAPS = 12
"""The largest number of heat maps."""
MAX_JOBS = 12
"""The largest number of jobs with their launch."""
MAX_ROWS = 500
"""The largest number of rows of a table."""


def comparison_part(comparison: RunComparison | None) -> Markup:
    """Return a comparison as a table: run b is this one, run a its baseline."""
    if comparison is None:
        return NOTHING
    rows = islice(case_rows(comparison), MAX_ROWS)
    warnings = comparison_warnings(comparison)
    sides_text = f"a: {comparison.a.id}; b: {comparison.b.id}. {comparison_summary(comparison)}."
    return join_markup(
        [
            *(tag("p", f"Warning: {warning}", class_="note") for warning in warnings),
            tag("p", sides_text, class_="soft"),
            _render_columns_table(CASE_COLUMNS, (row.case_cells() for row in rows)),
            *(tag("p", note) for note in comparison_notes(comparison)),
            *(tag("p", note, class_="soft") for note in table_notes(comparison, all_metrics=True)),
            _render_all_metrics(comparison),
        ]
    )


def _render_all_metrics(comparison: RunComparison) -> Markup:
    rows = list(islice(metric_rows(comparison), MAX_ROWS))
    if not rows:
        return NOTHING
    metrics = _render_columns_table(METRIC_COLUMNS, (row.metric_cells() for row in rows))
    return tag("details", tag("summary", "All metrics"), metrics)


def _render_columns_table(columns: Sequence[TextColumn], rows: Iterable[Sequence[str]]) -> Markup:
    right_aligned = [index for index, column in enumerate(columns) if column.right]
    return html_table(
        [column.title for column in columns], map(_style_outcomes, rows), right_aligned
    )


def _style_outcomes(row: Sequence[str]) -> Iterator[str]:
    """Yield the cells of a row, with a CSS class for each outcome."""
    for cell in row:
        yield tag("span", cell, class_=cell.style) if isinstance(cell, OutcomeLabel) else cell


def links_part(run: RecordedRun) -> Markup:
    """Return the links as heat maps, one per case, metric and message size."""
    cases_and_tables = [
        (matrix.case, table)
        for matrix in build_link_matrices(run)
        for table in matrix.tables
        if len(table.ranks) > 2
    ]
    if not cases_and_tables:
        return NOTHING
    explanation = (
        "The redder a pair, the slower it is than the median of its kind, within a host or between "
        f"hosts; the deepest red is {NOTABLE_LINK} times slower, or more."
    )
    map_tiles = tile_grid(
        _render_maps(cases_and_tables[:MAX_MAPS]), len(cases_and_tables) - MAX_MAPS, "maps"
    )
    return join_markup([tag("p", explanation, class_="soft"), map_tiles])


def _render_maps(tables: Iterable[tuple[str, LinkTable]]) -> Iterator[Markup]:
    """Yield the map of each table, with its slow pairs below."""
    for case, table in tables:
        slow_pairs = sorted(
            table.find_slow_pairs().items(), key=lambda ranks_and_ratio: -ranks_and_ratio[1]
        )[:5]
        slow_text = ", ".join(f"{a} and {b} {format_factor(ratio)}" for (a, b), ratio in slow_pairs)
        note = tag("p", f"Slow: ranks {slow_text}", class_="note") if slow_text else NOTHING
        hosts = f" ({len(table.ranks)} ranks, by host)" if len(table.ranks) > MAX_RANKS else ""
        heading = tag("h3", f"{case}: {table.title}{hosts}")
        yield tag("figure", heading, draw_heat_map(table), note, class_="tile")


def predictions_part(run: RecordedRun) -> Markup:
    """Return predicted and measured times, if a plan or a model predicted any."""
    predictions = find_predictions(run)
    if not predictions:
        return NOTHING
    columns = ("case", "predicted by", "predicted", "measured", "error")
    table = html_table(columns, map(_make_prediction_cells, predictions[:MAX_ROWS]), (2, 3, 4))
    caption = (
        "On the dashed line a prediction is right; above it the case took longer. "
        "error: predicted over measured time, minus 1."
    )
    chart = tag("figure", tag("figcaption", caption), draw_predictions(predictions), class_="tile")
    return join_markup([tag("div", chart, class_="tiles"), table])


def _make_prediction_cells(prediction: PredictedTime) -> tuple[str, ...]:
    return (
        breakable_id(prediction.case),
        prediction.source,
        format_time(prediction.predicted_ms),
        format_time(prediction.measured_ms),
        f"{100 * prediction.error:+.0f} %",
    )


def scaling_part(run: RecordedRun) -> Markup:
    """Return the efficiency of cases over numbers of ranks, as lines and as a table."""
    scalings = compute_scalings(run)
    if not scalings:
        return NOTHING
    lines = [line for line in map(_make_efficiency_line, scalings) if line.points]
    plot = draw_lines("Efficiency over ranks", lines, "ranks", "efficiency") if lines else NOTHING
    table = html_table(
        SCALING_COLUMNS, islice(scaling_rows(scalings), MAX_ROWS), SCALING_NUMBER_COLUMNS
    )
    remarks = (tag("p", remark) for remark in scaling_remarks(scalings))
    return join_markup(
        [tag("div", tag("figure", plot, class_="tile"), class_="tiles"), table, *remarks]
    )


def _make_efficiency_line(scaling: Scaling) -> PlottedLine:
    points = []
    for row in scaling.rows:
        if row.efficiency is not None and row.efficiency > 0:
            low, high = row.interval or (None, None)
            plotted = PlottedPoint(row.np, str(row.np), row.efficiency, low, high, row.limit)
            points.append(plotted)
    return PlottedLine(f"{scaling.of}, {scaling.work}", points)


def provenance_part(run: RecordedRun) -> Markup:
    """Return the origin of the run: command, machine, versions, launches."""
    environment = dict(run.environment)
    variables = environment.pop("env", None)
    rows = list(_flatten_facts(environment))
    command = shlex.join(["spbench", *run.summary.argv])
    launch_by_job = {case.launch.job: case.launch for case in run.cases.values() if case.launch}
    hidden_jobs = len(launch_by_job) - MAX_JOBS
    return join_markup(
        [
            tag("pre", command) if run.summary.argv else NOTHING,
            html_table(("what", "value"), rows) if rows else NOTHING,
            *_render_variables(variables),
            *chain.from_iterable(map(_render_launch, islice(launch_by_job.values(), MAX_JOBS))),
            tag("p", f"and {hidden_jobs} more jobs", class_="soft") if hidden_jobs > 0 else NOTHING,
        ]
    )


def _flatten_facts(facts_by_name: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, fact in facts_by_name.items():
        if isinstance(fact, Mapping):
            yield from _flatten_facts(fact, f"{prefix}{name}.")
        elif fact is not None and fact != []:
            yield f"{prefix}{name}", _format_fact(fact)


def _format_fact(fact: Any) -> str:
    if isinstance(fact, list):
        return ", ".join(map(_format_fact, fact))
    return fact if isinstance(fact, str) else json.dumps(fact)


def _render_variables(variables: Any) -> Iterator[Markup]:
    if isinstance(variables, Mapping) and variables:
        lines = "\n".join(f"{variable}={setting}" for variable, setting in variables.items())
        yield tag("h3", "Environment")
        yield tag("pre", lines)


def _render_launch(launch: LaunchPart) -> Iterator[Markup]:
    oversubscribed_text = ", more ranks than there are cores" if launch.oversubscribed else ""
    yield tag("h3", f"Job {launch.job}: {launch.launcher}, {launch.version}{oversubscribed_text}")
    if launch.argv:
        yield tag("pre", launch.command_line)
    if launch.hostfile:
        yield tag("pre", launch.hostfile[:4000])
