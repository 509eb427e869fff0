"""The complete page: its parts in order, and details of cases up to a size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from spbench.report.comparison.model import RunComparison
from spbench.report.formats.case_text import sort_by_urgency
from spbench.report.formats.page.case_details import case_details
from spbench.report.formats.page.case_table import case_table, render_case_rows
from spbench.report.formats.page.head import render_head
from spbench.report.formats.page.markup import NOTHING, Markup, join_markup, tag
from spbench.report.formats.page.parts import (
    comparison_part,
    links_part,
    predictions_part,
    provenance_part,
    scaling_part,
)
from spbench.report.formats.page.sweeps import sweeps_part
from spbench.report.recorded import RecordedRun
from spbench_core.number_text import format_quantity

MAX_BYTES = 1_900_000
"""The size of a page, below the limit of 2 MiB of mail systems and issue trackers."""
_SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""The content security policy, which lets a browser load nothing for the page."""
_LINK_BYTES = 24
"""The largest size of a row's link to its details, in bytes."""


@dataclass(frozen=True, slots=True)
class PagePart:
    """A part of the page with a heading and an anchor."""

    anchor: str
    heading: str
    content: Markup

    def render(self) -> Markup:
        """Return the part, or nothing if it is empty."""
        if not self.content:
            return NOTHING
        return tag("section", tag("h2", self.heading), self.content, id=self.anchor)


def render_page(
    run: RecordedRun, comparison: RunComparison | None = None, *, max_bytes: int = MAX_BYTES
) -> str:
    """Return a run as a page of HTML.

    Args:
        run: The run.
        comparison: The comparison with a baseline, shown in a separate part.
        max_bytes: The size from which details of cases are left out.
    """
    cases = sort_by_urgency(run)
    rows = render_case_rows(cases)
    parts = [
        PagePart("cases", "Cases", case_table(rows, len(cases))),
        PagePart("comparison", "Comparison with the baseline", comparison_part(comparison)),
        PagePart("scaling", "Scaling", scaling_part(run)),
        PagePart("sweeps", "Sweeps", sweeps_part(run)),
        PagePart("links", "Links", links_part(run)),
        PagePart("predictions", "Predicted and measured", predictions_part(run)),
        PagePart("details", "Details", NOTHING),
        PagePart("provenance", "Provenance", provenance_part(run)),
    ]
    used_bytes = sum(len(part.content.encode()) for part in parts) + _LINK_BYTES * len(cases)
    all_details = map(case_details, cases, range(len(cases)))
    details = list(_limit_size(all_details, max_bytes - used_bytes))
    parts[0] = PagePart("cases", "Cases", case_table(rows, len(cases), len(details)))
    parts[-2] = PagePart("details", "Details", _render_details(details, len(cases)))
    head = render_head(run, [part for part in parts if part.content], comparison)
    body = tag("main", head, *(part.render() for part in parts))
    return f"<!doctype html>\n{tag('html', _render_html_head(run), tag('body', body), lang='en')}\n"


def _render_details(details: list[Markup], count: int) -> Markup:
    if not details:
        return NOTHING
    note = NOTHING
    if len(details) < count:
        text = (
            f"{len(details)} of {format_quantity(count, 'case')}, those first that did not pass; "
            "the page has no room for more. The CSV has all figures."
        )
        note = tag("p", text, class_="soft")
    return join_markup([note, tag("div", *details, class_="tiles")])


def _limit_size(tiles: Iterator[Markup], max_bytes: int) -> Iterator[Markup]:
    for tile in tiles:
        max_bytes -= len(tile.encode())
        if max_bytes < 0:
            return
        yield tile


def _render_html_head(run: RecordedRun) -> Markup:
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_SECURITY_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("link", rel="icon", href="data:,"),
        tag("title", f"{run.summary.suite}: {run.summary.status}"),
        tag("style", _load_style()),
    )


@cache
def _load_style() -> Markup:
    path = files("spbench.report.formats.page").joinpath("style.css")
    return Markup(path.read_text(encoding="utf-8"))
