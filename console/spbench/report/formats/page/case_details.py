"""The details of a case: its samples, its ranks, its checks and every metric."""

from __future__ import annotations

from collections.abc import Iterator

from spbench.record.judge import share_of
from spbench.record.number_formatting import number
from spbench.report.formats.page.case_table import anchor_of, samples_of
from spbench.report.formats.page.charts.distribution import histogram
from spbench.report.formats.page.charts.rank_bars import rank_bars
from spbench.report.formats.page.head import verdict_of, verdict_words
from spbench.report.formats.page.markup import Markup, name, table, tag
from spbench.report.formats.words import duration, figure, headline, sentence
from spbench.report.model import CasePart

MOST_TRACEBACK = 4000
"""Letters of a traceback's end, which tells what happened."""


def case_details(case: CasePart, at: int) -> Markup:
    """Return the details of a case, as a tile that can be led to."""
    verdict = verdict_of(case)
    return tag(
        "article",
        tag("h3", verdict, " ", name(case.id)),
        tag("p", _about(case), class_="soft"),
        *_why(case),
        *_drawings(case),
        *_checks(case),
        *_expectations(case),
        *_metrics(case),
        class_="tile",
        id=anchor_of(at),
    )


def _about(case: CasePart) -> str:
    ranks = f"{case.np} rank{'s' * (case.np != 1)}"
    seconds = duration(case)
    told = [case.benchmark, ranks, *([f"{seconds:.1f} s"] if seconds is not None else [])]
    told += [f"{case.attempts} attempts"] if case.attempts > 1 else []
    told += [f"{what} {choice.value}" for what, choice in case.choices.items()]
    return ", ".join(told)


def _why(case: CasePart) -> Iterator[Markup]:
    if case.word != "passed":
        yield tag("p", sentence(case), class_="note error")
    for straggler in case.stragglers:
        yield tag("p", f"slow: {straggler.sentence}", class_="note")
    if case.noisy:
        yield tag("p", f"noisy: {case.noisy}", class_="note")
    if case.traceback:
        yield tag("pre", case.traceback[-MOST_TRACEBACK:])


def _drawings(case: CasePart) -> Iterator[Markup]:
    of, metric = headline(case) or ("", None)
    samples = samples_of(case, of)
    if metric is not None and len(samples) > 1:
        limit = case.limits.get(of)
        drawn = histogram(samples, metric.unit, limit.value if limit else None)
        yield _figure(f"{of}: {len(samples)} samples", drawn)
    if bars := rank_bars(case.ranks):
        skew = case.metrics.get("skew")
        told = f", skew {number(skew.value)}" if skew else ""
        yield _figure(f"Ranks: median, and from the least to p95{told}", bars)


def _figure(caption: str, drawn: Markup) -> Markup:
    return tag("figure", tag("figcaption", caption), drawn)


def _checks(case: CasePart) -> Iterator[Markup]:
    if not case.checks:
        return
    yield table(
        ("check", "verdict", "largest error", "tolerance", "ranks", "where"),
        (
            (
                check.name,
                tag("span", verdict_words(check.status), class_=f"verdict {check.status}"),
                figure(check.max_abs_error),
                number(check.tolerance),
                f"{check.ranks_passed}/{check.ranks_passed + check.ranks_failed}",
                check.detail if check.status == "failed" else "",
            )
            for check in case.checks
        ),
        (2, 3, 4),
    )


def _expectations(case: CasePart) -> Iterator[Markup]:
    if not case.expectations:
        return
    yield table(
        ("expectation", "limit", "value", "of the limit", "verdict", "from"),
        (
            (
                f"{item.metric} {'at most' if item.op == 'max' else 'at least'}",
                figure(item.limit),
                figure(item.value),
                figure(share_of(item.value, item.limit)),
                tag("span", verdict_words(item.status), class_=f"verdict {item.status}"),
                item.reason or item.expression or "",
            )
            for item in case.expectations
        ),
        (1, 2, 3),
    )


def _metrics(case: CasePart) -> Iterator[Markup]:
    if not case.metrics:
        return
    limits = {of: limit.value for of, limit in case.limits.items()}
    yield table(
        ("metric", "median", "p95", "p99", "n", "limit"),
        (
            (
                of,
                figure(metric.value, metric.unit),
                *((number(metric.p95), number(metric.p99)) if metric.n > 1 else ("", "")),
                str(metric.n),
                figure(limits.get(of)),
            )
            for of, metric in case.metrics.items()
        ),
        (1, 2, 3, 4, 5),
    )
