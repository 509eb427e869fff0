"""A heat map of links: darker pairs are slower than the median of their kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from spbench.record.findings import NOTABLE_LINK
from spbench.record.number_formatting import format_number
from spbench.report.formats.page.charts.frame import svg_drawing, svg_text
from spbench.report.formats.page.markup import NOTHING, Markup, svg_number, tag
from spbench.report.links import LinkTable

MAX_RANKS = 64
"""With more ranks, the map shows hosts instead of ranks."""
MAX_HOSTS = 64
"""The largest number of hosts in a map."""
LEVELS = 6
_LEFT = 90.0
_TOP = 18.0
_SIDE = 560.0
_LETTERS = 13


def draw_heat_map(table: LinkTable) -> Markup:
    """Return the map of ranks, or that of hosts with more than `MAX_RANKS` ranks.

    It is empty if it shows hosts and no rank's host is known.
    """
    if len(table.ranks) <= MAX_RANKS:
        slowness = table.compute_slowness()
        return _draw_map(
            [str(rank) for rank in table.ranks],
            lambda a, b: table.get_value(table.ranks[a], table.ranks[b]),
            lambda a, b: _get_slowness(slowness, table.ranks[a], table.ranks[b]),
            f"{table.title}, rank to rank",
        )
    value_by_hosts = table.worst_by_host()
    if not value_by_hosts:
        return NOTHING
    slowness_by_hosts = table.compute_host_slowness()
    hosts = sorted({host for host_pair in value_by_hosts for host in host_pair})[:MAX_HOSTS]
    return _draw_map(
        hosts,
        lambda a, b: value_by_hosts.get((hosts[a], hosts[b])),
        lambda a, b: slowness_by_hosts.get((hosts[a], hosts[b]), 1.0),
        f"{table.title}, the worst pair of ranks on each two hosts",
    )


def _get_slowness(slowness: dict[tuple[int, int], float], a: int, b: int) -> float:
    return slowness.get((a, b), slowness.get((b, a), 1.0))


def _draw_map(
    names: Sequence[str],
    get_value: Callable[[int, int], float | None],
    get_slowness: Callable[[int, int], float],
    title: str,
) -> Markup:
    count = len(names)
    most_digits = max(
        (len(format_number(cell_number)) for cell_number in _generate_values(count, get_value)),
        default=1,
    )
    cell_side = min(max(44.0, 7.5 * most_digits), _SIDE / count)
    has_numbers = cell_side >= 6.5 * most_digits
    path_by_level: dict[int, str] = {}
    number_texts: list[Markup] = []
    for row in range(count):
        for column in range(count):
            cell_value = get_value(row, column)
            if cell_value is None:
                continue
            x = _LEFT + column * cell_side
            y = _TOP + row * cell_side
            level = _choose_level(get_slowness(row, column))
            path_by_level[level] = path_by_level.get(level, "") + _make_square_path(x, y, cell_side)
            if has_numbers:
                class_ = "over" if level >= LEVELS - 2 else None
                text = format_number(cell_value)
                number_texts.append(
                    svg_text(x + cell_side / 2, y + cell_side / 2 + 4, text, class_=class_)
                )
    map_side = count * cell_side
    labelled_indices = range(0, count, max(1, -(-count // 16)))
    return svg_drawing(
        title,
        max(_LEFT + map_side + 10, 420.0),
        _TOP + map_side + 10,
        *(
            tag("path", d=path_by_level[level], class_=f"heat h{level}")
            for level in sorted(path_by_level)
        ),
        *number_texts,
        *(
            svg_text(_LEFT + (index + 0.5) * cell_side, _TOP - 3, names[index][:5])
            for index in labelled_indices
        ),
        *(
            svg_text(
                _LEFT - 5,
                _TOP + (index + 0.5) * cell_side + 4,
                names[index][:_LETTERS],
                anchor="end",
            )
            for index in labelled_indices
        ),
    )


def _generate_values(count: int, get_value: Callable[[int, int], float | None]) -> Iterator[float]:
    """Yield the values of all pairs that have one."""
    for row in range(count):
        for column in range(count):
            if (cell_value := get_value(row, column)) is not None:
                yield cell_value


def _choose_level(slowness: float) -> int:
    """Return 0 for the median or better, and the highest level from `NOTABLE_LINK` on."""
    level_share = (slowness - 1.0) / (NOTABLE_LINK - 1.0)
    return max(0, min(LEVELS - 1, 1 + int(level_share * (LEVELS - 2)))) if level_share > 0.02 else 0


def _make_square_path(x: float, y: float, side: float) -> str:
    drawn_side = svg_number(side - 1 if side > 6 else side)
    return f"M{svg_number(x)} {svg_number(y)}h{drawn_side}v{drawn_side}h-{drawn_side}z"
