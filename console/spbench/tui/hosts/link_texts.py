"""Texts about the slowest link of each measurement."""

from __future__ import annotations

from spbench.record.number_formatting import format_factor, format_value
from spbench.report.comparison.compare import SIMILAR
from spbench.report.links import LinkMatrix, LinkTable
from spbench.tui.widgets.text import cell_width, fit

_NO_OUTLIER = f"no link is more than {100 * SIMILAR:.0f} % worse than the median."
ALL_SIMILAR = f"N{_NO_OUTLIER[1:]}"
_OTHERS_SIMILAR = f"Elsewhere, {_NO_OUTLIER}"


def list_measurements(matrix: LinkMatrix, shown: LinkTable) -> list[str]:
    """Return a line for each measurement, with an outlier or the medians.

    ▸ marks the shown one. A last line is about the measurements without an outlier.
    """
    titles = [_name_measurement(table) for table in matrix.tables]
    width = max(map(cell_width, titles))
    worst_links = list(map(describe_worst_link, matrix.tables))
    lines = [
        f"{'▸' if table is shown else ' '} {fit(title, width)}  "
        f"{worst_link or _describe_medians(table)}"
        for table, title, worst_link in zip(matrix.tables, titles, worst_links, strict=True)
    ]
    if not any(worst_links):
        return [*lines, f"  {ALL_SIMILAR}"]
    return lines if all(worst_links) else [*lines, f"  {_OTHERS_SIMILAR}"]


def _name_measurement(table: LinkTable) -> str:
    """Return the title without its unit, since each value has its own."""
    return table.title.replace(f" in {table.unit}", "", 1)


def _describe_medians(table: LinkTable) -> str:
    """Return ``median 1.20 us within a host, 2.40 us between hosts``."""
    medians = (
        f"{format_value(value, table.unit)} {_describe_location(within_host)}"
        for within_host, value in sorted(table.typical_values().items(), reverse=True)
    )
    return f"median {', '.join(medians)}"


def describe_worst_link(table: LinkTable) -> str:
    """Describe the slowest link compared with the median of its kind.

    The text is empty if all links are near the median.
    """
    slowness_by_pair = table.compute_slowness()
    if not slowness_by_pair:
        return ""
    source, target = pair = max(slowness_by_pair, key=lambda link: slowness_by_pair[link])
    worst_slowness = slowness_by_pair[pair]
    if worst_slowness <= 1 + SIMILAR:
        return ""
    ends = " to ".join(f"rank {rank}{_format_host(table, rank)}" for rank in (source, target))
    value = format_value(table.values[pair], table.unit)
    comparison = f"{format_factor(worst_slowness)} worse than the median"
    location = _describe_location(table.within_host(pair))
    return f"Slowest: {ends}, {value}, {comparison} {location}."


def _describe_location(within_host: bool) -> str:
    return "within a host" if within_host else "between hosts"


def _format_host(table: LinkTable, rank: int) -> str:
    return f" on {table.hosts[rank]}" if rank in table.hosts else ""


def find_worst_table(matrix: LinkMatrix) -> int:
    """Return the index of the measurement with the slowest link, by default 0."""
    worst_ratios = [max(table.find_slow_pairs().values(), default=0.0) for table in matrix.tables]
    return worst_ratios.index(max(worst_ratios))
