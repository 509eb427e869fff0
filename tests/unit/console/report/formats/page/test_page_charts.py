"""The drawings of a page say what was measured."""

import re
from itertools import pairwise

import pytest

from spbench.report.formats.page.charts.distribution import draw_histogram, draw_small_histogram
from spbench.report.formats.page.charts.frame import choose_ticks
from spbench.report.formats.page.charts.heat_map import LEVELS, draw_heat_map
from spbench.report.formats.page.charts.plots import (
    MOST_LINES,
    PlottedLine,
    PlottedPoint,
    draw_lines,
)
from spbench.report.formats.page.charts.rank_bars import MOST_BARS, draw_rank_bars, make_rank_bars
from spbench.report.links import LinkTable
from spbench.report.model import RankPart, TimePart
from spbench.report.scale import Scale


def attributes(drawn, element, class_):
    """The attributes of the elements of a class."""
    found = re.findall(rf'<{element} ([^>]*class="{class_}"[^>]*)>', drawn)
    return [dict(re.findall(r'([\w-]+)="([^"]*)"', each)) for each in found]


def heights(drawn):
    """The heights of a histogram's bars, from its path."""
    (bars,) = attributes(drawn, "path", "bars")
    return [float(y) for y in re.findall(r"V([\d.]+)H", bars["d"])]


def test_a_histograms_bars_are_as_high_as_their_bins_are_full():
    drawn = draw_histogram([1.0] * 6 + [2.0] * 3, "ms", 1.0, None)
    tall, low = heights(drawn)
    (axis,) = attributes(drawn, "line", "axis")
    floor = float(axis["y1"])
    assert (floor - tall) / (floor - low) == pytest.approx(2, abs=0.02)
    assert "median 1.00 ms<" in drawn
    assert "p95 2.00 ms<" in drawn


def test_a_limit_is_drawn_where_it_is_near():
    assert attributes(draw_histogram([1.0, 2.0, 3.0], "ms", 2.0, 0.9), "line", "limit")
    assert not attributes(draw_histogram([1.0, 2.0, 3.0], "ms", 2.0, 0.001), "line", "limit")


def labels_of(drawn):
    """The position and the text of each label above the bars of a histogram, by its first word."""
    pattern = r'<text x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]*(?:median|p95|reference|beyond)[^<]*)<'
    return [(float(x), float(y), text) for x, y, text in re.findall(pattern, drawn)]


def test_labels_of_close_marks_have_a_line_each_above_the_bars():
    drawn = draw_histogram([11.6, 11.7, 11.7, 11.8, 11.9], "us", 11.7, 11.71)
    labels = labels_of(drawn)
    assert sorted(text.split()[0] for _, _, text in labels) == ["median", "p95", "reference"]
    rows = sorted(y for _, y, _ in labels)
    assert all(below - above >= 14 for above, below in pairwise(rows))
    assert rows[-1] < min(heights(drawn)) - 14


@pytest.mark.parametrize(
    ("reference", "text"), [(0.001, "← reference 1.00 us"), (1000.0, "reference 1.00 s →")]
)
def test_a_reference_out_of_the_axis_is_named_at_its_edge(reference, text):
    assert text in [
        label for _, _, label in labels_of(draw_histogram([1.0, 2.0], "ms", 1.5, reference))
    ]


def test_a_p95_out_of_the_axis_has_no_line():
    drawn = draw_histogram([*[1.0 + at / 100 for at in range(20)], 500.0, 1000.0], "ms", 1.1, None)
    assert len(attributes(drawn, "line", "mark")) == 1
    assert any(text.startswith("p95 ") and text.endswith(" →") for _, _, text in labels_of(drawn))


def test_one_slow_sample_leaves_the_others_their_width_and_is_counted():
    drawn = draw_histogram([1.0 + at / 100 for at in range(50)] + [1000.0], "ms", 1.25, None)
    assert "1 beyond, up to 1.00 s" in drawn
    assert len(heights(drawn)) > 5


@pytest.mark.parametrize("samples", [[5.0, 5.0, 5.0], [0.0, 0.0], [-1.0, 1.0], [1e-300, 1e300]])
def test_odd_samples_are_drawn(samples):
    assert "nan" not in draw_histogram(samples, "ms", 1.0, 1.0)
    assert draw_small_histogram(samples).startswith("<svg")


def test_one_sample_has_no_shape():
    assert draw_small_histogram([1.0]) == ""


def ranks(*medians, hosts=1):
    return [
        RankPart(
            rank=at,
            host=f"node{at % hosts}",
            local_rank=at,
            device="cpu",
            status="ok",
            time_ms=TimePart(n=3, min=of / 2, p50=of, p95=of * 2, p99=of, max=of, mean=of),
            skew=of,
        )
        for at, of in enumerate(medians)
    ]


def test_a_slow_rank_is_marked_and_the_usual_time_is_drawn():
    drawn = draw_rank_bars(ranks(1.0, 1.1, 2.0, 1.0))
    assert len(attributes(drawn, "rect", "bars")) == 3
    (slow,) = attributes(drawn, "rect", "slow")
    others = attributes(drawn, "rect", "bars")
    assert float(slow["height"]) == pytest.approx(2 * float(others[0]["height"]), rel=0.02)
    assert "median rank 1.00 ms" in drawn
    assert "2: 2.00 ms (1.00 ms to 4.00 ms)" in drawn


def test_a_rank_that_waits_for_a_slow_one_is_not_marked():
    waiting, slow = ranks(2.0, 2.0)
    drawn = draw_rank_bars([waiting.model_copy(update={"skew": 1.0}), slow])
    assert len(attributes(drawn, "rect", "slow")) == 1


def test_very_many_ranks_are_hosts_by_their_slowest_rank():
    many = ranks(*[1.0] * (MOST_BARS * 2), 9.0, hosts=8)
    bars = make_rank_bars(many)
    assert len(bars) == 8
    assert bars[0].name == f"node0 ({MOST_BARS * 2})"
    assert "hosts, the slowest first" in draw_rank_bars(many)


def links(values, better="lower", ranks=4, host="h"):
    return LinkTable(
        name="latency_us",
        unit="us",
        better=better,
        labels={"bytes": 8},
        ranks=tuple(range(ranks)),
        hosts={rank: f"{host}{rank // 8}" for rank in range(ranks)},
        values=values,
    )


def squares(drawn, level):
    return sum(of["d"].count("M") for of in attributes(drawn, "path", f"heat h{level}"))


def all_pairs(ranks, slow=()):
    return {
        (a, b): 3.0 if (a, b) in slow else 1.0 for a in range(ranks) for b in range(ranks) if a != b
    }


@pytest.mark.parametrize("better", ["lower", "higher"])
def test_slow_pairs_are_the_deepest(better):
    slow = {(0, 3), (3, 0)}
    values = all_pairs(4, slow)
    if better == "higher":
        values = {pair: 1 / value for pair, value in values.items()}
    drawn = draw_heat_map(links(values, better))
    assert (squares(drawn, 0), squares(drawn, LEVELS - 1)) == (10, 2)


def test_what_was_measured_one_way_stands_for_both():
    drawn = draw_heat_map(links({(0, 1): 1.0, (0, 2): 1.0, (1, 2): 2.0}, ranks=3))
    assert (squares(drawn, 0), squares(drawn, LEVELS - 1)) == (4, 2)


def test_very_many_ranks_are_a_map_of_hosts():
    drawn = draw_heat_map(links(all_pairs(80, {(0, 79)}), ranks=80))
    assert "the worst pair of ranks on each two hosts" in drawn
    assert sum(squares(drawn, level) for level in range(LEVELS)) == 100
    assert squares(drawn, LEVELS - 1) == 2
    assert len(drawn) < 20_000


def line(name, *points, limit=None):
    return PlottedLine(
        name, [PlottedPoint(x, f"{x:g}", y, limit=limit and limit * y) for x, y in points]
    )


def test_axes_are_logarithmic_where_values_allow_it():
    drawn = draw_lines("t", [line("a", (1.0, 1.0), (10.0, 10.0), (100.0, 100.0))], "n", "ms")
    places = [(float(x), float(y)) for x, y in re.findall(r'cx="([\d.]+)" cy="([\d.]+)"', drawn)]
    (first, middle, last) = places
    assert middle[0] == pytest.approx((first[0] + last[0]) / 2, abs=0.2)
    assert middle[1] == pytest.approx((first[1] + last[1]) / 2, abs=0.2)


def test_values_of_zero_are_drawn_on_a_linear_axis():
    drawn = draw_lines("t", [line("a", (0.0, 0.0), (5.0, 1.0), (10.0, 2.0))], "n", "ms")
    xs = [float(x) for x in re.findall(r'cx="([\d.]+)"', drawn)]
    assert xs[1] == pytest.approx((xs[0] + xs[2]) / 2, abs=0.2)


def test_a_limit_is_dashed_in_the_colour_of_its_line():
    drawn = draw_lines(
        "t",
        [line("a", (1.0, 1.0), (2.0, 2.0)), line("b", (1.0, 3.0), (2.0, 4.0), limit=0.5)],
        "n",
        "ms",
    )
    assert attributes(drawn, "polyline", "limit-line s1")
    assert not attributes(drawn, "polyline", "limit-line s0")
    assert "dashed: the reference" in drawn


def test_lines_beyond_those_that_can_be_told_apart_are_counted():
    lines = [line(f"way={at}", (1.0, 1.0), (2.0, 2.0)) for at in range(MOST_LINES + 3)]
    drawn = draw_lines("t", lines, "n", "ms")
    assert "and 3 more lines" in drawn


def test_a_short_logarithmic_scale_has_words_at_one_two_and_five():
    assert choose_ticks(Scale(0.9, 12.0, log=True)) == [1.0, 2.0, 5.0, 10.0]
    assert choose_ticks(Scale(1.0, 1e9, log=True))[:2] == [1.0, 100.0]
