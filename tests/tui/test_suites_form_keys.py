"""Keys of the form and of dialogs: nothing typed is lost unasked, help and lists are there."""

import pytest
from textual.widgets import Button, Input
from textual.widgets._toast import Toast

from spbench.tui.chooser import Chooser
from spbench.tui.dialogs import AskLine, Confirm
from spbench.tui.help_and_palette import HelpScreen
from spbench.tui.suites.form.case_form import CaseForm
from spbench.tui.suites.form.field_row import ExpectRow
from spbench.tui.suites.page import SuitesPage
from support.tui.driving import SIZES, shown, until
from support.tui.suites_page import (
    SIZE,
    SUITE,
    choose,
    editor,
    fill,
    first_in_form,
    in_form,
    opened,
    ready,
    to_line,
)


async def on(pilot, screen):
    await until(pilot, lambda: isinstance(pilot.app.screen, screen))


@pytest.mark.parametrize("size", SIZES)
async def test_escape_leaves_an_untouched_form_at_once_and_asks_for_another(suite, size):
    app = opened(suite)
    async with app.run_test(size=size) as pilot:
        await first_in_form(pilot)
        await pilot.press("escape")
        await on(pilot, SuitesPage)
        form = await first_in_form(pilot)
        row = await fill(pilot, "image_size", "128")
        await pilot.press("escape")
        await on(pilot, Confirm)
        assert "Discard what was typed" in shown(app)
        await pilot.press("n")
        await until(pilot, lambda: app.screen is form)
        assert row.text == "128"
        await pilot.press("escape")
        await on(pilot, Confirm)
        await pilot.press("y")
        await on(pilot, SuitesPage)
        assert editor(app).text == SUITE


@pytest.mark.long
async def test_the_leave_button_asks_as_well(suite):
    app = opened(suite)
    async with app.run_test(size=SIZE) as pilot:
        await first_in_form(pilot)
        await fill(pilot, "image_size", "128")
        await pilot.click("#leave")
        await on(pilot, Confirm)


@pytest.mark.long
async def test_f1_tells_of_the_form_and_of_each_dialog(suite):
    app = opened(suite)
    async with app.run_test(size=SIZE) as pilot:
        await first_in_form(pilot)
        await pilot.press("f1")
        await on(pilot, HelpScreen)
        await until(pilot, lambda: "A case of a benchmark." in shown(app))
        await pilot.press("escape", "escape")
        await on(pilot, SuitesPage)
        for key, dialog, words in (
            ("f4", Chooser, "Type words to find a name"),
            ("f8", Confirm, "Y and N answer it"),
            ("ctrl+n", AskLine, "Enter takes it"),
        ):
            await pilot.press(key)
            await on(pilot, dialog)
            await pilot.press("f1")
            await on(pilot, HelpScreen)
            await until(pilot, lambda words=words: words in shown(app))
            await pilot.press("escape", "escape")
            await on(pilot, SuitesPage)


@pytest.mark.long
async def test_f2_lists_what_a_field_can_be(suite):
    app = opened(suite)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        form = await first_in_form(pilot)
        row = await fill(pilot, "slice_method", "vertical")
        assert "F2 lists the choices" in str(form.query_one("#hint").render())
        await pilot.press("f2")
        await choose(pilot, "horiz")
        await until(pilot, lambda: row.text == "horizontal")
        metric = form.query(ExpectRow).first().query(Input).first()
        metric.focus()
        await pilot.press("f2")
        await choose(pilot, "time_ms.p95")
        await until(pilot, lambda: metric.value == "time_ms.p95")
        await fill(pilot, "image_size", "128")
        await pilot.press("f2")
        await until(pilot, lambda: any("has no list" in one.message for one in app._notifications))
        assert app.screen is form


async def test_the_case_that_is_marked_after_opening_is_edited_and_removed(suite):
    app = opened(suite)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await to_line(pilot, 1)
        await pilot.press("f3")
        form = await in_form(pilot)
        assert form.query_one("#fields").query(Input).first().value == "first"
        await pilot.press("escape")
        await on(pilot, SuitesPage)
        await pilot.press("f8")
        await on(pilot, Confirm)
        assert "Delete the case first" in shown(app)


@pytest.mark.parametrize("size", SIZES)
async def test_a_message_covers_no_button(suite, size):
    app = opened(suite)
    async with app.run_test(size=size, notifications=True) as pilot:
        form = await first_in_form(pilot)
        for number in range(3):
            app.notify(f"message {number} of some length, as they have it", timeout=60)
        await until(pilot, lambda: len(form.query(Toast)) == 3)
        await pilot.pause(0.2)
        toasts = [toast.region for toast in form.query(Toast)]
        assert isinstance(form, CaseForm)
        for button in form.query(Button):
            assert not any(button.region.overlaps(toast) for toast in toasts), button
