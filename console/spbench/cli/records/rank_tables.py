"""Tables of the ranks of a run, and of the links between them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from spbench.cli.text_layout import output_width
from spbench.report.text_tables import align_columns, wrap_text

if TYPE_CHECKING:
    from spbench.record.case_parts import CaseRank
    from spbench.record.case_state import CaseState
    from spbench.record.state import RunState
    from spbench.report.links import LinkTable

MAX_MATRIX_RANKS = 64
"""The most ranks of a matrix of ranks; with more, only the matrix of hosts is printed."""
_LOCATION_COLUMNS = ("rank", "host", "local", "CPUs", "NUMA", "device", "adapters")
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
_SLOW_LEGEND = "Named as slow: a skew of {factor} or more for {rule} in a row."
_SKEW_LEGEND = (
    "skew without own: the median over that of the median rank of those alike, which is the faster "
    "of two."
)


def render_rank_tables(state: RunState) -> Iterator[str]:
    """Yield a table of ranks for each case, and the legend of their columns."""
    from spbench.record.comparison import NOTABLE_RANK
    from spbench.record.number_formatting import format_factor
    from spbench.record.stragglers import BLOCKS, MIN_BLOCKS, MIN_LAG_SECONDS

    legend: dict[str, None] = {}
    for case in state.cases.values():
        yield f"\n{case.id}"
        yield from _render_case(case, legend)
    if _ALIKE_LEGEND in legend:
        share = f"{100 * MIN_BLOCKS / BLOCKS:g} % of the iterations"
        rule = f"{1000 * MIN_LAG_SECONDS:g} ms and {share}"
        legend[_SLOW_LEGEND.format(factor=format_factor(NOTABLE_RANK), rule=rule)] = None
    if legend:
        yield ""
        width = output_width(sys.stdout)
        for note in legend:
            yield from wrap_text(note, width)


def _render_case(case: CaseState, legend: dict[str, None]) -> Iterator[str]:
    """Yield the table of a case, and add the meaning of its columns to the legend."""
    from spbench.record.comparison import RankComparison
    from spbench.record.number_formatting import (
        fold_numbers,
        format_factor,
        format_time,
        replace_line_controls,
    )

    time_by_rank = case.compute_active_medians()
    comparison = RankComparison(case.identity)
    compared = comparison.compare(time_by_rank)
    peers_by_rank = comparison.find_comparable(time_by_rank)
    skew_by_rank = compared.ratios
    has_own = bool(time_by_rank) and all(time.active is not None for time in time_by_rank.values())
    titles = ["median"] if time_by_rank else []
    if len(time_by_rank) > 1:
        legend[_MEDIAN_LEGEND] = None
    if has_own:
        titles += ["waits", "own", "own+wait"]
        legend[_OWN_LEGEND] = None
    if skew_by_rank:
        titles += ["alike", "skew"]
        legend |= {_ALIKE_LEGEND: None, _OWN_SKEW_LEGEND if has_own else _SKEW_LEGEND: None}
    rows = [[*_LOCATION_COLUMNS, *titles]]
    for rank, part in sorted(case.measured.ranks.items()):
        text_by_title: dict[str, str] = {}
        if time := time_by_rank.get(rank):
            ms_by_title = {
                "median": time.total,
                "waits": time.waits,
                "own": time.active,
                "own+wait": compared.compared.get(rank),
            }
            text_by_title = {
                name: format_time(ms) for name, ms in ms_by_title.items() if ms is not None
            }
        if rank in skew_by_rank:
            text_by_title["alike"] = fold_numbers(tuple(peers_by_rank[rank]))
            text_by_title["skew"] = format_factor(skew_by_rank[rank])
        rows.append(
            [str(rank), *_format_location(part), *(text_by_title.get(name, "") for name in titles)]
        )
    right_aligned = (0, 2, *range(len(_LOCATION_COLUMNS), len(_LOCATION_COLUMNS) + len(titles)))
    yield from map(replace_line_controls, align_columns(rows, right_aligned))


def _format_location(rank: CaseRank) -> list[str]:
    """Return host, local rank, CPUs, NUMA nodes, device and adapters of a rank."""
    from spbench.record.number_formatting import fold_numbers

    facts = rank.facts
    local_rank = "" if facts.local_rank is None else str(facts.local_rank)
    cpus = fold_numbers(facts.cpus)
    nodes = fold_numbers(facts.nodes)
    return [rank.host, local_rank, cpus, nodes, rank.device or "", facts.fabric or ""]


def render_link_table(table: LinkTable, *, max_ranks: int = MAX_MATRIX_RANKS) -> Iterator[str]:
    """Yield the matrix of ranks if it is small, and that of several hosts."""
    from spbench.record.findings import NOTABLE_LINK

    if len(table.ranks) <= max_ranks:
        rows = _build_rank_rows(table)
        yield from align_columns(rows, range(len(rows[0])))
    rows = _build_host_rows(table)
    if len(rows) > 2:
        yield "the worst pair of ranks on each two hosts"
        yield from align_columns(rows, range(1, len(rows[0])))
    if table.find_slow_pairs():
        yield f"! at least {NOTABLE_LINK}x worse than the median within a host or between hosts"


def _build_rank_rows(table: LinkTable) -> list[list[str]]:
    mark_by_pair = {end: "!" for pair in table.find_slow_pairs() for end in (pair, pair[::-1])}
    rows = [["rank", *map(str, table.ranks)]]
    for source in table.ranks:
        cells = [
            _format_cell(table.get_value(source, target)) + mark_by_pair.get((source, target), "")
            for target in table.ranks
        ]
        rows.append([str(source), *cells])
    return rows


def _build_host_rows(table: LinkTable) -> list[list[str]]:
    value_by_hosts = table.worst_by_host()
    hosts = sorted({host for pair in value_by_hosts for host in pair})
    return [
        ["host", *hosts],
        *(
            [host, *(_format_cell(value_by_hosts.get((host, other))) for other in hosts)]
            for host in hosts
        ),
    ]


def _format_cell(value: float | None) -> str:
    from spbench.record.number_formatting import format_number

    return "" if value is None else format_number(value)
