"""A heat map of links, in which darker pairs are slower than the median."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from spbench.record.findings import NOTABLE_LINK
from spbench.record.number_formatting import format_number
from spbench.report.formats.page.charts.frame import svg_drawing, svg_text
from spbench.report.formats.page.markup import Markup, svg_number, tag
from spbench.report.links import LinkTable

MOST_RANKS = 64
"""With more ranks, the map shows hosts instead of ranks."""
MOST_HOSTS = 64
"""The largest number of hosts in a map."""
LEVELS = 6
_LEFT = 90.0
_TOP = 18.0
_SIDE = 560.0
_LETTERS = 13


def draw_heat_map(table: LinkTable) -> Markup:
    """Return the map of ranks, or that of hosts with more than `MOST_RANKS` ranks."""
    if len(table.ranks) <= MOST_RANKS:
        slowness = table.compute_slowness()
        return _draw_map(
            [str(rank) for rank in table.ranks],
            lambda a, b: table.get_value(table.ranks[a], table.ranks[b]),
            lambda a, b: _get_slowness(slowness, table.ranks[a], table.ranks[b]),
            f"{table.title}, rank to rank",
        )
    by_host = table.worst_by_host()
    hosts = sorted({host for pair in by_host for host in pair})[:MOST_HOSTS]
    middle = sorted(by_host.values())[len(by_host) // 2]

    def host_slowness(a: int, b: int) -> float:
        value = by_host.get((hosts[a], hosts[b]), middle)
        numerator, denominator = (middle, value) if table.better == "higher" else (value, middle)
        return numerator / denominator if denominator > 0 else 1.0

    return _draw_map(
        hosts,
        lambda a, b: by_host.get((hosts[a], hosts[b])),
        host_slowness,
        f"{table.title}, the worst pair of ranks on each two hosts",
    )


def _get_slowness(slowness: dict[tuple[int, int], float], a: int, b: int) -> float:
    return slowness.get((a, b), slowness.get((b, a), 1.0))


def _draw_map(
    names: Sequence[str],
    value: Callable[[int, int], float | None],
    slowness: Callable[[int, int], float],
    title: str,
) -> Markup:
    count = len(names)
    longest = max((len(format_number(number)) for number in _values(count, value)), default=1)
    cell = min(max(44.0, 7.5 * longest), _SIDE / count)
    has_numbers = cell >= 6.5 * longest
    paths: dict[int, str] = {}
    numbers: list[Markup] = []
    for row in range(count):
        for column in range(count):
            cell_value = value(row, column)
            if cell_value is None:
                continue
            x = _LEFT + column * cell
            y = _TOP + row * cell
            level = _level(slowness(row, column))
            paths[level] = paths.get(level, "") + _square(x, y, cell)
            if has_numbers:
                class_ = "over" if level >= LEVELS - 2 else None
                text = format_number(cell_value)
                numbers.append(svg_text(x + cell / 2, y + cell / 2 + 4, text, class_=class_))
    side = count * cell
    labelled = range(0, count, max(1, -(-count // 16)))
    return svg_drawing(
        title,
        max(_LEFT + side + 10, 420.0),
        _TOP + side + 10,
        *(tag("path", d=paths[level], class_=f"heat h{level}") for level in sorted(paths)),
        *numbers,
        *(svg_text(_LEFT + (i + 0.5) * cell, _TOP - 3, names[i][:5]) for i in labelled),
        *(
            svg_text(_LEFT - 5, _TOP + (i + 0.5) * cell + 4, names[i][:_LETTERS], anchor="end")
            for i in labelled
        ),
    )


def _values(count: int, value: Callable[[int, int], float | None]) -> Iterator[float]:
    """Yield the values of all pairs that have one."""
    for row in range(count):
        for column in range(count):
            if (cell_value := value(row, column)) is not None:
                yield cell_value


def _level(slowness: float) -> int:
    """Return 0 for the median or better, and the highest level from `NOTABLE_LINK` on."""
    share = (slowness - 1.0) / (NOTABLE_LINK - 1.0)
    return max(0, min(LEVELS - 1, 1 + int(share * (LEVELS - 2)))) if share > 0.02 else 0


def _square(x: float, y: float, side: float) -> str:
    edge = svg_number(side - 1 if side > 6 else side)
    return f"M{svg_number(x)} {svg_number(y)}h{edge}v{edge}h-{edge}z"
