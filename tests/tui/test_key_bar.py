"""The keys at the bottom: those of the focused widget that have an effect."""

from textual.widgets._footer import FooterKey

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
        await pilot.press("enter")
        await wait_until(pilot, lambda: app.focused is get_editor(app))
        await pilot.press("#")
        await wait_until(pilot, lambda: "Undo" in read_key_bar(app))
        assert "Redo" not in read_key_bar(app)
        app.screen.query_one("#cases").focus()
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


async def test_keys_are_composed_again_only_if_they_change(suite):
    app = open_suite(suite)
    async with app.run_test(size=(200, 60)) as pilot:
        await wait_for_cases(pilot)
        await wait_until(pilot, lambda: "Open" in read_key_bar(app))
        await pilot.pause()
        keys = list(app.screen.query(FooterKey))
        app.screen.refresh_bindings()
        await pilot.pause()
        assert list(app.screen.query(FooterKey)) == keys
        await pilot.press("enter")
        await wait_until(pilot, lambda: app.focused is get_editor(app))
        await wait_until(pilot, lambda: list(app.screen.query(FooterKey)) != keys)
