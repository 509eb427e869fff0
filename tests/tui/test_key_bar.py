"""The keys at the bottom: those of what has the focus, as long as they do something."""

from support.tui.driving import console, shown, until
from support.tui.suites_page import editor, opened, ready


def bar(app):
    return (shown(app).splitlines() or [""])[-1]


async def test_undo_and_redo_are_shown_while_they_do_something_and_work_in_the_table(suite):
    app = opened(suite)
    async with app.run_test(size=(200, 60)) as pilot:
        await ready(pilot)
        await until(pilot, lambda: "Open" in bar(app))
        assert "Undo" not in bar(app)
        text = editor(app).text
        await pilot.press("enter")
        await until(pilot, lambda: app.focused is editor(app))
        await pilot.press("#")
        await until(pilot, lambda: "Undo" in bar(app))
        assert "Redo" not in bar(app)
        app.screen.query_one("#cases").focus()
        await pilot.press("ctrl+z")
        await until(pilot, lambda: editor(app).text == text)
        await until(pilot, lambda: "Redo" in bar(app) and "Undo" not in bar(app))
        await pilot.press("ctrl+y")
        await until(pilot, lambda: editor(app).text != text)


async def test_escape_is_shown_while_there_is_a_filter_to_leave(tmp_path):
    app = console(tmp_path, page="results")
    async with app.run_test(size=(200, 60)) as pilot:
        await until(pilot, lambda: "Filter" in bar(app))
        assert "No filter" not in bar(app)
        await pilot.press("slash")
        await until(pilot, lambda: "No filter" in bar(app))
        await pilot.press("escape")
        await until(pilot, lambda: "No filter" not in bar(app))
