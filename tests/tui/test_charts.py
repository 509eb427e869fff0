"""Charts of the console: text, keys, clicks, and drawing of any data at any size."""

import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from textual.app import App
from textual.geometry import Size

from spbench.record.state import RunState
from spbench.report.distribution import TimeDistribution, fit_axis
from spbench.report.scale import Scale, fit_sample_scale, fit_scale, format_ticks
from spbench.stats.histogram import make_bins
from spbench.stats.sorted_samples import SortedSamples
from spbench.tui.run.panes.charts import HistogramPane, MetricSamples
from spbench.tui.run.panes.overview import HostMap
from spbench.tui.widgets.axes import add_row_labels, render_labels
from spbench.tui.widgets.dots import Dots
from spbench.tui.widgets.glyphs import choose_slowness_mark, compute_slowness_step
from spbench.tui.widgets.heat_map import HeatMap
from spbench.tui.widgets.histogram import MAX_BAR_LINES, HistogramChart
from spbench.tui.widgets.line_table import LineTable
from spbench.tui.widgets.plot import Plot, PlotPoint, PlotSeries
from spbench.tui.widgets.rank_strip import FEW_RANKS, RankStrip, lay_out_ranks
from spbench.tui.widgets.text import cell_width
from spbench.tui.widgets.timeline import TimelineChart
from support.sample_events import describe_case, make_started_run, rank_event

CHARTS = (RankStrip, HistogramChart, TimelineChart, Plot, HeatMap)


class ChartApp(App):
    BINDINGS = [("escape", "leave", "Leave")]  # noqa: RUF012

    def __init__(self, chart):
        super().__init__()
        self.chart = chart
        self.messages = []

    def compose(self):
        yield self.chart

    def on_mount(self):
        self.chart.focus()

    def on_rank_strip_rank_selected(self, message):
        assert message.control is self.chart
        self.messages.append(message.rank)

    def action_leave(self):
        self.messages.append("left")


def render_lines(chart):
    return [chart.render_line(y).text.rstrip() for y in range(chart.size.height)]


def read_caption(chart):
    return next(line for line in reversed(render_lines(chart)) if line)


# Ranks

STRIP_LEGEND = "░ normal  ▒ a bit slow  ▓ slow  █ very slow  · not compared"


async def test_ranks_are_distinguishable_without_colour():
    strip = RankStrip()
    strip.update([1.0, 1.15, 1.4, 2.5, None, 1.0, 1.0, 1.0, 1.0], {5}, None)
    async with ChartApp(strip).run_test(size=(90, 24)) as pilot:
        await pilot.pause()
        assert render_lines(strip)[:2] == [
            f"░░░▒▒▒▓▓▓███···✗✗✗░░░░░░░░░   {STRIP_LEGEND}",
            "9 ranks; 1 failed: rank 5",
        ]
        await pilot.resize_terminal(88, 24)
        await pilot.pause()
        assert render_lines(strip)[:2] == [
            "░░░▒▒▒▓▓▓███···✗✗✗░░░░░░░░░",
            f"9 ranks; 1 failed: rank 5   {STRIP_LEGEND}",
        ]


async def test_rank_that_was_slow_too_briefly_is_not_drawn_as_slow():
    strip = RankStrip()
    async with ChartApp(strip).run_test(size=(80, 24)) as pilot:
        strip.update([1.0] * 8 + [9.0, 9.0], (), 8, "", {9})
        await pilot.pause()
        assert render_lines(strip)[0].startswith("░" * 24 + "◆▒▒███")
        assert read_caption(strip).startswith("rank 8, 9.00x as long as the median rank, too")


async def test_few_ranks_have_only_a_text():
    strip = RankStrip()
    strip.update([1.0, 2.0], (), None, "rank 1 is slow")
    async with ChartApp(strip).run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        assert render_lines(strip)[:2] == ["2 ranks, rank 1 is slow", ""]
        strip.update([1.0, 2.0], (), 1, "rank 1 is slow")
        await pilot.pause()
        assert render_lines(strip)[:2] == ["rank 1, 2.00x the time of rank 0", ""]
        assert not strip.can_focus
        strip.update([1.0] * 9, (), None)
        assert strip.can_focus


async def test_keys_and_clicks_select_ranks():
    strip = RankStrip()
    strip.update([1.0] * 40, {7}, None)
    app = ChartApp(strip)
    async with app.run_test(size=(10, 6)) as pilot:
        await pilot.press("right", "right", "down", "end", "up", "home", "left", "enter")
        assert app.messages == [0, 1, 11, 39, 29, 0, 0, 0]
        await pilot.click(RankStrip, offset=(7, 0))
        assert app.messages[-1] == 7
        assert render_lines(strip)[0] == "░░░░░░░◆░░"
        await pilot.click(RankStrip, offset=(7, 4))  # the caption
        assert len(app.messages) == 9
        await pilot.press("escape")
        assert app.messages[-1] == "left"


async def test_cell_of_many_ranks_shows_the_worst():
    strip = RankStrip()
    ratios = [1.0] * 4096
    ratios[1000] = 1.5
    ratios[2000] = 2.0
    ratios[2001] = 3.0
    strip.update(ratios, {3000}, None)
    app = ChartApp(strip)
    async with app.run_test(size=(80, 3)) as pilot:
        await pilot.pause()
        ranks_per_cell = math.ceil(4096 / 160)
        strip_text = "".join(line.ljust(80) for line in render_lines(strip)[:2])
        assert strip_text[1000 // ranks_per_cell] == "▓"
        assert strip_text[2000 // ranks_per_cell] == "█"
        assert strip_text[3000 // ranks_per_cell] == "✗"
        assert strip_text.count("░") == math.ceil(4096 / ranks_per_cell) - 3
        await pilot.hover(RankStrip, offset=(2000 // ranks_per_cell, 0))
        assert str(strip.tooltip).startswith(
            "rank 2001, 3.00x the time of the median rank, of ranks "
        )
        await pilot.click(RankStrip, offset=(2000 // ranks_per_cell, 0))
        assert app.messages == [2001]
        assert read_caption(strip).startswith("rank 2001, 3.00x the time of")


async def test_selection_survives_a_resize():
    strip = RankStrip()
    strip.update([1.0] * 60, (), 59)
    async with ChartApp(strip).run_test(size=(80, 4)) as pilot:
        await pilot.pause()
        assert render_lines(strip)[0] == "░" * 59 + "◆"
        await pilot.resize_terminal(20, 2)
        await pilot.pause()
        assert render_lines(strip)[0] == "░" * 19 + "◆"
        strip.update([1.0] * 60, (), 999)
        assert strip.cursor is None


async def test_caption_names_failed_and_slow_ranks():
    strip = RankStrip()
    async with ChartApp(strip).run_test(size=(80, 24)) as pilot:
        strip.update([1.0, 1.2, None], set(), None, "no rank is slow")
        await pilot.pause()
        assert read_caption(strip) == "3 ranks, no rank is slow"
        strip.update([1.0, 1.2, None], set(), 1, "no rank is slow")
        await pilot.pause()
        assert read_caption(strip) == "rank 1, 1.20x the time of the median rank"
        strip.update([1.0, 1.2, None], set(), 2)
        await pilot.pause()
        assert read_caption(strip) == "rank 2, not compared"
        strip.update([None, None], {1}, None)
        await pilot.pause()
        assert read_caption(strip) == "2 ranks; 1 failed: rank 1"
        strip.update([1.0, 2.0, 1.0], {0, 1}, None)
        await pilot.pause()
        assert read_caption(strip) == "3 ranks; 2 failed, such as rank 1"


@given(st.integers(0, 5000), st.integers(0, 250), st.integers(-1, 60))
def test_each_rank_is_in_one_cell_and_all_cells_fit(ranks, width, height):
    layout = lay_out_ranks(ranks, width, height)
    assert [
        rank for cell in range(layout.count) for rank in layout.list_ranks_in_cell(cell)
    ] == list(range(ranks))
    lines_used = math.ceil(layout.count / layout.cells_per_line)
    assert lines_used <= max(1, height)
    assert layout.cells_per_line * layout.columns_per_cell <= max(1, width)


def test_slowness_steps_rise_with_the_ratio():
    assert [
        compute_slowness_step(ratio, 1.3) for ratio in (0.5, 1, 1.09, 1.11, 1.29, 1.31, 1.89, 1.91)
    ] == [*(0, 0, 0, 1, 1, 2, 2, 3)]
    marks = [choose_slowness_mark(ratio, 1.3, ascii=True)[0] for ratio in (1, 1.2, 1.5, 3, None)]
    assert marks == ["-", "+", "*", "#", "."]
    assert choose_slowness_mark(1, 1.3, failed=True, ascii=True) == ("!", "failed")


# Histograms


async def test_bar_heights_follow_the_counts():
    chart = HistogramChart()
    chart.update([0, 1, 2, 3, 4], [0, 2, 16, 1], "ms", {"median": 2.5, "p95": 2.9})
    async with ChartApp(chart).run_test(size=(43, 4)) as pilot:
        await pilot.pause()
        upper, lower, axis, caption = render_lines(chart)
        # The count and the axis, then bars of 9 cells with a gap.
        assert upper == "16┤" + " " * 20 + "█" * 9
        assert lower.replace(" ", "") == "│" + "▂" * 9 + "█" * 9 + "▁" * 10
        assert axis.startswith("   0 ms─")
        assert axis.endswith("─4.00 ms")
        assert axis.index("▲median") in range(23, 33)
        assert caption == "median 2.50 ms, p95 2.90 ms"


async def test_keys_and_clicks_describe_bars_until_escape():
    chart = HistogramChart()
    chart.update([0, 1, 2, 3, 4], [0, 2, 16, 1], "ms", {"median": 2.5})
    app = ChartApp(chart)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("right", "right", "right")
        assert read_caption(chart) == "2.00 to 3.00 ms: 16 of 19 samples, 84 %"
        assert "◆" in render_lines(chart)[-2][40:60]
        await pilot.press("end")
        assert read_caption(chart).startswith("3.00 to 4.00 ms: 1 of 19")
        await pilot.click(HistogramChart, offset=(25, 3))
        assert read_caption(chart).startswith("1.00 to 2.00 ms: 2 of 19")
        await pilot.press("escape")
        assert read_caption(chart) == (
            "median 2.50 ms, 19 samples from 0 to 4.00 ms, most in 2.00 to 3.00 ms"
        )
        assert app.messages == []
        await pilot.press("escape")
        assert app.messages == ["left"]


@pytest.mark.parametrize("largest", [2, 3, 7, 21, 23, 24, 57, 1234])
@pytest.mark.parametrize("rows", [4, 5, 12, 24])
async def test_axis_of_a_histogram_has_at_least_two_counts(largest, rows):
    chart = HistogramChart()
    chart.update([0, 1, 2, 3], [1, largest, 1], "ms")
    async with ChartApp(chart).run_test(size=(62, rows + 2)) as pilot:
        await pilot.pause()
        lines = render_lines(chart)
    counts = [int(line.partition("┤")[0]) for line in lines if "┤" in line]
    assert len(counts) >= 2
    assert counts == sorted(set(counts), reverse=True)
    assert max(counts) <= largest


async def test_bars_of_a_histogram_have_one_width():
    chart = HistogramChart()
    chart.update(list(range(22)), [9] * 21, "ms")
    async with ChartApp(chart).run_test(size=(71, 12)) as pilot:
        await pilot.pause()
        [line, *_] = [line for line in render_lines(chart) if "█" in line]
    assert {len(bar) for bar in line.partition("┤")[2].split()} <= {2, 3}
    assert line.count("█") == 20 * 2 + 3


async def test_single_sample_among_thousands_is_visible():
    chart = HistogramChart(ascii=True)
    chart.update(list(range(11)), [9000, *[0] * 8, 1], "")
    async with ChartApp(chart).run_test(size=(200, 60)) as pilot:
        await pilot.pause()
        lowest_bars = [line for line in render_lines(chart) if "#" in line][-1]
        assert lowest_bars == "    |" + "#" * 18 + " " * 153 + "." * 19
        assert chart.render_line(MAX_BAR_LINES).text.isascii()


async def test_bar_height_is_limited():
    chart = HistogramChart()
    chart.update([0, 1, 2, 3], [1, 90, 1], "ms")
    async with ChartApp(chart).run_test(size=(80, 60)) as pilot:
        await pilot.pause()
        bars = [line for line in render_lines(chart) if "█" in line]
        assert len(bars) == MAX_BAR_LINES
        # Free lines are above the bars, so that the axis is at the bottom of the pane.
        assert render_lines(chart)[-MAX_BAR_LINES - 2 : -2] == bars
        assert not any(render_lines(chart)[: -MAX_BAR_LINES - 2])
        chart.update([0, 1, 2, 3], [1, 5, 1], "ms", quantiles={"median": 1.5, "p95": 3.0})
        await pilot.pause()
        lines = render_lines(chart)
        assert sum("█" in line for line in lines) == 10
        assert lines[1].split() == ["p95", "3.00", "ms", "2.00x", "the", "median"]
        await pilot.resize_terminal(32, 60)
        await pilot.pause()
        assert render_lines(chart)[1].split() == ["p95", "3.00", "ms", "2.00x"]


async def test_list_and_caption_have_the_median_of_the_tables():
    state = RunState()
    for event in make_started_run(describe_case(np=1, repeats=2), hosts=["node01"]):
        state.apply(event)
    for repeat, values in enumerate(([1.0, 2.0, 3.0, 4.0, 5.0], [10.0, 11.0, 12.0])):
        state.apply(rank_event("samples", 0, values=values, repeat=repeat))
    case = state.cases["a"]
    pane = HistogramPane("histogram")
    async with ChartApp(pane).run_test(size=(80, 30)) as pilot:
        pane.show(MetricSamples(case, "time_ms", None), "time_ms", None)
        await pilot.pause()
        chart = pane.query_one(HistogramChart)
        # The median of all samples is 4.5: long repeats would count more than short ones.
        assert case.summary("time_ms").p50 == 7.0
        listed = next(line for line in render_lines(chart) if line.startswith("median "))
        assert listed.split()[:5] == ["median", "of", "repeats", "7.00", "ms"]
        assert read_caption(chart).startswith("median 7.00 ms")


async def test_ends_of_the_axis_have_their_own_units():
    chart = HistogramChart()
    chart.update([0.0575, 1.2, 25.5], [30, 1], "ms", {"median": 0.06}, log=True)
    async with ChartApp(chart).run_test(size=(80, 20)) as pilot:
        await pilot.pause()
        axis = next(line for line in render_lines(chart) if "▲median" in line)
        assert axis.split("─")[0].endswith("57.5 us")
        assert axis.endswith("25.5 ms")
        assert "31 samples from 57.5 us to 25.5 ms" in read_caption(chart)


async def test_empty_chart_says_so():
    for chart, message in (
        (HistogramChart(), "no samples"),
        (TimelineChart(), "no values"),
        (Plot(), "no points"),
        (HeatMap(), "nothing measured"),
        (RankStrip(), "no ranks"),
    ):
        app = ChartApp(chart)
        async with app.run_test(size=(80, 24)) as pilot:
            await pilot.press("right", "home", "escape")
            assert render_lines(chart)[0] == message
            assert chart.cursor is None


def test_rejects_edges_that_do_not_match_the_counts():
    with pytest.raises(ValueError, match="2 bins have 3 edges, not 2"):
        HistogramChart().update([1, 2], [1, 1], "ms")


# Timelines


async def test_timeline_shows_last_worst_and_limit():
    chart = TimelineChart()
    chart.update([1, 2, 3, None, 8], "ms", "lower", "time_ms", limit=4)
    async with ChartApp(chart).run_test(size=(80, 10)) as pilot:
        await pilot.pause()
        title, *graph, caption = render_lines(chart)
        assert title == "time_ms"
        assert caption == "last 8.00 ms, worst 8.00 ms, limit 4.00 ms, 1 of 4 beyond it"
        assert graph[0].startswith("8┤")
        assert graph[0].endswith(("⢀", "⠈", "⠁", "⠐", "⢸", "⡀"))
        assert sum("╌" * 10 in line for line in graph) == 1
        gap = [line[62:78].strip("╌ ") for line in graph]
        assert not any(gap)  # no line joins the values next to the missing one
        styles = [segment.style for segment in chart.render_line(1) if segment.text.strip()]
        assert styles[-1].bold


@pytest.mark.parametrize("better", ["lower", "none"])
async def test_caption_of_equal_values_names_one(better):
    chart = TimelineChart()
    chart.update([80.0] * 30, "%", better, "load")
    async with ChartApp(chart).run_test(size=(80, 10)) as pilot:
        await pilot.pause()
        assert read_caption(chart) == "always 80.0 %"


async def test_spike_among_thousands_is_visible():
    chart = TimelineChart(ascii=True)
    chart.update([1.0] * 3000 + [9.0] + [1.0] * 3000, "ms", "lower", "time_ms")
    async with ChartApp(chart).run_test(size=(80, 10)) as pilot:
        await pilot.pause()
        assert render_lines(chart)[1].count("*") == 1
        assert "".join(render_lines(chart)[1:-1]).isprintable()
        assert read_caption(chart) == "last 1.00 ms, worst 9.00 ms"


@pytest.mark.parametrize(("values", "joined"), [([1.0, 3.0], False), ([1.0, 2.0, 3.0], True)])
async def test_two_values_are_not_joined(values, joined):
    chart = TimelineChart(ascii=True)
    chart.update(values, "ms", "lower", "")
    async with ChartApp(chart).run_test(size=(80, 10)) as pilot:
        await pilot.pause()
        dots = "".join(render_lines(chart)[:-1]).count("*")
        assert (dots > 10) if joined else (dots == 2)


async def test_one_slow_value_does_not_change_the_unit():
    chart = TimelineChart()
    chart.update([0.012] * 20 + [8.0], "ms", "lower", "")
    async with ChartApp(chart).run_test(size=(120, 10)) as pilot:
        await pilot.pause()
        assert chart.unit == "us"
        assert read_caption(chart) == "last 8.00 ms, worst 8.00 ms, log axis"


async def test_worst_of_a_rate_is_its_minimum():
    chart = TimelineChart()
    chart.update([11.0, 12.0, 4.0, 11.5], "GB/s", "higher", "bandwidth", limit=5)
    async with ChartApp(chart).run_test(size=(80, 10)) as pilot:
        await pilot.pause()
        assert read_caption(chart) == (
            "last 11.5 GB/s, worst 4.00 GB/s, limit 5.00 GB/s, 1 of 4 beyond it"
        )
        await pilot.press("right", "right", "right")
        assert read_caption(chart) == "3 of 4: 4.00 GB/s, over the limit"
        assert any("◆" in line for line in render_lines(chart))
        await pilot.click(TimelineChart, offset=(79, 4))
        assert read_caption(chart) == "4 of 4: 11.5 GB/s"


async def test_distant_limit_is_reported_but_not_drawn():
    chart = TimelineChart()
    chart.update([1.0, 2.0], "1", "lower", "ratio", limit=1000)
    async with ChartApp(chart).run_test(size=(80, 10)) as pilot:
        await pilot.pause()
        assert read_caption(chart) == "2 samples: 1, 2, limit 1000, none beyond it"
        assert not any("╌" in line for line in render_lines(chart))


# Plots

SERIES = [
    PlotSeries("main", [PlotPoint(n, 64 / n, 60 / n, 70 / n) for n in (1, 2, 4)]),
    PlotSeries("branch", [PlotPoint(n, 80 / n) for n in (1, 2, 4)]),
]


async def test_keys_describe_points_and_series():
    chart = Plot()
    chart.update(SERIES, "ranks", "time_ms p50")
    async with ChartApp(chart).run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        assert render_lines(chart)[0] == "time_ms p50  ● main  ▲ branch"
        assert "".join(render_lines(chart)[1:]).count("●") == 3
        await pilot.press("right")
        assert read_caption(chart) == "main: ranks 1, time_ms p50 64.0 (60.0 to 70.0)"
        await pilot.press("right", "down")
        assert read_caption(chart) == "branch: ranks 2, time_ms p50 40.0"
        await pilot.press("down", "end")
        assert read_caption(chart) == "branch: ranks 4, time_ms p50 20.0"
        await pilot.press("up", "home", "left")
        assert read_caption(chart).startswith("main: ranks 1,")


async def test_click_describes_the_nearest_point():
    chart = Plot()
    chart.update(SERIES, "ranks", "time_ms p50")
    async with ChartApp(chart).run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        y, line = max(
            (y, line) for y, line in enumerate(render_lines(chart)[1:], 1) if line.endswith("▲")
        )
        await pilot.click(Plot, offset=(len(line) - 3, y))
        assert read_caption(chart) == "branch: ranks 4, time_ms p50 20.0"


async def test_wide_range_has_a_logarithmic_axis_by_default():
    points = [PlotPoint(10.0**exponent, 10.0**exponent) for exponent in range(4)]
    chart = Plot()
    async with ChartApp(chart).run_test(size=(80, 24)) as pilot:
        chart.update([PlotSeries("a", points)], "bytes", "GB/s", y_log=False)
        await pilot.pause()
        assert read_caption(chart).startswith("x axis: bytes (log)")
        assert render_lines(chart)[-2].split() == ["1", "10", "100", "1000"]
        assert render_lines(chart)[0].startswith("GB/s  ●")
        chart.update([PlotSeries("a", [*points, PlotPoint(-1, 1)])], "bytes", "GB/s", x_log=True)
        await pilot.pause()
        assert read_caption(chart).startswith("x axis: bytes, ")


async def test_values_with_equal_ratios_have_a_logarithmic_axis_with_these_values():
    chart = Plot()
    chart.update([PlotSeries("a", [PlotPoint(x, 1.0) for x in (10, 20, 40, 80)])], "size", "ms")
    async with ChartApp(chart).run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        assert read_caption(chart).startswith("x axis: size (log)")
        assert render_lines(chart)[-2].split() == ["10", "20", "40", "80"]


async def test_long_whiskers_do_not_squash_the_medians():
    chart = Plot()
    points = [PlotPoint(1, 190.0, 180.0, 4800.0), PlotPoint(2, 200.0, 190.0, 210.0)]
    chart.update([PlotSeries("a", points)], "size", "time in us")
    async with ChartApp(chart).run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        assert "x axis: size, 1 line beyond the axis, up to 4800 us" in read_caption(chart)
        assert "↑" in render_lines(chart)[1]
        assert chart._scales[1].high == 210


async def test_whiskers_below_the_medians_are_cut_too():
    chart = Plot()
    points = [PlotPoint(1, 190.0, 2.0, 195.0), PlotPoint(2, 200.0, 190.0, 210.0)]
    chart.update([PlotSeries("a", points)], "size", "time in us")
    async with ChartApp(chart).run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        assert "↓" in "".join(render_lines(chart))
        assert chart._scales[1].low == 180


async def test_categories_keep_their_order():
    chart = Plot(ascii=True)
    points = [PlotPoint("vertical", 3.0), PlotPoint("square", 2.0), PlotPoint("horizontal", 4.0)]
    chart.update([PlotSeries("halo", points)], "slice_method", "time_ms")
    async with ChartApp(chart).run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        assert render_lines(chart)[-2].split() == ["vertical", "square", "horizontal"]
        assert all(line.isascii() or "┤" in line or "│" in line for line in render_lines(chart))
        await pilot.press("right", "right")
        assert read_caption(chart) == "halo: slice_method square, time_ms 2.00"


# Heat maps

LABELS = ["node01", "node02", "node03"]
LINKS = [[None, 11.0, 12.0], [11.0, None, 2.0], [12.0, 11.5, None]]


async def test_keys_describe_links_with_value_and_ratio():
    chart = HeatMap()
    chart.update(LABELS, LINKS, "GB/s", "higher")
    async with ChartApp(chart).run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        assert [line.split() for line in render_lines(chart)[:4]] == [
            ["1", "2", "3"],
            ["node01", "·", "11.0", "░", "12.0", "░"],
            ["node02", "11.0", "░", "·", "2.00", "█"],
            ["node03", "12.0", "░", "11.5", "░", "·"],
        ]
        assert read_caption(chart).startswith("3 x 3, median 11.5 GB/s")
        await pilot.press("right", "right", "right", "down")
        assert read_caption(chart) == "node02 -> node03: 2.00 GB/s, 0.174x the median"
        assert "2.00", "█◂" in render_lines(chart)[2]
        await pilot.press("left", "up", "down", "down")
        assert read_caption(chart) == "node03 -> node02: 11.5 GB/s, 1.00x the median"
        await pilot.press("down", "home")
        assert read_caption(chart) == "node01 -> node01: not measured"
        await pilot.click(HeatMap, offset=(render_lines(chart)[2].index("2.00 █"), 2))
        assert read_caption(chart).startswith("node02 -> node03")
        await pilot.press("escape")
        assert read_caption(chart).startswith("3 x 3")


async def test_map_counts_the_rows_in_view():
    chart = HeatMap()
    chart.update(LABELS, LINKS, "GB/s", "higher")
    chart.styles.height = 4
    async with ChartApp(chart).run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        assert read_caption(chart).startswith("2 of 3 rows, median 11.5 GB/s")


async def test_legend_of_links_has_the_limits_of_the_shades():
    chart = HeatMap()
    chart.update(LABELS, LINKS, "GB/s", "higher")
    async with ChartApp(chart).run_test(size=(96, 24)) as pilot:
        await pilot.pause()
        limits = "░ normal  ▒ ≥1.17x  ▓ slow ≥1.5x  █ ≥2.5x  · not measured"
        assert read_caption(chart) == f"3 x 3, median 11.5 GB/s  {limits}"


@pytest.mark.parametrize(("width", "is_named"), [(80, False), (24, True)])
async def test_heat_map_names_the_keys_that_show_values_only_if_some_are_not_printed(
    width, is_named
):
    chart = HeatMap()
    chart.update(LABELS, LINKS, "GB/s", "higher")
    async with ChartApp(chart).run_test(size=(width, 24)) as pilot:
        await pilot.pause()
        assert (len(chart._summarize()) == 2) is is_named


async def test_given_slowness_replaces_the_overall_median():
    chart = HeatMap()
    chart.update(["a", "b"], [[4.0, 1.0], [1.0, 4.0]], "us", "lower", slowness=[[1, 1], [2, 1]])
    async with ChartApp(chart).run_test(size=(80, 24)) as pilot:
        await pilot.press("home")
        assert read_caption(chart) == "a -> a: 4.00 us, 1.00x the median"
        assert render_lines(chart)[1].split() == ["a", "4.00", "░◂", "1.00", "░"]
        assert render_lines(chart)[2].split() == ["b", "1.00", "▓", "4.00", "░"]


async def test_large_heat_map_scrolls():
    node_labels = [f"node{number:02d}" for number in range(60)]
    chart = HeatMap()
    values = [[float(row + column) for column in range(60)] for row in range(60)]
    chart.update(node_labels, values, "", "none")
    async with ChartApp(chart).run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        assert render_lines(chart)[1].startswith("node00 ░ ░")
        await pilot.press("end")
        assert read_caption(chart).startswith("node59 -> node59: 118, ")
        assert render_lines(chart)[-2].startswith("node59 ")
        assert render_lines(chart)[-2].endswith("░◂")
        chart.on_mouse_scroll_up(make_scroll_event())
        await pilot.pause()
        assert render_lines(chart)[-2].startswith("node58 ")
        await pilot.resize_terminal(200, 60)
        await pilot.pause()
        assert render_lines(chart)[-2].startswith("node59 ")


def make_scroll_event():
    from textual.events import MouseScrollUp

    return MouseScrollUp(None, 1, 1, 0, -1, 0, False, False, False)


def test_rejects_matrix_that_does_not_match_its_labels():
    with pytest.raises(ValueError, match="the matrix is not 3 rows of 3"):
        HeatMap().update(LABELS, LINKS[:2], "", "")
    with pytest.raises(ValueError, match="the matrix is not 3 rows of 3"):
        HeatMap().update(LABELS, LINKS, "", "", slowness=[[1.0]])


# All charts


@pytest.mark.parametrize("kind", [*CHARTS, LineTable])
def test_widgets_have_help_and_remappable_keys(kind):
    assert 2 <= len(kind.HELP.splitlines()) <= 6
    assert max(map(len, kind.HELP.splitlines())) <= 100
    bindings = [binding for binding in kind.BINDINGS if binding]
    assert all(b.id and b.tooltip and b.description for b in bindings)
    assert {b.key for b in bindings if b.show} <= {"enter"}
    assert len({b.id for b in bindings}) == len(bindings)


FINITE_FLOATS = st.floats(allow_nan=False, allow_infinity=False)
OPTIONAL_FLOATS = st.none() | FINITE_FLOATS
WIDTHS = st.integers(1, 90)
HEIGHTS = st.integers(1, 12)
SLOW = settings(max_examples=60)


def draw_chart(kind: Any, columns, rows, *data, cursor=None, ascii=False):
    """Return a chart of this size as text, and check that it fits."""

    sized = type("Sized", (kind,), {"size": Size(columns, rows)})
    chart = sized(ascii=ascii)
    chart.update(*data)
    if cursor is not None and chart.count_stops():
        chart.cursor = cursor % chart.count_stops()
    texts = ["".join(text for text, _ in line) for line in chart.draw(columns, rows)]
    assert len(texts) <= rows
    assert texts
    if kind is not Plot:  # a legend is cut as it is drawn
        assert all(cell_width(text) <= max(columns, 10) for text in texts)
    return texts


@given(
    WIDTHS,
    HEIGHTS,
    st.lists(OPTIONAL_FLOATS, max_size=200),
    OPTIONAL_FLOATS,
    st.integers(0, 300),
    st.booleans(),
)
@SLOW
def test_timeline_draws_any_values(columns, rows, values, limit, cursor, ascii):
    draw_chart(
        TimelineChart, columns, rows, values, "ms", "lower", "t", limit, cursor=cursor, ascii=ascii
    )


@given(
    WIDTHS,
    HEIGHTS,
    st.lists(st.integers(0, 10**9), max_size=120),
    FINITE_FLOATS,
    st.integers(0, 200),
)
@SLOW
def test_histogram_draws_any_counts(columns, rows, counts, first, cursor):
    edges = [first + index for index in range(len(counts) + 1)] if counts else []
    draw_chart(HistogramChart, columns, rows, edges, counts, "ms", {"p50": first}, cursor=cursor)


@given(
    WIDTHS,
    HEIGHTS,
    st.lists(
        st.lists(
            st.builds(PlotPoint, FINITE_FLOATS, FINITE_FLOATS, OPTIONAL_FLOATS, OPTIONAL_FLOATS),
            max_size=5,
        ),
        max_size=8,
    ),
    st.sampled_from([None, True, False]),
    st.integers(0, 50),
)
@SLOW
def test_plot_draws_any_points(columns, rows, series, log, cursor):
    plot_series = [PlotSeries(str(index), points) for index, points in enumerate(series)]
    draw_chart(Plot, columns, rows, plot_series, "x", "y", log, log, cursor=cursor)


@given(WIDTHS, HEIGHTS, st.data())
@SLOW
def test_heat_map_draws_any_matrix(columns, rows, data):
    row_count = data.draw(st.integers(0, 9))
    column_count = data.draw(st.integers(0, 9))
    row = st.lists(OPTIONAL_FLOATS, min_size=column_count, max_size=column_count)
    values = data.draw(st.lists(row, min_size=row_count, max_size=row_count))
    labels = data.draw(st.lists(st.text(max_size=6), min_size=row_count, max_size=row_count))
    better = data.draw(st.sampled_from(["lower", "higher", "none"]))
    names = [f"c{index}" for index in range(column_count)]
    cursor = data.draw(st.none() | st.integers(0, 99))
    draw_chart(HeatMap, columns, rows, labels, values, "ms", better, names, cursor=cursor)


@given(WIDTHS, HEIGHTS, st.lists(st.none() | st.floats(0, 1e9), max_size=300), st.integers(0, 400))
@SLOW
def test_rank_strip_draws_any_ratios(columns, rows, ratios, selected):
    texts = draw_chart(RankStrip, columns, rows, ratios, {3, 4}, selected)
    has_cells = len(ratios) > FEW_RANKS
    assert ("◆" in "".join(texts)) == (has_cells and selected < len(ratios))


@given(FINITE_FLOATS, FINITE_FLOATS, FINITE_FLOATS, st.integers(1, 200))
def test_scale_keeps_its_ends(a, b, value, count):
    low = min(a, b)
    high = max(a, b)
    scale = Scale(low, high)
    assert scale.to_index(value, count) in range(count)
    if low < high:
        assert scale.to_index(low, count) == 0
        assert scale.to_index(high, count) == count - 1


@given(
    st.lists(FINITE_FLOATS, max_size=4), st.sampled_from([None, True, False]), st.integers(1, 12)
)
def test_ticks_are_few_rising_and_within_the_scale(values, log, max_ticks):
    scale = fit_scale(values, log)
    ticks = scale.ticks(max_ticks)
    assert 1 <= len(ticks) <= max(2, max_ticks)
    assert ticks == sorted(ticks)
    slack = 1e-9 * max(abs(scale.low), abs(scale.high))
    assert all(scale.low - slack <= tick <= scale.high + slack for tick in ticks)
    assert len(format_ticks(ticks, scale.log)) == len(ticks)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 10, ["0", "5", "10"]),
        (10.2, 12.4, ["10.5", "11.0", "11.5", "12.0"]),
        (0.001, 0.0022, ["0.0010", "0.0015", "0.0020"]),
        (1000, 4000, ["1000", "2000", "3000", "4000"]),
    ],
)
def test_ticks_are_round_and_distinct(low, high, expected):
    assert format_ticks(Scale(low, high).ticks(4)) == expected


@given(st.lists(st.tuples(st.integers(0, 80), st.text("abc1", min_size=1, max_size=9)), max_size=8))
def test_axis_labels_do_not_overlap(positions):
    line = render_labels(sorted(positions), 80)
    assert len(line) <= 80
    labels = [label for _, label in sorted(positions)]
    assert all(label in labels for label in line.split())
    assert not labels or line.endswith(labels[-1])


def test_dots_are_placed_from_the_bottom_left():
    dots = Dots(2, 1)
    dots.set(0, 0, "a")
    dots.fill_column(3, 0, 3, "b")
    assert dots.render_lines() == [[("⡀", "a"), ("⢸", "b")]]
    plain = Dots(3, 2, ascii=True)
    plain.draw_line((0, 0), (2, 1), "a")
    plain.put_glyph(2, 0, "o", "b")
    assert plain.render_lines() == [[("  ", ""), ("*", "a")], [("**", "a"), ("o", "b")]]


# Samples on the same scale


async def test_far_out_sample_is_counted_instead_of_drawn():
    samples = SortedSamples([1.0 + index / 100 for index in range(40)] + [900.0])
    scale = fit_sample_scale([samples])
    assert not scale.log
    bins = make_bins(samples, 10)
    histogram = HistogramChart()
    histogram.update(
        bins.edges, bins.counts, "ms", above_range=bins.above_range, largest=samples.largest
    )
    timeline = TimelineChart()
    timeline.update(
        list(samples), "ms", "lower", "", axis=scale, above_range=1, x_name="iteration", x_count=41
    )
    async with ChartApp(histogram).run_test(size=(80, 20)) as pilot:
        await pilot.pause()
        assert render_lines(histogram)[-2].endswith("1 beyond ▶")
        assert "1 of 41 beyond, up to 900 ms" in read_caption(histogram)
        assert sum("█" in line for line in render_lines(histogram)) > 3
    async with ChartApp(timeline).run_test(size=(80, 20)) as pilot:
        await pilot.pause()
        assert "▲" in "".join(render_lines(timeline)[:-1])
        assert read_caption(timeline) == "▲ 1 beyond the axis, last 900 ms, worst 900 ms"
        assert render_lines(timeline)[-2].split() == ["ms", "1", "iteration", "41"]


async def test_value_of_many_iterations_has_their_numbers():
    timeline = TimelineChart()
    values = [1.0, 2.0, 3.0, 2.0]
    timeline.update(values, "ms", "lower", "", x_name="iteration", x_count=4000)
    async with ChartApp(timeline).run_test(size=(80, 20)) as pilot:
        timeline.move_to(2)
        await pilot.pause()
        assert read_caption(timeline) == "worst of 2001 to 3000 of 4000: 3.00 ms"


def test_samples_have_the_same_axis_in_all_charts():
    samples = SortedSamples([1.0 + index / 2 for index in range(100)])
    scale = fit_sample_scale([samples])
    assert scale.log
    distribution = TimeDistribution("", samples, 1.0)
    assert fit_axis([distribution]).scale == scale
    timeline = TimelineChart()
    timeline.update(list(samples), "ms", "lower", "", limit=60.0, axis=scale)
    assert timeline._choose_scale(list(samples)).log


@pytest.mark.parametrize("ascii", [False, True])
async def test_legend_of_the_host_map_has_its_glyphs(ascii):
    host_map = HostMap()
    host_map.ascii = ascii
    slowness = {"a": {"n1": 1.0, "n2": 1.2}, "b": {"n1": 1.5, "n2": 9.0}}
    async with ChartApp(host_map).run_test(size=(80, 10)) as pilot:
        host_map.show(["n1", "n2"], slowness, "a")
        await pilot.pause()
        *rows, legend = filter(None, render_lines(host_map))
    marks = [mark.split()[0] for mark in legend.split("  ")]
    assert len(set(marks)) == 5
    assert [mark in "".join(rows) for mark in marks[:4]] == [True] * 4
    assert f"slow {'>=' if ascii else '≥'}1.3x" in legend
    assert not ascii or "".join([*rows, legend]).isascii()


@pytest.mark.parametrize("rows", [9, 13, 15, 18])
def test_numbers_of_a_linear_axis_are_equally_far_apart(rows):
    picture = [[("x", "")]] * rows
    lines = add_row_labels(Scale(93.0, 211.0), rows, picture, 6)
    numbered = [row for row, [label, *_] in enumerate(lines) if "┤" in label[0]]
    assert len({lower - upper for upper, lower in pairwise(numbered)}) == 1


@pytest.mark.parametrize("rows", [3, 4, 6, 8, 12, 20])
@pytest.mark.parametrize(("low", "high"), [(52.1, 52.9), (9.3, 10.43), (4.27, 7.13)])
def test_linear_axis_has_at_least_two_round_numbers(low, high, rows):
    lines = add_row_labels(Scale(low, high), rows, [[("x", "")]] * rows, 8)
    numbers = [float(label[0].strip(" ┤")) for [label, *_] in lines if "┤" in label[0]]
    assert len(numbers) >= 2
    assert not {low, high} & set(numbers)


def test_wide_range_has_logarithmic_bins():
    samples = SortedSamples([10.0 ** (index % 4) for index in range(40)])
    assert fit_sample_scale([samples]) == Scale(1.0, 1000.0, True)
    bins = make_bins(samples, 6, log=True)
    assert bins.edges == pytest.approx([1, 10**0.5, 10, 10**1.5, 100, 10**2.5, 1000])
    assert bins.counts == (10, 0, 10, 0, 10, 10)


async def test_few_samples_are_listed():
    chart = HistogramChart()
    chart.update([9.7, 9.79], [2], "ms", few=[9.7, 9.79])
    async with ChartApp(chart).run_test(size=(80, 10)) as pilot:
        await pilot.pause()
        assert render_lines(chart)[0] == "2 samples: 9.70 ms, 9.79 ms"


async def test_host_map_shows_the_row_of_the_case_and_counts_hidden_ones():
    host_map = HostMap()
    slowness = {f"case{index:02}": {"node01": 1.0} for index in range(20)}
    app = ChartApp(host_map)
    async with app.run_test(size=(80, 10)) as pilot:
        await pilot.pause()
        host_map.show(["node01"], slowness, "case19")
        assert any(line.startswith("case19") for line in render_lines(host_map))
        assert host_map.describe_hidden() == "12 more: scroll, or use a larger terminal"
        few = {case: slowness[case] for case in list(slowness)[:3]}
        host_map.show(["node01"], few, "case00")
        assert host_map.describe_hidden() == ""


def test_short_logarithmic_axis_has_round_ticks():
    assert Scale(2.9, 17.9, log=True).ticks(6) == [5.0, 10.0]
    assert Scale(1.5, 8.0, log=True).ticks(6) == [2.0, 5.0]
    assert Scale(3.0, 4.0, log=True).ticks(6) == [3.0, 4.0]
    assert Scale(1.0, 1000.0, log=True).ticks(6) == [1.0, 10.0, 100.0, 1000.0]
