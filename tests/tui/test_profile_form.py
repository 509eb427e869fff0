"""The form of a profile on the Plan page, and the measurement that it starts."""

import asyncio
import re

import pytest
from textual.widgets import Input, Static

from spbench.planner.errors import PlannerError
from spbench.planner.profile_process import ProfileRequest
from spbench.tui.chooser import Chooser
from spbench.tui.dialogs import Confirm
from spbench.tui.plan import page as page_module
from spbench.tui.plan.plan_view import NO_PROFILE
from spbench.tui.plan.profile_form import ProfileForm
from support.tui.app_driver import SIZES, make_console, read_screen, wait_until


@pytest.fixture
def requests(monkeypatch):
    """Record the requested profiles instead of measuring them."""
    recorded = []

    async def measure(request, folder, home):
        recorded.append(request)

    monkeypatch.setattr(page_module, "measure_profile", measure)
    return recorded


async def open_profile_form(pilot, key, kind):
    """Open the form of a kind of network, and wait for its first outcome."""
    await wait_until(pilot, lambda: NO_PROFILE.partition("\n")[0] in read_screen(pilot.app))
    await pilot.press(key)
    await wait_until(pilot, lambda: isinstance(pilot.app.screen, Chooser))
    await pilot.press(*kind, "enter")
    await wait_until(pilot, lambda: isinstance(pilot.app.screen, ProfileForm))
    await wait_until(pilot, lambda: pilot.app.screen.query("#command"))
    return pilot.app.screen


def read_command(form):
    return str(form.query_one("#command", Static).content)


async def fill_form(pilot, form, name, text):
    """Type a text into a field of a form."""
    row = next(row for row in form.row_list.rows if row.key == name)
    row.query_one(Input).value = text
    await pilot.pause()


@pytest.mark.parametrize(("key", "start"), [("ctrl+n", "ctrl+s"), ("f2", "f5")])
async def test_measures_a_profile_with_the_first_values_of_the_form(tmp_path, requests, key, start):
    app = make_console(tmp_path, page="plan")
    async with app.run_test(size=(120, 40)) as pilot:
        await open_profile_form(pilot, key, "resnet")
        command = "spbench profile resnet --set depth=11 --output profiles/resnet-11.json"
        await wait_until(pilot, lambda: command in read_screen(app))
        text = "Ctrl+S or F5 measures it, about"
        await wait_until(pilot, lambda: text in read_screen(app))
        await pilot.press(start)
        await wait_until(pilot, lambda: requests)
        assert requests == [ProfileRequest("resnet", {"depth": 11}, "profiles/resnet-11.json")]
        await wait_until(pilot, lambda: "profiles/resnet-11.json is measured" in read_screen(app))
        await wait_until(pilot, lambda: app.focused is app.screen.query_one("#plan"))
        assert app.screen.query_one("#profile", Input).value == "profiles/resnet-11.json"


async def test_file_is_shown_in_full_on_a_small_screen(tmp_path, requests):
    app = make_console(tmp_path, page="plan")
    async with app.run_test(size=(80, 24)) as pilot:
        form = await open_profile_form(pilot, "ctrl+n", "resnet")
        form.row_list.rows.last().query_one(Input).focus()
        row = r"^. +file +profiles/resnet-11\.json "
        await wait_until(pilot, lambda: re.search(row, read_screen(app), re.MULTILINE))


@pytest.mark.parametrize("size", SIZES)
async def test_file_and_defaults_follow_from_the_other_fields(tmp_path, requests, size):
    app = make_console(tmp_path, page="plan")
    async with app.run_test(size=size) as pilot:
        form = await open_profile_form(pilot, "ctrl+n", "amoebanet")
        await fill_form(pilot, form, "num_layers", "3")
        await fill_form(pilot, form, "batch_sizes", "2, 8")
        await wait_until(pilot, lambda: "--set batch_sizes=2,8" in read_command(form))
        await pilot.press("ctrl+s")
        await wait_until(pilot, lambda: requests)
        params = {"num_layers": 3, "batch_sizes": [2, 8]}
        assert requests == [ProfileRequest("amoebanet", params, "profiles/amoebanet-3.json")]


async def test_measures_a_network_of_the_user(tmp_path, requests):
    app = make_console(tmp_path, page="plan")
    async with app.run_test(size=(120, 40)) as pilot:
        form = await open_profile_form(pilot, "ctrl+n", "your")
        await wait_until(pilot, lambda: "name your network as module:callable" in read_screen(app))
        await pilot.press("ctrl+s")
        await fill_form(pilot, form, "model", "nets:UNet")
        await fill_form(pilot, form, "file", "unet.json")
        await wait_until(
            pilot, lambda: read_command(form) == "spbench profile nets:UNet --output unet.json"
        )
        await pilot.press("ctrl+s")
        await wait_until(pilot, lambda: requests)
        assert requests == [ProfileRequest("nets:UNet", {}, "unet.json")]


async def test_invalid_size_of_a_network_is_reported_in_the_form(tmp_path, requests):
    app = make_console(tmp_path, page="plan")
    async with app.run_test(size=(120, 40)) as pilot:
        form = await open_profile_form(pilot, "ctrl+n", "resnet")
        for text in ("x", "12"):
            await fill_form(pilot, form, "depth", text)
            await wait_until(pilot, lambda: form.query_one("#message").has_class("wrong"))
            assert "--set" not in read_screen(app)
            await pilot.press("ctrl+s")
            await pilot.pause()
            assert app.screen is form
        await pilot.press("escape")
        await wait_until(pilot, lambda: isinstance(app.screen, Confirm))
        await pilot.press("y")
        await wait_until(pilot, lambda: app.screen.NAME == "plan")
        assert not requests


async def test_profile_of_the_same_name_is_replaced_after_a_question(tmp_path, requests):
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "resnet-11.json").write_text("{}")
    app = make_console(tmp_path, page="plan")
    async with app.run_test(size=(120, 40)) as pilot:
        await open_profile_form(pilot, "ctrl+n", "resnet")
        await wait_until(pilot, lambda: "Ctrl+S or F5 measures it" in read_screen(app))
        await pilot.press("ctrl+s")
        await wait_until(pilot, lambda: isinstance(app.screen, Confirm))
        await pilot.press("n")
        await wait_until(pilot, lambda: app.screen.NAME == "plan")
        assert not requests


async def test_failed_measurement_is_shown_and_readonly_starts_none(tmp_path, monkeypatch):
    async def fail(request, folder, home):
        raise PlannerError("no torch here")

    monkeypatch.setattr(page_module, "measure_profile", fail)
    app = make_console(tmp_path, page="plan")
    async with app.run_test(size=(80, 24)) as pilot:
        await open_profile_form(pilot, "ctrl+n", "resnet")
        await wait_until(pilot, lambda: "Ctrl+S or F5 measures it" in read_screen(app))
        await pilot.press("ctrl+s")
        await wait_until(pilot, lambda: "✗ no torch here" in read_screen(app))
    readonly = make_console(tmp_path, page="plan", readonly=True)
    async with readonly.run_test(size=(80, 24), notifications=True) as pilot:
        await wait_until(pilot, lambda: "Press Ctrl+N to measure" in read_screen(readonly))
        await pilot.press("f2", "enter")
        await wait_until(pilot, lambda: "starts nothing" in read_screen(readonly))


async def test_enter_keeps_a_measurement_that_runs(tmp_path, monkeypatch):
    finished = asyncio.Event()

    async def measure(request, folder, home):
        await finished.wait()

    monkeypatch.setattr(page_module, "measure_profile", measure)
    app = make_console(tmp_path, page="plan")
    async with app.run_test(size=(120, 40)) as pilot:
        await open_profile_form(pilot, "ctrl+n", "resnet")
        await wait_until(pilot, lambda: "Ctrl+S or F5 measures it" in read_screen(app))
        await pilot.press("ctrl+s")
        await wait_until(pilot, lambda: "measuring the layers of resnet" in read_screen(app))
        await pilot.press("enter")
        await wait_until(pilot, lambda: app._notifications)
        assert "a profile is being measured" in next(iter(app._notifications)).message
        finished.set()
        await wait_until(pilot, lambda: "profiles/resnet-11.json is measured" in read_screen(app))
