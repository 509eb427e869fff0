"""Keys that are typed faster than the screen opens the input for them."""

import pytest
from textual.widgets import Input

from spbench.tui.chooser import Chooser
from spbench.tui.form.search_bar import SearchBar
from support.tui.app_driver import post_keys, wait_until
from support.tui.suites_page import SIZE, open_first_case, open_suite, wait_for_cases


async def test_search_of_a_form_gets_the_keys_after_its_key(suite):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        form = await open_first_case(pilot)
        search = form.query_one(SearchBar).query_one(Input)
        texts = form.texts
        post_keys(app, ["down", "ctrl+f", *"default"])
        await wait_until(pilot, lambda: search.value == "default")
        assert form.texts == texts


async def test_field_gets_the_keys_after_the_search_is_left(suite):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        form = await open_first_case(pilot)
        post_keys(app, ["ctrl+f", *"halo", "escape", *"typed"])
        await wait_until(pilot, lambda: form.texts.by_name["name"] == "typed")


async def test_choices_of_a_field_get_the_keys_after_their_key(suite):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await open_first_case(pilot)
        post_keys(app, ["ctrl+f", *"method", "enter", "f2", *"squ"])
        await wait_until(pilot, lambda: isinstance(app.screen, Chooser))
        await wait_until(pilot, lambda: getattr(app.focused, "value", "") == "squ")


# Other dialogs read files or look for programs before they open.
@pytest.mark.parametrize("key", ["colon", "slash", "comma"])
async def test_input_of_the_page_gets_the_keys_after_its_key(suite, key):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_cases(pilot)
        post_keys(app, [key, *"hal"])
        await wait_until(pilot, lambda: getattr(app.focused, "value", "") == "hal")
