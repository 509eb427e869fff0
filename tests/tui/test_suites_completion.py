"""Completion of keys and values in the editor of suites."""

from support.tui.app_driver import read_screen, wait_until
from support.tui.suites_page import (
    SIZE,
    SUITE,
    choose,
    get_editor,
    open_suite,
    wait_for_cases,
)


async def test_inserts_the_chosen_key_and_value_at_the_cursor(suite):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_cases(pilot)
        editor = get_editor(app)
        editor.focus()
        editor.move_cursor(editor.document.end)
        await pilot.press(*"  - ben", "ctrl+space")
        await wait_until(pilot, lambda: "Keys of a case" in read_screen(app))
        await choose(pilot, "")
        await wait_until(pilot, lambda: editor.text == f"{SUITE}  - benchmark: ")
        await pilot.press("ctrl+space")
        await wait_until(pilot, lambda: "Values of benchmark" in read_screen(app))
        await choose(pilot, "barrier")
        await wait_until(pilot, lambda: editor.text == f"{SUITE}  - benchmark: link.barrier")
        assert editor.cursor_location == editor.document.end


async def test_lists_names_that_start_with_the_typed_word_first(suite):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_cases(pilot)
        editor = get_editor(app)
        editor.focus()
        editor.move_cursor(editor.document.end)
        await pilot.press(*"  - benchmark: link.pingpong", "enter", *"params:", "enter")
        await pilot.press(*"iteration", "ctrl+space")
        await wait_until(pilot, lambda: "Keys of params" in read_screen(app))
        names = [choice.name for choice in app.screen._shown]
        assert names[0] == "iterations"
        assert "warmup" in names, "its help names the word"
        await pilot.press("enter")
        await wait_until(pilot, lambda: editor.text.endswith("\n      iterations: "))
