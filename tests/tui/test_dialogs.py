"""Dialogs close once, with the screens in front of them."""

from textual.app import App
from textual.widgets import Button, Static

from spbench.tui.dialogs import Confirm, Modal
from spbench.tui.guide.cheat_sheet import CheatSheet
from support.tui.app_driver import wait_until


class Frame(Modal[str]):
    """A dialog that is closed by the test."""

    def compose(self):
        yield Static("below")


class DialogApp(App):
    """An application that collects the results of dialogs."""

    def __init__(self):
        super().__init__()
        self.results = []

    def open(self, dialog):
        self.push_screen(dialog, self.results.append)
        return dialog


async def test_result_closes_the_screens_in_front_of_a_dialog():
    app = DialogApp()
    async with app.run_test() as pilot:
        frame = app.open(Frame())
        app.open(Confirm("Really?"))
        frame.dismiss("written")
        await wait_until(pilot, lambda: app.results == [None, "written"])
        assert len(app.screen_stack) == 1


async def test_second_answer_of_a_question_does_not_close_the_dialog_below():
    app = DialogApp()
    async with app.run_test() as pilot:
        frame = app.open(Frame())
        question = app.open(Confirm("Really?"))
        await wait_until(pilot, lambda: question.query(Button))
        question.action_answer(True)
        question.action_answer(True)
        await pilot.pause()
        assert app.screen is frame
        assert app.results == [True]


async def test_second_click_on_the_cheat_sheet_does_not_close_the_dialog_below():
    app = DialogApp()
    async with app.run_test() as pilot:
        frame = app.open(Frame())
        sheet = app.open(CheatSheet([]))
        await wait_until(pilot, lambda: sheet.query(Static))
        sheet.on_click()
        sheet.on_click()
        await pilot.pause()
        assert app.screen is frame
        assert app.results == [None]
