"""Bars of the ranks' median times, with a line from the minimum to p95."""

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
from spbench_core.number_text import format_quantity

MAX_BARS = 128
"""With more ranks than this, each bar is a host with the time of its slowest rank."""
_MAX_LABELS = 16
_MAX_AXIS_FACTOR = 3.0
"""The limit of the axis as a multiple of the highest bar, so that outliers do not hide bars."""


@dataclass(frozen=True, slots=True)
class RankBar:
    """The times of a rank, or of a host's slowest rank, in ms.

    ``slow`` means that its own time is slow, compared with ranks that do the same work.
    """

    name: str
    fastest: float
    median: float
    p95: float
    slow: bool = False


@dataclass(frozen=True, slots=True)
class RankBars:
    """The bars of a chart: one per rank, or one per host, the slowest first."""

    bars: list[RankBar]
    by_host: bool


def make_rank_bars(ranks: Sequence[RankPart]) -> RankBars:
    """Return a bar per rank with times, or a bar per host with more than `MAX_BARS`."""
    hosts_and_bars = [
        (rank.host, RankBar(str(rank.rank), time.min, time.p50, time.p95, _is_slow(rank)))
        for rank in ranks
        if (time := rank.time_ms) is not None
    ]
    if len(hosts_and_bars) <= MAX_BARS:
        return RankBars([bar for _, bar in hosts_and_bars], by_host=False)
    slowest_by_host: dict[str, RankBar] = {}
    for host, bar in hosts_and_bars:
        if host not in slowest_by_host or bar.median > slowest_by_host[host].median:
            slowest_by_host[host] = replace(bar, name=f"{host} ({bar.name})")
    slowest_first = sorted(slowest_by_host.values(), key=lambda bar: -bar.median)
    return RankBars(slowest_first[:MAX_BARS], by_host=True)


def _is_slow(rank: RankPart) -> bool:
    return rank.skew is not None and rank.skew >= NOTABLE_RANK


def draw_rank_bars(ranks: Sequence[RankPart]) -> Markup:
    """Return the bars of the ranks' times, and nothing with fewer than two bars."""
    rank_bars = make_rank_bars(ranks)
    bars = rank_bars.bars
    if len(bars) < 2:
        return Markup("")
    median_ms = lower_median(bar.median for bar in bars)
    unit = choose_unit([median_ms], "ms")
    highest_ms = min(
        max(bar.p95 for bar in bars), _MAX_AXIS_FACTOR * max(bar.median for bar in bars)
    )
    y_scale = Scale(0.0, highest_ms * 1.05 * unit.factor)
    frame = Frame(Scale(-0.5, len(bars) - 0.5), y_scale, height=190.0)
    bar_spacing = (frame.data_right - frame.left) / len(bars)
    labelled_indices = range(0, len(bars), max(1, -(-len(bars) // _MAX_LABELS)))
    if rank_bars.by_host:
        bar_kind = "host"
        x_title = "hosts, the slowest first (and their slowest rank)"
        labelled_indices = range(0, 1)
    else:
        bar_kind = "rank"
        num_hosts = len({rank.host for rank in ranks})
        x_title = f"rank, {format_quantity(num_hosts, 'host')}"
    return frame.draw(
        f"Times of {format_quantity(len(bars), bar_kind)}",
        frame.draw_y_axis(f"median, {unit.unit}"),
        frame.draw_x_axis(
            x_title, [(float(index), bars[index].name) for index in labelled_indices]
        ),
        *_draw_bars(frame, bars, bar_spacing, unit.factor),
        _draw_median(frame, median_ms, unit.factor),
    )


def _draw_bars(
    frame: Frame, bars: Iterable[RankBar], bar_spacing: float, units_per_ms: float
) -> Iterable[Markup]:
    width = max(1.0, min(26.0, bar_spacing * 0.7))
    for index, bar in enumerate(bars):
        x_middle = frame.x_position(index)
        y_top = frame.y_position(bar.median * units_per_ms)
        span = f"{format_time(bar.fastest)} to {format_time(bar.p95)}"
        title = f"{bar.name}: {format_time(bar.median)} ({span})"
        yield tag(
            "g",
            tag("title", title),
            tag(
                "rect",
                x=x_middle - width / 2,
                y=y_top,
                width=width,
                height=max(0.5, frame.data_bottom - y_top),
                class_="slow" if bar.slow else "bars",
            ),
            tag(
                "line",
                x1=x_middle,
                x2=x_middle,
                y1=frame.y_position(bar.fastest * units_per_ms),
                y2=max(frame.top, frame.y_position(bar.p95 * units_per_ms)),
                class_="whisker",
            ),
        )


def _draw_median(frame: Frame, median_ms: float, units_per_ms: float) -> Markup:
    y = frame.y_position(median_ms * units_per_ms)
    caption = f"median rank {format_time(median_ms)}"
    return join_markup(
        [
            tag("line", x1=frame.left, x2=frame.data_right, y1=y, y2=y, class_="mark"),
            svg_text(frame.data_right, frame.top, caption, anchor="end"),
        ]
    )
