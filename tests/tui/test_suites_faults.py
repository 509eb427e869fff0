"""Planting a fault on the Suites page with a factor that is typed into the list."""

from textual.widgets import Input, OptionList

from spbench.tui.chooser import Chooser
from support.tui.app_driver import read_screen, wait_until
from support.tui.suites_page import SIZE, open_suite, wait_for_cases


async def test_takes_a_typed_factor_or_shows_what_is_wrong(suite):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_cases(pilot)
        await pilot.press("f7")
        await wait_until(pilot, lambda: isinstance(app.screen, Chooser))
        await wait_until(pilot, lambda: "a factor: slow=3" in read_screen(app))
        assert "Enter plants the fault and runs first" in read_screen(app)
        field = app.screen.query_one(Input)
        for text, reason in (
            ("slow=x", "slow=x: give a number above 1"),
            ("hang=2", "hang takes no factor; slow does"),
        ):
            field.value = text
            await wait_until(pilot, lambda shown=reason: shown in read_screen(app))
            assert app.screen.query_one(OptionList).highlighted is None
        field.value = "slow=1.1"
        await wait_until(pilot, lambda: "rank takes 1.1 times as long" in read_screen(app))
        await pilot.press("enter")
        expected = (str(suite), "--case", "first", "--inject", "slow=1.1")
        await wait_until(pilot, lambda: app.started == [expected])
