"""Bars of shares, drawn with and without colours."""

from __future__ import annotations

import pytest
from textual.app import App
from textual.containers import VerticalScroll

from spbench.tui.widgets.stacked_bars import Bar, StackedBars, assign_letters


class BarsApp(App):
    CSS = "StackedBars { height: auto; }"

    def __init__(self, bars):
        super().__init__()
        self.bars = bars

    def compose(self):
        with VerticalScroll():
            yield self.bars


def make_bars(names, *bars, **options):
    chart = StackedBars(**options)
    chart.update(names, [Bar(label, parts) for label, parts in bars])
    return chart


async def render_lines(chart, width=42):
    async with BarsApp(chart).run_test(size=(width, 20)) as pilot:
        await pilot.pause()
        return [chart.render_line(y).text.rstrip() for y in range(chart.size.height)]


NAMES = ("run", "send", "idle", "wait", "load", "store", "hollow")
ROWS = (
    ("all", (0.5, 0.25, 0, 0, 0, 0, 0.1)),
    ("rank 1", (0.1, 0, 0, 0, 0, 0, 0)),
    ("over", (3, 1, 0, 0, 0, 0, 0)),
)


async def test_parts_have_letters_and_large_parts_percentages():
    assert await render_lines(make_bars(NAMES, *ROWS), 48) == [
        "all     rrrrrrr 50 % rrrrrrrss 25 % sshhhh······",
        "rank 1  rrrr····································",
        "over    rrrrrrrrrrr 300 % rrrrrrrrrrrrs 100 % ss",
        "r run  s send  h hollow  · other",
    ]


async def test_legend_wraps_in_a_narrow_widget():
    chart = make_bars(NAMES, *ROWS[:1], ascii=True)
    assert await render_lines(chart, 20) == [
        "all  r 50 % rssshh..",
        "r run  s send",
        "h hollow  . other",
    ]


async def test_repeated_colour_is_hollow():
    chart = make_bars(NAMES, ROWS[0])
    async with BarsApp(chart).run_test(size=(48, 20)) as pilot:
        await pilot.pause()
        segments = list(chart.render_line(0))
        reverse = {segment.text.strip()[:1]: bool(segment.style.reverse) for segment in segments}
        colours = {segment.text.strip()[:1]: segment.style.color for segment in segments}
    assert reverse == {"a": False, "r": True, "s": True, "h": False, "·": False}
    assert colours["r"] == colours["h"] != colours["s"]


def test_letters_are_unique():
    assert assign_letters(("forward", "backward", "bubble", "forward")) == ("f", "b", "u", "o")
    assert assign_letters(("aa", "aa", "")) == ("a", "A", "B")


def test_rejects_bar_without_a_value_for_each_part():
    with pytest.raises(ValueError, match="2 parts"):
        make_bars(("a", "b"), ("row", (1.0,)))
