"""Bars of shares, drawn with and without colours."""

from __future__ import annotations

import pytest
from textual.app import App
from textual.containers import VerticalScroll

from spbench.tui.widgets.stacked_bars import Bar, StackedBars


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


async def test_parts_have_patterns_without_colours(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    assert await render_lines(make_bars(NAMES, *ROWS), 48) == [
        "all     ▒▒▒▒▒▒▒ 50 % ▒▒▒▒▒▒▒░░ 25 % ░░┼┼┼┼······",
        "rank 1  ▒▒▒▒··············· 90 % ···············",
        "over    ▒▒▒▒▒▒▒▒▒▒▒ 300 % ▒▒▒▒▒▒▒▒▒▒▒▒░ 100 % ░░",
        "▒ run  ░ send  ┼ hollow  · other",
    ]


async def test_remainder_has_its_text_instead_of_a_percentage():
    chart = StackedBars(ascii=True)
    chart.update(("used",), [Bar("a", [0.1], "9 GB free"), Bar("b", [0.1], "")], "free")
    lines = await render_lines(chart, 33)
    assert "9 GB free" in lines[0]
    assert "%" not in "".join(lines[:2])


async def test_legend_wraps_in_a_narrow_widget():
    chart = make_bars(NAMES, *ROWS[:1], ascii=True)
    assert await render_lines(chart, 20) == [
        "all  # 50 % #===**..",
        "# run  = send",
        "* hollow  . other",
    ]


async def test_parts_are_blocks_of_the_colour_in_the_legend():
    chart = make_bars(NAMES, ROWS[0])
    async with BarsApp(chart).run_test(size=(48, 20)) as pilot:
        await pilot.pause()
        _, block, *_ = chart.render_line(0)
        mark, name, *_ = chart.render_line(1)
    assert block.text.strip() == "50 %"
    assert block.style.reverse
    assert (mark.text, name.text.strip()) == ("■", "run")
    assert mark.style.color == block.style.color
    assert not mark.style.reverse


async def test_repeated_colour_is_hollow():
    chart = make_bars(NAMES, ROWS[0])
    async with BarsApp(chart).run_test(size=(48, 20)) as pilot:
        await pilot.pause()
        segments = list(chart.render_line(0))
    _, run, send, hollow, remainder = segments
    assert [bool(segment.style.reverse) for segment in (run, send, hollow, remainder)] == [
        *(True, True, False, False)
    ]
    assert set(hollow.text) == {"┼"}
    assert run.style.color == hollow.style.color != send.style.color


def test_rejects_bar_without_a_value_for_each_part():
    with pytest.raises(ValueError, match="2 parts"):
        make_bars(("a", "b"), ("row", (1.0,)))
