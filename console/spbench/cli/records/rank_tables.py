"""Tables of the ranks of a run's cases: where they ran, their times and their skew."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from spbench.cli.tables import align_columns, output_width
from spbench.report.text_tables import wrap_text

if TYPE_CHECKING:
    from spbench.record.case_state import CaseState
    from spbench.record.state import RunState

_PLACE = ("rank", "host", "local", "CPUs", "NUMA", "device", "adapters")
_MEDIAN_LEGEND = (
    "median: over a rank's iterations; a case's time has the slowest rank of each, so that it is "
    "as long or longer."
)
_OWN_LEGEND = (
    "own: the median without the waits for other ranks. own+wait: with the shortest wait of those "
    "alike, which is the time that the exchange itself takes."
)
_ALIKE_LEGEND = "alike: ranks that do the same work."
_OWN_SKEW_LEGEND = (
    "skew: own+wait over that of the median rank of those alike, which is the faster of two."
)
_NAMED = "Named as slow: a skew of {factor} or more for {rule} in a row."
_SKEW_LEGEND = (
    "skew without own: the median over that of the median rank of those alike, which is the faster "
    "of two."
)


def render_rank_tables(state: RunState) -> Iterator[str]:
    """Yield a table of ranks for each case, and below all of them what the columns mean."""
    from spbench.record.comparison import NOTABLE_RANK
    from spbench.record.number_formatting import format_factor
    from spbench.record.stragglers import LAG_RULE

    legend: dict[str, None] = {}
    for case in state.cases.values():
        yield f"\n{case.id}"
        yield from _table(case, legend)
    if _ALIKE_LEGEND in legend:
        legend[_NAMED.format(factor=format_factor(NOTABLE_RANK), rule=LAG_RULE)] = None
    if legend:
        yield ""
        width = output_width(sys.stdout)
        for note in legend:
            yield from wrap_text(note, width)


def _table(case: CaseState, legend: dict[str, None]) -> Iterator[str]:
    """Yield the table of a case, and add the meaning of its columns to the legend."""
    from spbench.record.comparison import RankComparison
    from spbench.record.machine.cores import fold_numbers, format_location
    from spbench.record.number_formatting import format_factor, format_time, strip_line_controls

    times = case.active_medians()
    comparison = RankComparison(case.identity)
    found = comparison.compare(times)
    alike = comparison.find_comparable(times)
    skews = found.ratios
    has_own = bool(times) and all(time.active is not None for time in times.values())
    titles = ["median"] if times else []
    if len(times) > 1:
        legend[_MEDIAN_LEGEND] = None
    if has_own:
        titles += ["waits", "own", "own+wait"]
        legend[_OWN_LEGEND] = None
    if skews:
        titles += ["alike", "skew"]
        legend |= {_ALIKE_LEGEND: None, _OWN_SKEW_LEGEND if has_own else _SKEW_LEGEND: None}
    rows = [[*_PLACE, *titles]]
    for rank, part in sorted(case.measured.ranks.items()):
        cells: dict[str, str] = {}
        if time := times.get(rank):
            figures = {
                "median": time.total,
                "waits": time.waits,
                "own": time.active,
                "own+wait": found.compared.get(rank),
            }
            cells = {name: format_time(ms) for name, ms in figures.items() if ms is not None}
        if rank in skews:
            cells["alike"] = fold_numbers(tuple(alike[rank]))
            cells["skew"] = format_factor(skews[rank])
        rows.append([str(rank), *format_location(part), *(cells.get(name, "") for name in titles)])
    right = (0, 2, *range(len(_PLACE), len(_PLACE) + len(titles)))
    yield from map(strip_line_controls, align_columns(rows, right))
