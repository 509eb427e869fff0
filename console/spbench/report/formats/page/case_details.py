"""The details of a case: its samples, its ranks, its checks and every metric."""

from __future__ import annotations

from collections.abc import Iterator

from spbench.record.efficiency import format_efficiency, format_metric
from spbench.record.judge import divide_by_limit
from spbench.record.messages.cases import describe_allowed, format_reference
from spbench.record.metric_names import (
    describe_separation,
    find_metric_help,
    format_figure_name,
    format_folded_name,
    format_metric_name,
)
from spbench.record.number_formatting import (
    format_duration,
    format_exact,
    format_factor,
    format_percent,
    format_status,
    format_time,
)
from spbench.report.comparison.model import HEADLINE
from spbench.report.formats.case_text import (
    choose_headline,
    compute_case_seconds,
    explain_status,
    format_optional_value,
)
from spbench.report.formats.page.case_table import collect_samples, details_anchor
from spbench.report.formats.page.charts.distribution import draw_histogram
from spbench.report.formats.page.charts.rank_bars import draw_rank_bars
from spbench.report.formats.page.head import render_case_status
from spbench.report.formats.page.markup import (
    NOTHING,
    Markup,
    breakable_id,
    html_table,
    join_markup,
    tag,
)
from spbench.report.model import CasePart, ExpectationPart
from spbench_core.events.statuses import CaseStatus, CheckOutcome
from spbench_core.number_text import format_quantity

MAX_TRACEBACK_CHARACTERS = 4000
"""The length of the shown end of a traceback, in characters."""
MIN_SAMPLES = 20
"""The samples from which on percentiles are shown; with fewer, p95 is the largest sample."""


def case_details(case: CasePart, index: int) -> Markup:
    """Return a tile with an anchor and the details of a case."""
    return tag(
        "article",
        tag("h3", render_case_status(case), " ", breakable_id(case.id)),
        tag("p", _describe_case(case), class_="soft"),
        *_render_reason(case),
        *_render_choices(case),
        *_render_charts(case),
        *_render_checks(case),
        *_render_expectations(case),
        *_render_metrics(case),
        class_="tile",
        id=details_anchor(index),
    )


def _describe_case(case: CasePart) -> str:
    ranks = format_quantity(case.np, "rank")
    facts = [case.benchmark, ranks]
    if (seconds := compute_case_seconds(case)) is not None:
        # Launches of several cases alternate, so this span has launches of other cases, too.
        launches_text = f"{len(case.launches)} launches within " if len(case.launches) > 1 else ""
        short = seconds < 1.0
        duration_text = format_time(1000 * seconds) if short else format_duration(seconds)
        facts.append(f"{launches_text}{duration_text}")
    facts += [f"{case.attempts} attempts"] if case.attempts > 1 else []
    return ", ".join(facts)


def _render_choices(case: CasePart) -> Iterator[Markup]:
    """Yield the choices of the ranks, with reasons."""
    if case.choices:
        choices = (
            tag("li", f"{name} {choice.value}", f": {choice.reason}" if choice.reason else "")
            for name, choice in case.choices.items()
        )
        if any(len(repeats) > 1 for repeats in case.samples.values()):
            yield tag("p", "In the last repeat:", class_="soft")
        yield tag("ul", *choices, class_="choices soft")


def _render_reason(case: CasePart) -> Iterator[Markup]:
    if case.shown_status != CaseStatus.PASSED:
        yield tag("p", explain_status(case), class_="note error")
    if case.traceback:
        yield tag("pre", case.traceback[-MAX_TRACEBACK_CHARACTERS:])


def _render_charts(case: CasePart) -> Iterator[Markup]:
    name, metric = choose_headline(case) or ("", None)
    samples = collect_samples(case, name)
    if metric is not None and len(samples) > 1:
        limit = case.limits.get(name)
        chart = draw_histogram(samples, metric.unit, metric.value, limit.value if limit else None)
        ranks = "the slowest rank" if name == HEADLINE else "all ranks"
        title = format_metric_name(name, metric.unit)
        yield _render_figure(f"{title} of {ranks}, each of {len(samples)} iterations", chart)
    if bars := draw_rank_bars(case.ranks):
        skew = case.metrics.get("skew")
        skew_text = f"; skew {format_factor(skew.value)}" if skew else ""
        if skew and any(name.startswith("waited") for name in case.metrics):
            skew_text += ", of waits only the shortest counted"
        yield _render_figure(
            f"Times of ranks with waits: median (bar), minimum to p95 (line){skew_text}",
            bars,
        )


def _render_figure(caption: str, chart: Markup) -> Markup:
    return tag("figure", tag("figcaption", caption), chart)


def _render_checks(case: CasePart) -> Iterator[Markup]:
    if not case.checks:
        return
    yield html_table(
        ("check", "verdict", "largest error", "tolerance", "ranks", "where"),
        (
            (
                check.name,
                tag("span", format_status(check.status), class_=f"verdict {check.status}"),
                _format_error(check.max_abs_error),
                format_exact(check.tolerance),
                f"{check.ranks_passed}/{check.ranks_passed + check.ranks_failed}",
                check.detail if check.status == CheckOutcome.FAILED else "",
            )
            for check in case.checks
        ),
        (2, 3, 4),
    )


def _format_error(max_abs_error: float | None) -> str:
    return "not a number" if max_abs_error is None else format_exact(max_abs_error)


def _render_expectations(case: CasePart) -> Iterator[Markup]:
    if not case.expectations:
        return
    yield html_table(
        ("expectation", "limit", "value", "of the limit", "verdict", "from"),
        (
            (
                _format_expected_figure(case, expectation),
                format_optional_value(
                    expectation.limit, _find_unit(case, expectation.metric), expectation.metric
                ),
                format_optional_value(
                    expectation.value, _find_unit(case, expectation.metric), expectation.metric
                ),
                _format_share(divide_by_limit(expectation.value, expectation.limit)),
                tag(
                    "span",
                    format_status(expectation.status),
                    class_=f"verdict {expectation.status}",
                ),
                _describe_origin(expectation),
            )
            for expectation in case.expectations
        ),
        (1, 2, 3),
    )


def _format_expected_figure(case: CasePart, expectation: ExpectationPart) -> str:
    figure = format_figure_name(expectation.metric, _find_unit(case, expectation.metric))
    return f"{figure} {'at most' if expectation.op == 'max' else 'at least'}"


def _describe_origin(expectation: ExpectationPart) -> str:
    """Return the origin of a limit, or the reason why there is none."""
    if expectation.reference is not None:
        reference = expectation.reference.model_dump()
        reference_text = format_reference(expectation.metric, reference)
        return f"reference {reference_text} ({describe_allowed(reference)})"
    return expectation.reason or expectation.expression or ""


def _find_unit(case: CasePart, metric: str) -> str:
    """Return the unit of a metric or of its statistic, such as ``time_ms.p95``."""
    measured = case.metrics.get(metric.partition(".")[0])
    return measured.unit if measured is not None else ""


def _format_share(share: float | None) -> str:
    return "" if share is None else format_percent(share)


def _render_metrics(case: CasePart) -> Iterator[Markup]:
    if not case.metrics:
        return
    # In one column, because a tile is too narrow for another one.
    reference = join_markup(["reference", tag("br"), "efficiency"])
    columns = ("metric", "median", "p95", "p99", "n", reference)
    rows = (_make_metric_cells(case, metric) for metric in case.shown_metrics)
    yield html_table(columns, rows, (1, 2, 3, 4, 5))


def _make_metric_cells(case: CasePart, name: str) -> tuple[str, ...]:
    metric = case.metrics[name]
    title = format_folded_name(name, metric.unit)
    notes = (find_metric_help(case.benchmark, name), describe_separation(case.benchmark, name))
    note = "; ".join(filter(None, notes))
    title_with_note = join_markup([title, tag("br"), tag("span", note, class_="help")])
    percentiles = (metric.p95, metric.p99) if metric.n >= MIN_SAMPLES else (None, None)
    median_and_percentiles = (metric.value, *percentiles)
    return (
        title_with_note if note else title,
        *(_format_metric_text(case, name, figure) for figure in median_and_percentiles),
        str(metric.n),
        _render_reference(case, name),
    )


def _format_metric_text(case: CasePart, name: str, figure: float | None) -> str:
    unit = case.metrics[name].unit
    return "" if figure is None else format_metric(figure, unit, name, disturbed=case.disturbed)


def _render_reference(case: CasePart, metric_name: str) -> Markup:
    """Return a metric's reference with the efficiency below it, if it has one."""
    limit = case.limits.get(metric_name)
    unit = case.metrics[metric_name].unit
    if limit is None:
        return NOTHING
    reference_text = format_optional_value(limit.value, unit, metric_name)
    efficiency = format_efficiency(case.efficiency(metric_name), disturbed=case.disturbed)
    return join_markup([reference_text, tag("br"), tag("span", efficiency, class_="soft")])
