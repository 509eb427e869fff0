"""Planting a fault on the Suites page: factor, rank, and short cases."""

import pytest
from textual.widgets import Input, OptionList

from spbench.engine import estimate
from spbench.tui.suites.running.fault_dialog import FaultDialog
from spbench.tui.suites.running.slow_case import ShortCaseDialog
from spbench.tui.suites.tree import SuiteTree
from support.tui.app_driver import read_screen, wait_until
from support.tui.suites_page import SIZE, SUITE, open_suite, wait_for_cases

FACTOR_HINT = "a factor: slow=3"


async def open_fault_dialog(pilot):
    """Open the dialog for the first case; return its fields."""
    app = pilot.app
    await wait_for_cases(pilot)
    await pilot.press("f7")
    await wait_until(pilot, lambda: isinstance(app.screen, FaultDialog))
    await wait_until(pilot, lambda: app.screen.query("#rank") and FACTOR_HINT in read_screen(app))
    return app.screen.query_one("#find", Input), app.screen.query_one("#rank", Input)


async def test_takes_a_typed_factor_or_shows_what_is_wrong(suite, monkeypatch):
    monkeypatch.setattr(estimate, "estimate_iteration", lambda plan, case: 1.0)
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        field, _ = await open_fault_dialog(pilot)
        assert "Enter plants the fault and runs first" in read_screen(app)
        for text, reason in (
            ("slow=x", "slow=x: give a number above 1"),
            ("hang=2", "hang takes no factor; slow does"),
        ):
            field.value = text
            await wait_until(pilot, lambda shown=reason: shown in read_screen(app))
            assert app.screen.query_one(OptionList).highlighted is None
        field.value = "slow=2.5"
        await wait_until(pilot, lambda: "rank takes 2.5 times as long" in read_screen(app))
        await pilot.press("enter")
        expected = (str(suite), "--case", "first", "--inject", "slow=2.5")
        await wait_until(pilot, lambda: app.started == [expected])


async def test_plants_the_fault_in_a_typed_rank(suite):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        field, rank = await open_fault_dialog(pilot)
        assert "rank 1, the last" in read_screen(app)
        assert "0 to 1" in read_screen(app)
        await pilot.press(*"kill", "tab", "0")
        await wait_until(pilot, lambda: "rank 0 kills itself" in read_screen(app))
        assert (field.value, rank.value) == ("kill", "0")
        await pilot.press("enter")
        expected = (str(suite), "--case", "first", "--inject", "kill,rank=0")
        await wait_until(pilot, lambda: app.started == [expected])


async def test_rejects_a_rank_that_the_case_does_not_have(suite):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        _, rank = await open_fault_dialog(pilot)
        for text, reason in (("2", "no rank 2, only 0 to 1"), ("x", "give the number of a rank")):
            rank.value = text
            await wait_until(pilot, lambda shown=reason: shown in read_screen(app))
            assert app.screen.query_one(OptionList).highlighted is None
        rank.focus()
        await pilot.press("enter")
        assert isinstance(app.screen, FaultDialog)
        await pilot.press("escape")
        await wait_until(pilot, lambda: not isinstance(app.screen, FaultDialog))
        assert app.started == []


def list_run(suite, *faults):
    """Return the arguments of a run of all cases of the suite with faults."""
    names = "first", "second[iterations=5]", "second[iterations=10]"
    cases = [arg for name in names for arg in ("--case", name)]
    return (str(suite), *cases, *(arg for fault in faults for arg in ("--inject", fault)))


async def test_footer_says_that_the_fault_is_for_marked_cases(suite):
    app = open_suite(suite)
    async with app.run_test(size=(160, 30)) as pilot:
        await wait_for_cases(pilot)
        await wait_until(pilot, lambda: "F7 Plant a fault" in read_screen(app))
        await pilot.press("space")
        await wait_until(pilot, lambda: "F7 Fault in 1 case" in read_screen(app))


async def open_fault_dialog_of_all(pilot):
    """Mark all cases and open the dialog."""
    await wait_for_cases(pilot)
    await pilot.press("a")
    await wait_until(pilot, lambda: "3 marked" in read_screen(pilot.app))
    await open_fault_dialog(pilot)


@pytest.mark.parametrize(
    ("keys", "faults"),
    [
        (["kill"], ["kill"]),
        (["corrupt-halo"], ["corrupt-halo"]),
        (["kill", "tab", "tab", " "], ["kill@second[iterations=5]"]),
        (["kill", "tab", "0", "tab", " "], ["kill,rank=0@second[iterations=5]"]),
    ],
)
async def test_plants_the_fault_in_all_marked_cases_or_in_one(suite, keys, faults):
    app = open_suite(suite)
    async with app.run_test(size=(160, 30)) as pilot:
        await wait_for_cases(pilot)
        await pilot.press("down")
        await open_fault_dialog_of_all(pilot)
        assert "runs the 3 marked cases" in read_screen(app)
        assert "only in second[iterations=5]" in read_screen(app)
        for key in keys:
            await pilot.press(*([key] if key == "tab" else key))
        await pilot.press("enter")
        await wait_until(pilot, lambda: app.started == [list_run(suite, *faults)])


async def test_plants_a_fault_only_in_cases_that_detect_it(suite):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await open_fault_dialog_of_all(pilot)
        assert "in 1 of 3 cases" in read_screen(app)
        assert "in all 3 cases" in read_screen(app)
        await pilot.press(*"slow", "enter")
        await wait_until(pilot, lambda: app.started == [list_run(suite, "slow@first")])


async def test_asks_before_marked_cases_would_miss_a_fault(short_suite):
    app = open_suite(short_suite)
    async with app.run_test(size=SIZE) as pilot:
        await open_fault_dialog_of_all(pilot)
        await pilot.press(*"slow=2.5", "enter")
        question = "would probably miss slow=2.5, such as first"
        await wait_until(pilot, lambda: question in " ".join(read_screen(app).split()))
        assert app.started == []
        await pilot.press("y")
        await wait_until(pilot, lambda: app.started == [list_run(short_suite, "slow=2.5@first")])


@pytest.fixture
def short_suite(suite, monkeypatch):
    """Return a suite, the iterations of which take 1 us without a fault."""
    monkeypatch.setattr(estimate, "estimate_iteration", lambda plan, case: 1e-6)
    suite.write_text(SUITE.replace("{image_size: 64,", "{image_size: 64, iterations: 50,"))
    return suite


@pytest.mark.parametrize(
    ("key", "overrides"),
    [
        ("i", ("--set", "iterations=16000")),
        ("enter", ("--set", "iterations=16000")),
        ("y", ()),
        ("n", None),
    ],
)
async def test_offers_enough_iterations_for_a_slow_rank(short_suite, key, overrides):
    app = open_suite(short_suite)
    async with app.run_test(size=SIZE) as pilot:
        await open_fault_dialog(pilot)
        await pilot.press(*"slow=2.5", "enter")
        await wait_until(pilot, lambda: isinstance(app.screen, ShortCaseDialog))
        answers = ("16000 iterations (i)", "Run as it is (y)", "Cancel (n)")
        for text in ("its 50 iterations take", "about 125", *answers):
            await wait_until(pilot, lambda shown=text: shown in read_screen(app))
        await wait_until(pilot, lambda: app.focused is not None and app.focused.id == "third")
        await pilot.press(key)
        started = (str(short_suite), "--case", "first", "--inject", "slow=2.5")
        expected = [] if overrides is None else [(*started, *overrides)]
        await wait_until(pilot, lambda: not isinstance(app.screen, ShortCaseDialog))
        await wait_until(pilot, lambda: app.started == expected)


@pytest.mark.parametrize("fault", ["slow", "kill"])
async def test_long_enough_case_starts_without_a_question(short_suite, fault):
    app = open_suite(short_suite)
    async with app.run_test(size=SIZE) as pilot:
        await open_fault_dialog(pilot)
        await pilot.press(*fault, "enter")
        expected = (str(short_suite), "--case", "first", "--inject", fault)
        await wait_until(pilot, lambda: app.started == [expected])


async def test_says_that_a_slight_slowdown_is_not_named(short_suite):
    app = open_suite(short_suite)
    async with app.run_test(size=SIZE) as pilot:
        await open_fault_dialog(pilot)
        await pilot.press(*"slow=1.1", "enter")
        await wait_until(pilot, lambda: "a rank is named from" in read_screen(app))
        assert "skew, at most 1.05" in " ".join(read_screen(app).split())


async def test_enter_says_why_a_fault_is_not_planted(suite):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_cases(pilot)
        await pilot.press("down")
        await open_fault_dialog(pilot)
        await pilot.press(*"slow")
        await wait_until(pilot, lambda: "slow cannot be planted here" in read_screen(app))
        assert "Enter plants" not in read_screen(app)
        await pilot.press("enter")
        await wait_until(pilot, lambda: "not planted: the case has no other" in read_screen(app))
        await pilot.press("backspace")
        await wait_until(pilot, lambda: "not planted" not in read_screen(app))
        assert app.started == []


async def test_says_once_how_the_marked_fault_is_found(suite):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await open_fault_dialog(pilot)
        await wait_until(pilot, lambda: read_screen(app).count(" fails.") == 1)
        await pilot.press(*"kill")
        await wait_until(pilot, lambda: "error that names the rank" in read_screen(app))
        assert " fails." not in read_screen(app)


async def test_left_and_right_name_another_marked_case(suite):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await open_fault_dialog_of_all(pilot)
        await pilot.press(*"kill", "tab", "tab", "right")
        await wait_until(pilot, lambda: "only in second[iterations=5]" in read_screen(app))
        await pilot.press("space", "right")
        await wait_until(pilot, lambda: "only in second[iterations=10]" in read_screen(app))
        await pilot.press("right", "left", "enter")
        expected = [list_run(suite, "kill@second[iterations=10]")]
        await wait_until(pilot, lambda: app.started == expected)


@pytest.mark.parametrize(
    ("key", "next_step"),
    [
        ("f3", "select a case, then press F3"),
        ("f4", "press F4 to add a case"),
        ("D", "press Ctrl+D"),
        ("f6", "select a case, then press F6"),
        ("f7", "select a case, then press F7"),
        ("f8", "select a case, then press F8"),
    ],
)
async def test_key_of_a_case_opens_the_suite_under_the_cursor_first(suite, key, next_step):
    app = open_suite(suite, suite=None)
    async with app.run_test(size=SIZE) as pilot:
        await wait_until(
            pilot,
            lambda: any(tree.selected_path is not None for tree in app.screen.query(SuiteTree)),
        )
        await pilot.press(key)
        await wait_for_cases(pilot)
        messages = [note.message for note in app._notifications]
        assert any(f"is open: {next_step}" in message for message in messages)
        assert not app.screen.is_modal
