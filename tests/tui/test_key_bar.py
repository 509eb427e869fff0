"""The keys at the bottom: those of the focused widget that have an effect."""

import pytest

from spbench.record.runs.history import list_summaries
from spbench.tui.pages import PAGES
from spbench.tui.widgets.keys import GENERAL_IDS, BarKey, KeyBar, fit_keys
from support import sample_events as make
from support.tui.app_driver import make_console, read_screen, wait_until
from support.tui.suites_page import get_editor, open_suite, wait_for_cases


def read_key_bar(app):
    return (read_screen(app).splitlines() or [""])[-1]


async def test_undo_and_redo_appear_while_they_have_an_effect(suite):
    app = open_suite(suite)
    async with app.run_test(size=(200, 60)) as pilot:
        await wait_for_cases(pilot)
        await wait_until(pilot, lambda: "Open" in read_key_bar(app))
        assert "Undo" not in read_key_bar(app)
        text = get_editor(app).text
        await pilot.press("e")
        await wait_until(pilot, lambda: app.focused is get_editor(app))
        await pilot.press("#")
        await wait_until(pilot, lambda: "Undo" in read_key_bar(app))
        assert "Redo" not in read_key_bar(app)
        await pilot.press("ctrl+z")
        await wait_until(pilot, lambda: get_editor(app).text == text)
        await wait_until(
            pilot, lambda: "Redo" in read_key_bar(app) and "Undo" not in read_key_bar(app)
        )
        await pilot.press("ctrl+y")
        await wait_until(pilot, lambda: get_editor(app).text != text)


async def test_escape_appears_while_a_filter_is_open(tmp_path):
    app = make_console(tmp_path, page="results")
    async with app.run_test(size=(200, 60)) as pilot:
        await wait_until(pilot, lambda: "Filter" in read_key_bar(app))
        assert "No filter" not in read_key_bar(app)
        await pilot.press("slash")
        await wait_until(pilot, lambda: "No filter" in read_key_bar(app))
        await pilot.press("escape")
        await wait_until(pilot, lambda: "No filter" not in read_key_bar(app))


def find_middle(bar, title):
    """Return the position of a key in the bar, for the mouse."""
    columns = [x for x in range(bar.size.width) if (key := bar.find_key(x)) and key.title == title]
    return columns[len(columns) // 2], 0


async def test_keys_are_drawn_where_they_react(suite):
    app = open_suite(suite)
    async with app.run_test(size=(120, 40)) as pilot:
        await wait_for_cases(pilot)
        await wait_until(pilot, lambda: "Open" in read_key_bar(app))
        bar = app.screen.query_one(KeyBar)
        line = read_key_bar(app).ljust(120)
        for key in bar.shown:
            columns = [x for x in range(120) if bar.find_key(x) is key]
            text = line[columns[0] : columns[-1] + 1]
            assert text == f" {key.display} {key.title} "


async def test_mouse_highlights_describes_and_presses_keys(suite):
    app = open_suite(suite)
    async with app.run_test(size=(120, 40)) as pilot:
        await wait_for_cases(pilot)
        await wait_until(pilot, lambda: "Help" in read_key_bar(app))
        bar = app.screen.query_one(KeyBar)
        await pilot.hover(bar, offset=find_middle(bar, "Help"))
        tooltip = next(key.tooltip for key in bar.shown if key.title == "Help")
        await wait_until(pilot, lambda: bar.tooltip == tooltip)
        await pilot.hover(app.screen.query_one("#files"))
        await wait_until(pilot, lambda: bar.tooltip is None)
        page = app.screen
        await pilot.mouse_down(bar, offset=find_middle(bar, "Help"))
        await wait_until(pilot, lambda: app.screen is not page)


def make_keys(*ids):
    return [BarKey("x", "x", id, id, id, "") for id in ids]


def list_ids(keys):
    return [key.id for key in keys]


def test_narrow_bar_leaves_out_whole_keys_and_keeps_help():
    keys = make_keys("a", "b", "c", "d", "e", "f", *GENERAL_IDS)
    width = sum(key.width for key in keys)
    assert fit_keys(keys, width) == keys
    assert list_ids(fit_keys(keys, width - 1)) == ["a", "b", "c", "d", "e", *GENERAL_IDS]
    for available in range(width):
        fitting_keys = fit_keys(keys, available)
        assert fitting_keys[-1].id == "app.help"
        assert len(fitting_keys) == 1 or sum(key.width for key in fitting_keys) <= available


def test_first_keys_of_the_page_are_more_important_than_the_palette_but_not_than_quit():
    keys = make_keys("a", "b", "c", "d", "e", *GENERAL_IDS)
    general = ["app.quit", "app.cheat-sheet", "app.help"]
    width = sum(key.width for key in make_keys("a", "b", "c", "d", *general))
    assert list_ids(fit_keys(keys, width)) == ["a", "b", "c", "d", *general]
    assert list_ids(fit_keys(keys, width - 1)) == ["a", "b", "c", *general]


@pytest.mark.parametrize("page", [entry.name for entry in PAGES])
@pytest.mark.parametrize("width", [60, 80, 120])
async def test_keys_are_not_cut_at_the_edge(tmp_path, home, page, width):
    app = make_console(tmp_path, page=page, home=home)
    async with app.run_test(size=(width, 24)) as pilot:
        await wait_until(pilot, lambda: "F1 Help" in read_key_bar(app))
        keys = app.screen.query_one(KeyBar).shown
        assert sum(key.width for key in keys) <= width
        assert all(f" {key.display} {key.title}" in read_key_bar(app) for key in keys)
        await pilot.resize_terminal(200, 24)
        await wait_until(pilot, lambda: "^Q Quit" in read_key_bar(app))


async def test_run_page_shows_the_keys_of_its_status(tmp_path):
    failed_case = make.case_judged("a", "failed", "check sum failed")
    started = make.make_started_run(make.describe_case("a", 1))
    folder = make.record_run(tmp_path / "home", [*started, failed_case, make.run_end("failed", 1)])
    app = make_console(tmp_path, page="run")
    async with app.run_test(size=(200, 60)) as pilot:
        await wait_until(pilot, lambda: "F1 Help" in read_key_bar(app))
        assert "Cancel" not in read_key_bar(app)
        app.context.watch_run(folder)
        await wait_until(pilot, lambda: "Slowest" in read_key_bar(app))
        await wait_until(pilot, lambda: app.context.feed.ended)
        await wait_until(pilot, lambda: "Cancel" not in read_key_bar(app))
        await wait_until(pilot, lambda: "F Run failed" in read_key_bar(app))
        assert "Follow" not in read_key_bar(app)


@pytest.mark.parametrize("page", ["results", "run"])
async def test_key_of_the_next_view_fits_a_small_terminal_after_a_failure(tmp_path, home, page):
    app = make_console(tmp_path, page=page, home=home)
    async with app.run_test(size=(80, 24)) as pilot:
        app.context.watch_run(list_summaries(home)[-1].folder, show=False)
        await wait_until(pilot, lambda: "F Run failed" in read_key_bar(app))
        assert " v " in read_key_bar(app)
        assert "^Q Quit" in read_key_bar(app)
        assert "? Keys" in read_key_bar(app)


async def test_suites_page_shows_the_keys_of_the_chosen_case(suite):
    app = open_suite(suite)
    async with app.run_test(size=(200, 60)) as pilot:
        await wait_for_cases(pilot)
        for key in ("F3 Edit case", "F8 Delete case", "F7 Plant a fault", "L Launcher"):
            await wait_until(pilot, lambda key=key: key in read_key_bar(app))
    app = make_console(suite.parent, page="suites")
    async with app.run_test(size=(200, 60)) as pilot:
        await wait_until(pilot, lambda: "New suite" in read_key_bar(app))
        assert "Edit case" not in read_key_bar(app)


async def test_planting_a_fault_is_in_the_key_bar_of_cases_and_text(suite):
    app = open_suite(suite)
    async with app.run_test(size=(120, 40)) as pilot:
        await wait_for_cases(pilot)
        await wait_until(pilot, lambda: "F7 Plant a fault" in read_key_bar(app))
        await pilot.press("e")
        await wait_until(pilot, lambda: "Esc" in read_key_bar(app))
        assert "F7 Plant a fault" in read_key_bar(app)


async def test_results_page_compares_if_there_are_two_runs(tmp_path, home):
    app = make_console(tmp_path, page="results", home=home)
    async with app.run_test(size=(200, 60)) as pilot:
        await wait_until(pilot, lambda: "c Compare" in read_key_bar(app))
        await pilot.press("end")
        await wait_until(pilot, lambda: "Compare" not in read_key_bar(app))
        assert "Export" in read_key_bar(app)


async def test_keys_that_lose_their_effect_behind_a_dialog_go_and_return_when_it_closes(
    tmp_path, home
):
    app = make_console(tmp_path, page="results", home=home)
    async with app.run_test(size=(200, 60)) as pilot:
        await wait_until(pilot, lambda: "c Compare" in read_key_bar(app))
        page = app.screen
        await pilot.press("t")
        await wait_until(pilot, lambda: app.screen is not page)
        offers = page.offers
        page.offers = lambda action: action != "compare"
        page.refresh_bindings()
        await wait_until(pilot, lambda: "c Compare" not in read_key_bar(app))
        assert "e Export" in read_key_bar(app)
        page.offers = offers
        await pilot.press("escape")
        await wait_until(pilot, lambda: app.screen is page)
        await wait_until(pilot, lambda: "c Compare" in read_key_bar(app))


async def test_keys_fit_after_a_resize_behind_a_dialog(tmp_path, home):
    app = make_console(tmp_path, page="results", home=home)
    async with app.run_test(size=(120, 40)) as pilot:
        await wait_until(pilot, lambda: "c Compare" in read_key_bar(app))
        page = app.screen
        await pilot.press("colon")
        await wait_until(pilot, lambda: app.screen is not page)
        await pilot.resize_terminal(80, 24)
        bar = page.query_one(KeyBar)
        await wait_until(pilot, lambda: bar.size.width == 80)
        await wait_until(
            pilot,
            lambda: sum(key.width for key in bar.shown) <= 80 and bar.shown[-1].title == "Help",
        )
