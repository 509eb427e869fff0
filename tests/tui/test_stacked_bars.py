"""Bars of shares, as they are drawn with and without colours."""

from __future__ import annotations

import pytest
from textual.app import App
from textual.containers import VerticalScroll

from spbench.tui.widgets.stacked_bars import Bar, StackedBars, assign_letters


class Shown(App):
    CSS = "StackedBars { height: auto; }"

    def __init__(self, bars):
        super().__init__()
        self.bars = bars

    def compose(self):
        with VerticalScroll():
            yield self.bars


def made(names, *bars, **words):
    chart = StackedBars(**words)
    chart.update(names, [Bar(label, parts) for label, parts in bars])
    return chart


async def lines(chart, width=42):
    async with Shown(chart).run_test(size=(width, 20)) as pilot:
        await pilot.pause()
        return [chart.render_line(y).text.rstrip() for y in range(chart.size.height)]


NAMES = ("run", "send", "idle", "wait", "load", "store", "hollow")
ROWS = (
    ("all", (0.5, 0.25, 0, 0, 0, 0, 0.1)),
    ("rank 1", (0.1, 0, 0, 0, 0, 0, 0)),
    ("over", (3, 1, 0, 0, 0, 0, 0)),
)


async def test_parts_are_told_apart_by_letters_and_large_ones_by_figures():
    assert await lines(made(NAMES, *ROWS), 48) == [
        "all     rrrrrrr 50 % rrrrrrrss 25 % sshhhh······",
        "rank 1  rrrr····································",
        "over    rrrrrrrrrrr 300 % rrrrrrrrrrrrs 100 % ss",
        "r run  s send  h hollow  · other",
    ]


async def test_where_there_is_little_room_the_legend_takes_more_lines():
    chart = made(NAMES, *ROWS[:1], ascii=True)
    assert await lines(chart, 20) == ["all  r 50 % rssshh..", "r run  s send", "h hollow  . other"]


async def test_a_colour_that_comes_again_is_hollow():
    chart = made(NAMES, ROWS[0])
    async with Shown(chart).run_test(size=(48, 20)) as pilot:
        await pilot.pause()
        drawn = list(chart.render_line(0))
        reverse = {piece.text.strip()[:1]: bool(piece.style.reverse) for piece in drawn}
        colours = {piece.text.strip()[:1]: piece.style.color for piece in drawn}
    assert reverse == {"a": False, "r": True, "s": True, "h": False, "·": False}
    assert colours["r"] == colours["h"] != colours["s"]


def test_letters_are_each_ones_own():
    assert assign_letters(("forward", "backward", "bubble", "forward")) == ("f", "b", "u", "o")
    assert assign_letters(("aa", "aa", "")) == ("a", "A", "B")


def test_a_bar_has_a_figure_for_each_part():
    with pytest.raises(ValueError, match="2 parts"):
        made(("a", "b"), ("row", (1.0,)))
