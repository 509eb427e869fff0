"""The cases of a suite: filtered, marked, and those that are marked run."""

import pytest

from support.tui.driving import SIZES, shown, until
from support.tui.suites_page import AT_FIRST, editor, ids, opened, ready, type_over


def title(app):
    return str(app.screen.query_one("#cases-frame").border_title)


@pytest.mark.parametrize("size", SIZES)
async def test_a_filter_shows_the_cases_that_have_its_words(suite, size):
    app = opened(suite)
    async with app.run_test(size=size) as pilot:
        await ready(pilot)
        await pilot.press("slash", *"pingpong")
        await until(pilot, lambda: title(app) == "2 of 3 cases")
        await pilot.press("enter")
        kept = ["second[iterations=5]", "second[iterations=10]"]
        assert list(app.screen.query_one("#cases").keys_shown) == kept
        await pilot.press("escape")
        await until(pilot, lambda: title(app) == "3 cases")
        await pilot.press("slash", *"method=vertical")
        await until(pilot, lambda: title(app) == "1 of 3 cases")


async def test_marked_cases_are_run_and_without_marks_all(suite):
    app = opened(suite)
    async with app.run_test(size=(120, 36)) as pilot:
        await ready(pilot)
        await pilot.press("space", "down", "space")
        await until(pilot, lambda: title(app) == "3 cases, 2 marked")
        assert shown(app).count("●") == 2
        await pilot.press("f5")
        await until(pilot, lambda: len(app.started) == 1)
        both = ("--case", "first", "--case", "second[iterations=10]")
        assert app.started == [(str(suite), *both)]
        await pilot.press("a")
        await until(pilot, lambda: title(app) == "3 cases, 3 marked")
        await pilot.press("a")
        await until(pilot, lambda: title(app) == "3 cases")
        await pilot.press("f5")
        await until(pilot, lambda: len(app.started) == 2)
        assert app.started[1] == (str(suite),)


async def test_all_that_are_shown_are_marked(suite):
    app = opened(suite)
    async with app.run_test(size=(120, 36)) as pilot:
        await ready(pilot)
        await pilot.press("slash", *"pingpong", "enter", "a", "escape")
        await until(pilot, lambda: title(app) == "3 cases, 2 marked")


async def test_a_mark_stays_with_its_case_while_the_text_changes(suite):
    app = opened(suite)
    async with app.run_test(size=(120, 36)) as pilot:
        await ready(pilot)
        await pilot.press("space", "down", "space")
        await until(pilot, lambda: title(app) == "3 cases, 2 marked")
        await type_over(pilot, AT_FIRST, "  - name: renamed")
        await until(pilot, lambda: "renamed" in ids(app))
        assert title(app) == "3 cases, 1 marked"
        editor(app).undo()
        editor(app).undo()
        await until(pilot, lambda: title(app) == "3 cases, 2 marked")
