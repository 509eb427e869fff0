"""Charts of a page show the measured values."""

import re
from dataclasses import replace
from itertools import pairwise

import pytest

from spbench.report.formats.page.charts.distribution import draw_histogram, draw_small_histogram
from spbench.report.formats.page.charts.frame import choose_ticks
from spbench.report.formats.page.charts.heat_map import LEVELS, draw_heat_map
from spbench.report.formats.page.charts.plots import (
    MAX_LINES,
    PlottedLine,
    PlottedPoint,
    draw_lines,
)
from spbench.report.formats.page.charts.rank_bars import MAX_BARS, draw_rank_bars, make_rank_bars
from spbench.report.links import LinkTable
from spbench.report.model import RankPart, TimePart
from spbench.report.scale import Scale


def attributes(svg, element, class_):
    """Return the attributes of the elements of a class."""
    elements = re.findall(rf'<{element} ([^>]*class="{class_}"[^>]*)>', svg)
    return [dict(re.findall(r'([\w-]+)="([^"]*)"', element_text)) for element_text in elements]


def bar_heights(svg):
    """Return the y positions of the tops of a histogram's bars, from its path."""
    (bars,) = attributes(svg, "path", "bars")
    return [float(y) for y in re.findall(r"V([\d.]+)H", bars["d"])]


def test_bar_heights_are_proportional_to_bin_counts():
    svg = draw_histogram([1.0] * 6 + [2.0] * 3, "ms", 1.0, None)
    tall, low = bar_heights(svg)
    (axis,) = attributes(svg, "line", "axis")
    baseline = float(axis["y1"])
    assert (baseline - tall) / (baseline - low) == pytest.approx(2, abs=0.02)
    assert "median 1.00 ms<" in svg
    assert "p95 2.00 ms<" in svg


def test_draws_a_limit_only_near_the_samples():
    assert attributes(draw_histogram([1.0, 2.0, 3.0], "ms", 2.0, 0.9), "line", "limit")
    assert not attributes(draw_histogram([1.0, 2.0, 3.0], "ms", 2.0, 0.001), "line", "limit")


def mark_labels(svg):
    """Return position and text of the labels above the bars of a histogram."""
    pattern = r'<text x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]*(?:median|p95|reference|beyond)[^<]*)<'
    return [(float(x), float(y), text) for x, y, text in re.findall(pattern, svg)]


def test_labels_of_close_marks_are_on_separate_lines():
    svg = draw_histogram([11.6, 11.7, 11.7, 11.8, 11.9], "us", 11.7, 11.71)
    labels = mark_labels(svg)
    assert sorted(text.split()[0] for _, _, text in labels) == ["median", "p95", "reference"]
    rows = sorted(y for _, y, _ in labels)
    assert all(below - above >= 14 for above, below in pairwise(rows))
    assert rows[-1] < min(bar_heights(svg)) - 14


@pytest.mark.parametrize(
    ("reference", "text"), [(0.001, "← reference 1.00 us"), (1000.0, "reference 1.00 s →")]
)
def test_reference_outside_the_axis_is_labeled_at_the_edge(reference, text):
    assert text in [
        label for _, _, label in mark_labels(draw_histogram([1.0, 2.0], "ms", 1.5, reference))
    ]


def test_p95_outside_the_axis_has_no_line():
    svg = draw_histogram(
        [*[1.0 + number / 100 for number in range(20)], 500.0, 1000.0], "ms", 1.1, None
    )
    assert len(attributes(svg, "line", "mark")) == 1
    assert any(text.startswith("p95 ") and text.endswith(" →") for _, _, text in mark_labels(svg))


def test_outlier_is_counted_and_does_not_stretch_the_axis():
    svg = draw_histogram([1.0 + number / 100 for number in range(50)] + [1000.0], "ms", 1.25, None)
    assert "1 beyond, up to 1.00 s" in svg
    assert len(bar_heights(svg)) > 5


@pytest.mark.parametrize("samples", [[5.0, 5.0, 5.0], [0.0, 0.0], [-1.0, 1.0], [1e-300, 1e300]])
def test_draws_extreme_samples(samples):
    assert "nan" not in draw_histogram(samples, "ms", 1.0, 1.0)
    assert draw_small_histogram(samples).startswith("<svg")


def test_single_sample_has_no_small_histogram():
    assert draw_small_histogram([1.0]) == ""


def build_ranks(*medians, hosts=1):
    return [
        RankPart(
            rank=rank,
            host=f"node{rank % hosts}",
            local_rank=rank,
            device="cpu",
            status="ok",
            time_ms=TimePart(
                n=3, min=median / 2, p50=median, p95=median * 2, p99=median, max=median, mean=median
            ),
            skew=median,
        )
        for rank, median in enumerate(medians)
    ]


def test_marks_a_slow_rank_and_draws_the_median():
    svg = draw_rank_bars(build_ranks(1.0, 1.1, 2.0, 1.0))
    assert len(attributes(svg, "rect", "bars")) == 3
    (slow,) = attributes(svg, "rect", "slow")
    others = attributes(svg, "rect", "bars")
    assert float(slow["height"]) == pytest.approx(2 * float(others[0]["height"]), rel=0.02)
    assert "median rank 1.00 ms" in svg
    assert "2: 2.00 ms (1.00 ms to 4.00 ms)" in svg


def test_does_not_mark_a_waiting_rank():
    waiting, slow = build_ranks(2.0, 2.0)
    svg = draw_rank_bars([waiting.model_copy(update={"skew": 1.0}), slow])
    assert len(attributes(svg, "rect", "slow")) == 1


def test_many_ranks_are_grouped_by_host():
    many = build_ranks(*[1.0] * (MAX_BARS * 2), 9.0, hosts=8)
    rank_bars = make_rank_bars(many)
    assert rank_bars.by_host
    assert len(rank_bars.bars) == 8
    assert rank_bars.bars[0].name == f"node0 ({MAX_BARS * 2})"
    svg = draw_rank_bars(many)
    assert "hosts, the slowest first" in svg
    assert "Times of 8 hosts" in svg


def test_ranks_without_times_do_not_group_bars_by_host():
    ranks = build_ranks(*[1.0] * (MAX_BARS + 1), hosts=8)
    timed = [*ranks[:-1], ranks[-1].model_copy(update={"time_ms": None})]
    svg = draw_rank_bars(timed)
    assert "hosts, the slowest first" not in svg
    assert f"Times of {MAX_BARS} ranks" in svg


def link_table(values, better="lower", ranks=4, host="h"):
    return LinkTable(
        name="latency_us",
        unit="us",
        better=better,
        labels={"bytes": 8},
        ranks=tuple(range(ranks)),
        hosts={rank: f"{host}{rank // 8}" for rank in range(ranks)},
        values=values,
    )


def count_squares(svg, level):
    return sum(path["d"].count("M") for path in attributes(svg, "path", f"heat h{level}"))


def all_pairs(build_ranks, slow=()):
    return {
        (a, b): 3.0 if (a, b) in slow else 1.0
        for a in range(build_ranks)
        for b in range(build_ranks)
        if a != b
    }


@pytest.mark.parametrize("better", ["lower", "higher"])
def test_slow_pairs_have_the_highest_level(better):
    slow = {(0, 3), (3, 0)}
    values = all_pairs(4, slow)
    if better == "higher":
        values = {pair: 1 / value for pair, value in values.items()}
    svg = draw_heat_map(link_table(values, better))
    assert (count_squares(svg, 0), count_squares(svg, LEVELS - 1)) == (10, 2)


def test_pair_measured_one_way_is_drawn_for_both():
    svg = draw_heat_map(link_table({(0, 1): 1.0, (0, 2): 1.0, (1, 2): 2.0}, ranks=3))
    assert (count_squares(svg, 0), count_squares(svg, LEVELS - 1)) == (4, 2)


def test_many_ranks_are_a_map_of_hosts():
    svg = draw_heat_map(link_table(all_pairs(80, {(0, 79)}), ranks=80))
    assert "the worst pair of ranks on each two hosts" in svg
    assert sum(count_squares(svg, level) for level in range(LEVELS)) == 100
    assert count_squares(svg, LEVELS - 1) == 2
    assert len(svg) < 20_000


def test_map_of_hosts_compares_pairs_within_a_host_with_each_other():
    values = {pair: 2.0 if pair[0] // 8 == pair[1] // 8 else 10.0 for pair in all_pairs(80)}
    values[0, 1] = 6.0
    svg = draw_heat_map(link_table(values, ranks=80))
    assert (count_squares(svg, 0), count_squares(svg, LEVELS - 1)) == (99, 1)


def test_map_of_hosts_without_known_hosts_is_empty():
    table = replace(link_table(all_pairs(80), ranks=80), hosts={})
    assert draw_heat_map(table) == ""


def line(name, *points, limit=None):
    return PlottedLine(
        name, [PlottedPoint(x, f"{x:g}", y, reference=limit and limit * y) for x, y in points]
    )


def test_axes_are_logarithmic_if_values_are_positive():
    svg = draw_lines("t", [line("a", (1.0, 1.0), (10.0, 10.0), (100.0, 100.0))], "n", "ms")
    positions = [(float(x), float(y)) for x, y in re.findall(r'cx="([\d.]+)" cy="([\d.]+)"', svg)]
    (first, middle, last) = positions
    assert middle[0] == pytest.approx((first[0] + last[0]) / 2, abs=0.2)
    assert middle[1] == pytest.approx((first[1] + last[1]) / 2, abs=0.2)


def test_values_of_zero_are_drawn_on_a_linear_axis():
    svg = draw_lines("t", [line("a", (0.0, 0.0), (5.0, 1.0), (10.0, 2.0))], "n", "ms")
    xs = [float(x) for x in re.findall(r'cx="([\d.]+)"', svg)]
    assert xs[1] == pytest.approx((xs[0] + xs[2]) / 2, abs=0.2)


def test_limit_is_dashed_in_the_color_of_its_line():
    svg = draw_lines(
        "t",
        [line("a", (1.0, 1.0), (2.0, 2.0)), line("b", (1.0, 3.0), (2.0, 4.0), limit=0.5)],
        "n",
        "ms",
    )
    assert attributes(svg, "polyline", "limit-line s1")
    assert not attributes(svg, "polyline", "limit-line s0")
    assert "dashed: the reference" in svg


def test_counts_lines_above_the_maximum():
    lines = [line(f"way={number}", (1.0, 1.0), (2.0, 2.0)) for number in range(MAX_LINES + 3)]
    svg = draw_lines("t", lines, "n", "ms")
    assert "and 3 more lines" in svg


def test_short_logarithmic_scale_has_ticks_at_1_2_and_5():
    assert choose_ticks(Scale(0.9, 12.0, log=True)) == [1.0, 2.0, 5.0, 10.0]
    assert choose_ticks(Scale(1.0, 1e9, log=True))[:2] == [1.0, 100.0]
