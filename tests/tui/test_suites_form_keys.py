"""Keys of the form and of dialogs: questions before data loss, help, and lists."""

import pytest
from textual.widgets import Button, Input
from textual.widgets._toast import Toast

from spbench.tui.chooser import Chooser
from spbench.tui.dialogs import AskLine, Confirm
from spbench.tui.guide import message_log
from spbench.tui.guide.help_screen import HelpScreen
from spbench.tui.suites.form.case_form import CaseForm
from spbench.tui.suites.form.metric_rows import ExpectRow
from spbench.tui.suites.page import SuitesPage
from support.tui.app_driver import SIZES, read_screen, wait_until
from support.tui.suites_page import (
    SIZE,
    SUITE,
    choose,
    fill,
    get_editor,
    move_to_line,
    open_first_case,
    open_suite,
    wait_for_cases,
    wait_for_form,
)


async def wait_for_screen(pilot, screen):
    await wait_until(pilot, lambda: isinstance(pilot.app.screen, screen))


@pytest.mark.parametrize("size", SIZES)
async def test_escape_asks_only_for_a_changed_form(suite, size):
    app = open_suite(suite)
    async with app.run_test(size=size) as pilot:
        await open_first_case(pilot)
        await pilot.press("escape")
        await wait_for_screen(pilot, SuitesPage)
        form = await open_first_case(pilot)
        row = await fill(pilot, "image_size", "128")
        await pilot.press("escape")
        await wait_for_screen(pilot, Confirm)
        assert "Discard your changes" in read_screen(app)
        await pilot.press("n")
        await wait_until(pilot, lambda: app.screen is form)
        assert row.text == "128"
        await pilot.press("escape")
        await wait_for_screen(pilot, Confirm)
        await pilot.press("y")
        await wait_for_screen(pilot, SuitesPage)
        assert get_editor(app).text == SUITE


async def test_double_click_on_cancel_opens_one_question(suite):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        form = await open_first_case(pilot)
        await fill(pilot, "image_size", "128")
        form.query_one("#leave", Button).press()
        await wait_for_screen(pilot, Confirm)
        form.query_one("#leave", Button).press()
        await pilot.pause()
        assert [*map(type, app.screen_stack[1:])] == [CaseForm, Confirm]
        await pilot.press("y")
        await wait_for_screen(pilot, SuitesPage)


@pytest.mark.long
async def test_leave_button_asks(suite):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await open_first_case(pilot)
        await fill(pilot, "image_size", "128")
        await pilot.click("#leave")
        await wait_for_screen(pilot, Confirm)


@pytest.mark.long
async def test_f1_shows_help_of_the_form_and_dialogs(suite):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await open_first_case(pilot)
        await pilot.press("f1")
        await wait_for_screen(pilot, HelpScreen)
        await wait_until(pilot, lambda: "A case of a benchmark." in read_screen(app))
        await pilot.press("escape", "escape")
        await wait_for_screen(pilot, SuitesPage)
        for key, dialog, help_text in (
            ("f4", Chooser, "Type words to find a name"),
            ("f8", Confirm, "Y and N answer it"),
            ("ctrl+n", AskLine, "Enter takes it"),
        ):
            await pilot.press(key)
            await wait_for_screen(pilot, dialog)
            await pilot.press("f1")
            await wait_for_screen(pilot, HelpScreen)
            await wait_until(pilot, lambda help_text=help_text: help_text in read_screen(app))
            await pilot.press("escape", "escape")
            await wait_for_screen(pilot, SuitesPage)


@pytest.mark.long
async def test_f2_lists_the_values_of_a_field(suite):
    app = open_suite(suite)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        form = await open_first_case(pilot)
        row = await fill(pilot, "slice_method", "vertical")
        assert "(vertical, horizontal, square)" in str(form.query_one("#hint").render())
        await pilot.press("f2")
        await choose(pilot, "horiz")
        await wait_until(pilot, lambda: row.text == "horizontal")
        metric = form.query(ExpectRow).first().query(Input).first()
        metric.focus()
        await pilot.press("f2")
        await choose(pilot, "time_ms.p95")
        await wait_until(pilot, lambda: metric.value == "time_ms.p95")
        await fill(pilot, "image_size", "128")
        await pilot.press("f2")
        await wait_until(pilot, lambda: "has no choices" in str(form.query_one("#hint").render()))
        await pilot.press("f5")
        await wait_until(pilot, lambda: "F5 on the page" in str(form.query_one("#hint").render()))
        assert app.screen is form


async def test_edits_and_removes_the_case_at_the_cursor(suite):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_cases(pilot)
        await move_to_line(pilot, 1)
        await pilot.press("f3")
        form = await wait_for_form(pilot)
        assert form.query_one("#fields").query(Input).first().value == "first"
        await pilot.press("escape")
        await wait_for_screen(pilot, SuitesPage)
        await pilot.press("f8")
        await wait_for_screen(pilot, Confirm)
        assert "Delete first?" in read_screen(app)


@pytest.mark.parametrize("size", SIZES)
async def test_messages_do_not_cover_buttons(suite, size, monkeypatch):
    monkeypatch.setattr(message_log, "MAX_DIALOG_SECONDS", 60.0)
    app = open_suite(suite)
    async with app.run_test(size=size, notifications=True) as pilot:
        form = await open_first_case(pilot)
        for number in range(3):
            text = f"message {number} of some length, as they have it"
            app.notify(text, severity="warning", timeout=60)
        await wait_until(pilot, lambda: len(form.query(Toast)) == 3)
        assert isinstance(form, CaseForm)

        def are_buttons_free():
            toasts = [toast.region for toast in form.query(Toast)]
            buttons = [button.region for button in form.query(Button)]
            in_lower_half = all(toast.bottom > size[1] // 2 for toast in toasts)
            return in_lower_half and not any(b.overlaps(t) for b in buttons for t in toasts)

        await wait_until(pilot, are_buttons_free)


@pytest.mark.parametrize("size", [(80, 24), (160, 48)])
async def test_arrows_stay_in_the_fields_and_lead_back_to_them(suite, size):
    app = open_suite(suite)
    async with app.run_test(size=size) as pilot:
        form = await open_first_case(pilot)
        boxes = list(form.query("#fields Input, #fields TextArea"))
        assert app.focused is boxes[0]
        await pilot.press("up", "up")
        assert app.focused is boxes[0]
        boxes[-1].focus()
        await wait_until(pilot, lambda: app.focused is boxes[-1])
        await pilot.press("down", "down")
        assert app.focused is boxes[-1]
        for key in ("up", "down"):
            await pilot.press("tab", "tab")
            await wait_until(pilot, lambda: isinstance(app.focused, Button))
            await wait_until(pilot, lambda: "↑ and ↓ go back to the fields" in read_screen(app))
            await pilot.press(key)
            await wait_until(pilot, lambda: app.focused is boxes[-1])
