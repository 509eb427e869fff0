"""Ranks side by side: each one's median time, from its least to its p95."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from spbench.record.comparison import NOTABLE_RANK
from spbench.record.number_formatting import choose_unit, format_time
from spbench.report.formats.page.charts.frame import Frame, svg_text
from spbench.report.formats.page.markup import Markup, join_markup, tag
from spbench.report.model import RankPart
from spbench.report.scale import Scale
from spbench.stats.summary import lower_median
from spbench_core.quantities import format_quantity

MOST_BARS = 128
"""With more ranks than this each bar is a host, by its slowest rank."""
_WORDS = 16
_MOST_WHISKER = 3.0
"""The height of the axis as a multiple of the highest bar, at most: an outlier hides no bar."""


@dataclass(frozen=True, slots=True)
class RankBar:
    """The times of a rank, or of a host's slowest rank, in ms.

    ``slow``: it is slow itself, compared with ranks that do the same work.
    """

    name: str
    least: float
    middle: float
    most: float
    slow: bool = False


def make_rank_bars(ranks: Sequence[RankPart]) -> list[RankBar]:
    """Return a bar a rank; of very many ranks one a host, the slowest hosts first."""
    bars = [
        (rank.host, RankBar(str(rank.rank), time.min, time.p50, time.p95, _is_slow(rank)))
        for rank in ranks
        if (time := rank.time_ms) is not None
    ]
    if len(bars) <= MOST_BARS:
        return [bar for _, bar in bars]
    slowest: dict[str, RankBar] = {}
    for host, bar in bars:
        if host not in slowest or bar.middle > slowest[host].middle:
            slowest[host] = replace(bar, name=f"{host} ({bar.name})")
    return sorted(slowest.values(), key=lambda bar: -bar.middle)[:MOST_BARS]


def _is_slow(rank: RankPart) -> bool:
    return rank.skew is not None and rank.skew >= NOTABLE_RANK


def draw_rank_bars(ranks: Sequence[RankPart]) -> Markup:
    """Return the ranks' times beside the usual rank's; nothing of fewer than two ranks."""
    bars = make_rank_bars(ranks)
    if len(bars) < 2:
        return Markup("")
    usual = lower_median(bar.middle for bar in bars)
    unit = choose_unit([usual], "ms")
    top = min(max(bar.most for bar in bars), _MOST_WHISKER * max(bar.middle for bar in bars))
    height = Scale(0.0, top * 1.05 * unit.factor)
    frame = Frame(Scale(-0.5, len(bars) - 0.5), height, height=190.0)
    step = (frame.data_right - frame.left) / len(bars)
    shown = range(0, len(bars), max(1, -(-len(bars) // _WORDS)))
    hosts = len({rank.host for rank in ranks})
    name = f"rank, {format_quantity(hosts, 'host')}"
    if len(ranks) > MOST_BARS:
        name = "hosts, the slowest first (and their slowest rank)"
        shown = range(0, 1)
    return frame.draw(
        f"Times of {format_quantity(len(bars), 'rank')}",
        frame.draw_y_axis(f"median, {unit.unit}"),
        frame.draw_x_axis(name, [(float(at), bars[at].name) for at in shown]),
        *_drawn(frame, bars, step, unit.factor),
        _line(frame, usual, unit.factor),
    )


def _drawn(frame: Frame, bars: Iterable[RankBar], step: float, factor: float) -> Iterable[Markup]:
    wide = max(1.0, min(26.0, step * 0.7))
    for at, bar in enumerate(bars):
        middle = frame.x_position(at)
        floor = frame.data_bottom
        top = frame.y_position(bar.middle * factor)
        span = f"{format_time(bar.least)} to {format_time(bar.most)}"
        times = f"{bar.name}: {format_time(bar.middle)} ({span})"
        yield tag(
            "g",
            tag("title", times),
            tag(
                "rect",
                x=middle - wide / 2,
                y=top,
                width=wide,
                height=max(0.5, floor - top),
                class_="slow" if bar.slow else "bars",
            ),
            tag(
                "line",
                x1=middle,
                x2=middle,
                y1=frame.y_position(bar.least * factor),
                y2=max(frame.top, frame.y_position(bar.most * factor)),
                class_="whisker",
            ),
        )


def _line(frame: Frame, usual: float, factor: float) -> Markup:
    at = frame.y_position(usual * factor)
    caption = f"median rank {format_time(usual)}"
    return join_markup(
        [
            tag("line", x1=frame.left, x2=frame.data_right, y1=at, y2=at, class_="mark"),
            svg_text(frame.data_right, frame.top, caption, anchor="end"),
        ]
    )
