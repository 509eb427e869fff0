"""The look that the panes of all pages share."""

from __future__ import annotations

import re

import pytest
from textual.app import App

from spbench.tui.pages import PAGES
from spbench.tui.panes import Pane
from support.tui.app_driver import make_console, read_screen, wait_until
from support.tui.recorded_pages import make_page_console, wait_for_page

SMALL = (80, 24)
MEDIUM = (120, 40)


def find_style(app, text):
    """Return the style of the segment with a text."""
    strips = app.screen._compositor.render_strips()
    return next(part.style for strip in strips for part in strip if text in part.text)


class PaneApp(App):
    def compose(self):
        yield Pane("Iterations of halo: slowest rank", id="pane")


@pytest.mark.parametrize(
    ("width", "title"),
    [
        (64, "Iterations of halo: slowest rank  2 of 5, v: logs"),
        (50, "Iterations of halo: slowest rank  2 of 5, v"),
        (40, "Iterations of halo: slowest rank"),
    ],
)
async def test_hint_gives_way_to_the_title_of_its_pane(width, title):
    app = PaneApp()
    async with app.run_test(size=(width, 9)) as pilot:
        pane = app.query_one(Pane)
        await wait_until(pilot, lambda: pane.outer_size.width == width)
        pane.set_hint("2 of 5, v: logs")
        assert str(pane.border_title) == title


async def test_each_pane_has_a_title_in_sentence_case(recorded_folder):
    suite = recorded_folder / "suites" / "halo.yaml"
    app = make_console(recorded_folder, page="suites", suite=suite)
    async with app.run_test(size=MEDIUM) as pilot:
        await wait_until(pilot, lambda: "halo.exchange" in read_screen(app))
        for digit, entry in enumerate(PAGES, 1):
            await pilot.press(str(digit))
            await wait_until(pilot, lambda name=entry.name: app.current_mode == name)
            await pilot.pause(0.2)
            # The start page, which is hidden, describes no file.
            panes = app.screen.query(".pane").exclude("StartPane .pane")
            titles = [str(pane.border_title or "") for pane in panes]
            assert titles
            assert all(title[:1].isupper() or title == suite.name for title in titles), titles


@pytest.mark.parametrize(("size", "is_separated"), [(SMALL, True), (MEDIUM, False)])
async def test_headings_separate_panes_without_borders(recorded_folder, size, is_separated):
    app = make_page_console(recorded_folder, "run", "spbench-dark")
    async with app.run_test(size=size) as pilot:
        await wait_for_page(pilot, "run")
        # The cursor moves to the worst problem when the run has ended.
        await wait_until(pilot, lambda: re.search("▸ ! fault found +damaged", read_screen(app)))
        # The row of the cursor is drawn after its sign.
        await wait_until(
            pilot,
            lambda: find_style(app, "28.6 us").bgcolor != find_style(app, "exchange[").bgcolor,
        )
        heading = find_style(app, "efficiency")
        cursor_free = find_style(app, "exchange[")
        assert (heading.bgcolor != cursor_free.bgcolor) == is_separated
