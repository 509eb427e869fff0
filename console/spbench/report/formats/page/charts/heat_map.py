"""A matrix of links as a heat map: the darker, the slower than the median of its kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from spbench.record.findings import NOTABLE_LINK
from spbench.record.number_formatting import format_number
from spbench.report.formats.page.charts.frame import svg_drawing, svg_text
from spbench.report.formats.page.markup import Markup, svg_number, tag
from spbench.report.links import LinkTable

MOST_RANKS = 64
MOST_HOSTS = 64
"""Above so many ranks the map is of hosts, and has no more than so many of them."""
LEVELS = 6
_LEFT = 90.0
_TOP = 18.0
_SIDE = 560.0
_LETTERS = 13


def draw_heat_map(table: LinkTable) -> Markup:
    """Return the map of ranks, or that of hosts where the ranks are many."""
    if len(table.ranks) <= MOST_RANKS:
        slowness = table.compute_slowness()
        return _map(
            [str(rank) for rank in table.ranks],
            lambda a, b: table.get_value(table.ranks[a], table.ranks[b]),
            lambda a, b: _either(slowness, table.ranks[a], table.ranks[b]),
            f"{table.title}, rank to rank",
        )
    by_host = table.worst_by_host()
    hosts = sorted({host for pair in by_host for host in pair})[:MOST_HOSTS]
    usual = sorted(by_host.values())[len(by_host) // 2]

    def slower(a: int, b: int) -> float:
        value = by_host.get((hosts[a], hosts[b]), usual)
        over, under = (usual, value) if table.better == "higher" else (value, usual)
        return over / under if under > 0 else 1.0

    return _map(
        hosts,
        lambda a, b: by_host.get((hosts[a], hosts[b])),
        slower,
        f"{table.title}, the worst pair of ranks on each two hosts",
    )


def _either(slowness: dict[tuple[int, int], float], a: int, b: int) -> float:
    return slowness.get((a, b), slowness.get((b, a), 1.0))


def _map(
    names: Sequence[str],
    value: Callable[[int, int], float | None],
    slowness: Callable[[int, int], float],
    title: str,
) -> Markup:
    count = len(names)
    longest = max((len(format_number(found)) for found in _values(count, value)), default=1)
    cell = min(max(44.0, 7.5 * longest), _SIDE / count)
    worded = cell >= 6.5 * longest
    paths: dict[int, str] = {}
    words: list[Markup] = []
    for row in range(count):
        for column in range(count):
            found = value(row, column)
            if found is None:
                continue
            x = _LEFT + column * cell
            y = _TOP + row * cell
            level = _level(slowness(row, column))
            paths[level] = paths.get(level, "") + _square(x, y, cell)
            if worded:
                strong = "over" if level >= LEVELS - 2 else None
                place = (x + cell / 2, y + cell / 2 + 4)
                words.append(svg_text(*place, format_number(found), class_=strong))
    side = count * cell
    shown = range(0, count, max(1, -(-count // 16)))
    return svg_drawing(
        title,
        max(_LEFT + side + 10, 420.0),
        _TOP + side + 10,
        *(tag("path", d=paths[level], class_=f"heat h{level}") for level in sorted(paths)),
        *words,
        *(svg_text(_LEFT + (at + 0.5) * cell, _TOP - 3, names[at][:5]) for at in shown),
        *(
            svg_text(_LEFT - 5, _TOP + (at + 0.5) * cell + 4, names[at][:_LETTERS], anchor="end")
            for at in shown
        ),
    )


def _values(count: int, value: Callable[[int, int], float | None]) -> Iterator[float]:
    """Yield the values that there are."""
    found = (value(row, column) for row in range(count) for column in range(count))
    return (each for each in found if each is not None)


def _level(slowness: float) -> int:
    """Return 0 for what is as usual or better, the most from `NOTABLE_LINK` on."""
    share = (slowness - 1.0) / (NOTABLE_LINK - 1.0)
    return max(0, min(LEVELS - 1, 1 + int(share * (LEVELS - 2)))) if share > 0.02 else 0


def _square(x: float, y: float, side: float) -> str:
    edge = svg_number(side - 1 if side > 6 else side)
    return f"M{svg_number(x)} {svg_number(y)}h{edge}v{edge}h-{edge}z"
