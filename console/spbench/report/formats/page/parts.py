"""The parts of a page that are about several cases: sweeps, links, predictions, provenance."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

from spbench.record.findings import NOTABLE_LINK
from spbench.record.metric_names import format_metric_name
from spbench.record.number_formatting import choose_unit, format_factor, format_time
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
from spbench.report.formats.page.charts.heat_map import MOST_RANKS, draw_heat_map
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
)
from spbench.report.formats.page.sweeps import SweepPlot, collect_sweeps
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

MOST_PLOTS = 24
MOST_MAPS = 12
MOST_JOBS = 12
MOST_ROWS = 500


def comparison_part(comparison: RunComparison | None) -> Markup:
    """Return a comparison as a table: run b is this one, run a its baseline."""
    if comparison is None:
        return NOTHING
    rows = islice(case_rows(comparison), MOST_ROWS)
    warnings = comparison_warnings(comparison)
    about = f"a: {comparison.a.id}; b: {comparison.b.id}. {comparison_summary(comparison)}."
    return join_markup(
        [
            *(tag("p", f"Warning: {warning}", class_="note") for warning in warnings),
            tag("p", about, class_="soft"),
            _columns_table(CASE_COLUMNS, (row.case_cells() for row in rows)),
            *(tag("p", note) for note in comparison_notes(comparison)),
            *(tag("p", note, class_="soft") for note in table_notes(comparison, all_metrics=True)),
            _all_metrics(comparison),
        ]
    )


def _all_metrics(comparison: RunComparison) -> Markup:
    rows = list(islice(metric_rows(comparison), MOST_ROWS))
    if not rows:
        return NOTHING
    metrics = _columns_table(METRIC_COLUMNS, (row.metric_cells() for row in rows))
    return tag("details", tag("summary", "All metrics"), metrics)


def _columns_table(columns: Sequence[TextColumn], rows: Iterable[Sequence[str]]) -> Markup:
    right = [index for index, column in enumerate(columns) if column.right]
    return html_table([column.title for column in columns], map(_coloured, rows), right)


def _coloured(row: Sequence[str]) -> Iterator[str]:
    """Yield the cells of a row, an outcome with a class of its own."""
    for cell in row:
        yield tag("span", cell, class_=cell.style) if isinstance(cell, OutcomeLabel) else cell


def sweeps_part(run: RecordedRun) -> Markup:
    """Return a plot for each swept parameter that is a number, and for links over their sizes."""
    found = list(collect_sweeps(run))
    return _tiles(map(_sweep, found[:MOST_PLOTS]), len(found) - MOST_PLOTS, "sweeps")


def _sweep(sweep: SweepPlot) -> Markup:
    values = (point.y for line in sweep.lines for point in line.points)
    scale = choose_unit(values, sweep.unit)
    lines = [line.scale(scale.factor) for line in sweep.lines]
    unit = f", in {scale.unit}" if scale.unit else ""
    metric = format_metric_name(sweep.metric, sweep.unit)
    title = f"{sweep.case}: {metric} over {sweep.parameter}"
    drawn = draw_lines(title, lines, sweep.parameter, f"{metric}{unit}")
    return tag("figure", tag("h3", title), drawn, class_="tile")


def links_part(run: RecordedRun) -> Markup:
    """Return the links between ranks as heat maps, one a case, metric and message size."""
    tables = [(matrix.case, one) for matrix in build_link_matrices(run) for one in matrix.tables]
    tables = [(case, one) for case, one in tables if len(one.ranks) > 2]
    if not tables:
        return NOTHING
    sentence = (
        "The redder a pair, the slower it is than the median of its kind, within a host or between "
        f"hosts; the deepest red is {NOTABLE_LINK} times slower, or more."
    )
    maps = _tiles(_maps(tables[:MOST_MAPS]), len(tables) - MOST_MAPS, "maps")
    return join_markup([tag("p", sentence, class_="soft"), maps])


def _maps(tables: Iterable[tuple[str, LinkTable]]) -> Iterator[Markup]:
    """Yield the map of each table, with its slow pairs below."""
    for case, one in tables:
        slow = sorted(one.find_slow_pairs().items(), key=lambda pair: -pair[1])[:5]
        slowest = ", ".join(f"{a} and {b} {format_factor(ratio)}" for (a, b), ratio in slow)
        note = tag("p", f"Slow: ranks {slowest}", class_="note") if slowest else NOTHING
        hosts = f" ({len(one.ranks)} ranks, by host)" if len(one.ranks) > MOST_RANKS else ""
        heading = tag("h3", f"{case}: {one.title}{hosts}")
        yield tag("figure", heading, draw_heat_map(one), note, class_="tile")


def predictions_part(run: RecordedRun) -> Markup:
    """Return what was predicted beside what was measured, where a plan or a model predicted."""
    predicted = find_predictions(run)
    if not predicted:
        return NOTHING
    columns = ("case", "predicted by", "predicted", "measured", "error")
    rows = html_table(columns, map(_cells, predicted[:MOST_ROWS]), (2, 3, 4))
    caption = (
        "On the dashed line a prediction is right; above it the case took longer. "
        "error: predicted over measured time, minus 1."
    )
    drawn = tag("figure", tag("figcaption", caption), draw_predictions(predicted), class_="tile")
    return join_markup([tag("div", drawn, class_="tiles"), rows])


def _cells(one: PredictedTime) -> tuple[str, ...]:
    times = (format_time(one.predicted_ms), format_time(one.measured_ms))
    return (breakable_id(one.case), one.source, *times, f"{100 * one.error:+.0f} %")


def scaling_part(run: RecordedRun) -> Markup:
    """Return the efficiency of cases over numbers of ranks, as lines and as a table."""
    scaled = compute_scalings(run)
    if not scaled:
        return NOTHING
    lines = [line for line in map(_efficiencies, scaled) if line.points]
    drawn = draw_lines("Efficiency over ranks", lines, "ranks", "efficiency") if lines else NOTHING
    rows = html_table(
        SCALING_COLUMNS, islice(scaling_rows(scaled), MOST_ROWS), SCALING_NUMBER_COLUMNS
    )
    remarks = (tag("p", remark) for remark in scaling_remarks(scaled))
    return join_markup(
        [tag("div", tag("figure", drawn, class_="tile"), class_="tiles"), rows, *remarks]
    )


def _efficiencies(one: Scaling) -> PlottedLine:
    points = []
    for row in one.rows:
        if row.efficiency is not None and row.efficiency > 0:
            low, high = row.interval or (None, None)
            plotted = PlottedPoint(row.np, str(row.np), row.efficiency, low, high, row.limit)
            points.append(plotted)
    return PlottedLine(f"{one.of}, {one.work}", points)


def provenance_part(run: RecordedRun) -> Markup:
    """Return where and how the run was made: command, machine, versions, launches."""
    environment = dict(run.environment)
    variables = environment.pop("env", None)
    rows = list(_flat(environment))
    command = shlex.join(["spbench", *run.summary.argv])
    jobs = {case.launch.job: case.launch for case in run.cases.values() if case.launch}
    more = len(jobs) - MOST_JOBS
    return join_markup(
        [
            tag("pre", command) if run.summary.argv else NOTHING,
            html_table(("what", "value"), rows) if rows else NOTHING,
            *_variables(variables),
            *chain.from_iterable(map(_launch, islice(jobs.values(), MOST_JOBS))),
            tag("p", f"and {more} more jobs", class_="soft") if more > 0 else NOTHING,
        ]
    )


def _flat(content: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for key, value in content.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{key}.")
        elif value is not None and value != []:
            yield f"{before}{key}", _plain(value)


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_plain, value))
    return value if isinstance(value, str) else json.dumps(value)


def _variables(variables: Any) -> Iterator[Markup]:
    if isinstance(variables, Mapping) and variables:
        lines = "\n".join(f"{variable}={value}" for variable, value in variables.items())
        yield tag("h3", "Environment")
        yield tag("pre", lines)


def _launch(launch: LaunchPart) -> Iterator[Markup]:
    more = ", more ranks than there are cores" if launch.oversubscribed else ""
    yield tag("h3", f"Job {launch.job}: {launch.launcher}, {launch.version}{more}")
    if launch.argv:
        yield tag("pre", launch.command_line)
    if launch.hostfile:
        yield tag("pre", launch.hostfile[:4000])


def _tiles(parts: Iterable[Markup], more: int, what: str) -> Markup:
    drawn = list(parts)
    if not drawn:
        return NOTHING
    note = tag("p", f"and {more} more {what}", class_="soft") if more > 0 else NOTHING
    return join_markup([tag("div", *drawn, class_="tiles"), note])
