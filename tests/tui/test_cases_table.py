"""The cases of a suite: filter, marks, and runs of marked cases."""

import pytest

from spbench.tui.suites.case_rows import COLUMNS
from spbench.tui.widgets.table_columns import lay_out
from spbench_core.catalog import BENCHMARKS
from support.tui.app_driver import SIZES, read_screen, wait_until
from support.tui.suites_page import (
    FIRST_CASE_LINE,
    get_editor,
    list_case_ids,
    open_suite,
    replace_line,
    wait_for_cases,
)


def read_title(app):
    return str(app.screen.query_one("#cases-frame").border_subtitle)


@pytest.mark.parametrize("size", SIZES)
async def test_filter_shows_matching_cases(suite, size):
    app = open_suite(suite)
    async with app.run_test(size=size) as pilot:
        await wait_for_cases(pilot)
        await pilot.press("slash", *"pingpong")
        await wait_until(pilot, lambda: read_title(app) == "2 of 3 cases")
        await pilot.press("enter")
        expected = ["second[iterations=5]", "second[iterations=10]"]
        assert list(app.screen.query_one("#cases").matching_keys) == expected
        await pilot.press("escape")
        await wait_until(pilot, lambda: read_title(app) == "3 cases")
        await pilot.press("slash", *"method=vertical")
        await wait_until(pilot, lambda: read_title(app) == "1 of 3 cases")


async def test_runs_marked_cases_or_all(suite):
    app = open_suite(suite)
    async with app.run_test(size=(120, 36)) as pilot:
        await wait_for_cases(pilot)
        await pilot.press("space", "down", "space")
        await wait_until(pilot, lambda: read_title(app) == "3 cases, 2 marked")
        assert read_screen(app).count("●") == 2
        await pilot.press("f5")
        await wait_until(pilot, lambda: len(app.started) == 1)
        marked = ("--case", "first", "--case", "second[iterations=10]")
        assert app.started == [(str(suite), *marked)]
        await pilot.press("a")
        await wait_until(pilot, lambda: read_title(app) == "3 cases, 3 marked")
        await pilot.press("a")
        await wait_until(pilot, lambda: read_title(app) == "3 cases")
        await pilot.press("f5")
        await wait_until(pilot, lambda: len(app.started) == 2)
        assert app.started[1] == (str(suite),)


async def test_title_says_that_a_run_takes_the_marked_cases_until_escape(suite):
    app = open_suite(suite)
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_for_cases(pilot)
        await pilot.press("space")
        title = "Cases: 1 of 3 marked, F5 runs these, Escape unmarks"
        await wait_until(pilot, lambda: title in read_screen(app))
        await pilot.press("slash", *"pingpong", "enter", "escape")
        assert title in read_screen(app)
        await pilot.press("escape")
        await wait_until(pilot, lambda: "marked" not in read_screen(app))
        await pilot.press("f5")
        await wait_until(pilot, lambda: len(app.started) == 1)
        assert app.started[0] == (str(suite),)


async def test_marks_all_shown_cases(suite):
    app = open_suite(suite)
    async with app.run_test(size=(120, 36)) as pilot:
        await wait_for_cases(pilot)
        await pilot.press("slash", *"pingpong", "enter", "a", "escape")
        await wait_until(pilot, lambda: read_title(app) == "3 cases, 2 marked")


async def test_mark_stays_with_its_case_while_the_text_changes(suite):
    app = open_suite(suite)
    async with app.run_test(size=(120, 36)) as pilot:
        await wait_for_cases(pilot)
        await pilot.press("space", "down", "space")
        await wait_until(pilot, lambda: read_title(app) == "3 cases, 2 marked")
        await replace_line(pilot, FIRST_CASE_LINE, "  - name: renamed")
        await wait_until(pilot, lambda: "renamed" in list_case_ids(app))
        assert read_title(app) == "3 cases, 1 marked"
        get_editor(app).undo()
        get_editor(app).undo()
        await wait_until(pilot, lambda: read_title(app) == "3 cases, 2 marked")


def test_columns_show_each_benchmark_in_full_next_to_the_text():
    names = [name for name, entry in BENCHMARKS.items() if not entry.plugin]
    column = next(column for column in COLUMNS if column.key == "benchmark")
    assert max(map(len, names)) <= column.width
    # The width of the table on a screen of 160 columns, next to its scroll bar.
    shown = [placed.column.key for placed in lay_out(COLUMNS, 58).placed]
    assert shown == ["case", "benchmark", "ranks", "estimate"]


def test_benchmark_gives_way_to_ids_that_would_be_cut():
    widths = [42, 15, 1, 6, 2]
    layout = lay_out(COLUMNS, 62, cell_widths=widths)
    shown = {placed.column.key: placed.width for placed in layout.placed}
    assert list(shown) == ["case", "ranks", "estimate"]
    assert shown["case"] >= widths[0]


async def test_footer_counts_the_marked_cases_that_f5_and_f6_run(suite):
    app = open_suite(suite)
    async with app.run_test(size=(200, 60)) as pilot:
        await wait_for_cases(pilot)
        for text in ("Space Mark", "F5 Run  ", "F6 Run case"):
            await wait_until(pilot, lambda text=text: text in read_screen(app))
        await pilot.press("space")
        await wait_until(pilot, lambda: "F5 Run 1 case  " in read_screen(app))
        await pilot.press("space")
        await wait_until(pilot, lambda: "F5 Run 2 cases" in read_screen(app))
        assert "Run case" not in read_screen(app)
        for number, key in enumerate(("f5", "f6"), 1):
            await pilot.press(key)
            await wait_until(pilot, lambda number=number: len(app.started) == number)
        marked = ("--case", "first", "--case", "second[iterations=5]")
        assert [run[1:] for run in app.started] == [marked, marked]
