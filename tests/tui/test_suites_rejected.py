"""Case entries that the loader rejects, in the table and in the form."""

from textual.widgets import Input

from spbench.suites.loader import check_text
from spbench.tui.form.field_row import TextRow
from spbench.tui.suites.cases_pane import CasesPane
from spbench.tui.suites.form.case_form import CaseForm
from spbench.tui.suites.page import SuitesPage
from support.tui.app_driver import read_screen, wait_until
from support.tui.suites_page import (
    SIZE,
    choose,
    fill,
    get_editor,
    list_case_ids,
    open_suite,
    wait_for_cases,
    wait_for_form,
)

CONFLICT = """\
schema: spbench.suite/1
name: made-up
defaults:
  np: 2
cases:
  - name: ring
    benchmark: link.pingpong
  - name: halo
    benchmark: halo.exchange
    params: {num_spatial_parts: 4}
  - name: ring
    benchmark: link.pingpong
"""


def test_each_entry_with_a_wrong_default_has_its_error(tmp_path):
    text = CONFLICT.replace("  - name: ring\n    benchmark: link.pingpong\n", "", 1)
    text = text.replace("name: ring\n    benchmark: link.pingpong", "name: b\n    benchmark: app")
    text = text.replace("benchmark: app", "benchmark: halo.exchange\n    params: {grid: 2x2}")
    checked = check_text(text.replace(", {grid", " {grid"), tmp_path / "a.yaml")
    assert [error.path for error in checked.case_errors] == [("cases", 0, "np"), ("cases", 1, "np")]
    assert {error.default_path for error in checked.case_errors} == {("defaults", "np")}
    assert all("inherits" not in error.message for error in checked.case_errors)


def find_row(app, key):
    return next(row for row in app.screen.query(TextRow) if row.key == key)


async def test_entries_with_errors_are_listed_at_their_positions(suite):
    suite.write_text(CONFLICT)
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_cases(pilot)
        assert list_case_ids(app) == ["ring", "halo", "ring on line 11"]
        await wait_until(pilot, lambda: "3 cases, 2 with errors" in read_screen(app))
        await wait_until(pilot, lambda: "✗ halo " in read_screen(app))
        app.screen.query_one("#cases").focus()
        await pilot.press("end")
        cases = app.screen.query_one(CasesPane)
        await wait_until(pilot, lambda: cases.selected_line == 11)
        await wait_until(pilot, lambda: "duplicate case name 'ring'" in read_screen(app))
        assert app.screen.offers("edit")
        await pilot.press("enter")
        await wait_for_form(pilot)
        await fill(pilot, "name", "other")
        await pilot.press("ctrl+s")
        await wait_until(pilot, lambda: list_case_ids(app) == ["ring", "halo", "other"])
        assert get_editor(app).text.endswith("- name: other\n    benchmark: link.pingpong\n")
        await wait_until(pilot, lambda: cases.case is not None and cases.case.id == "other")


async def test_form_of_a_case_with_a_wrong_default_shows_the_error_and_cures_it(suite):
    suite.write_text(CONFLICT.replace("  - name: ring\n    benchmark: link.pingpong\n", "", 1))
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_cases(pilot, 2)
        app.screen.query_one("#cases").focus()
        await pilot.press("home", "f3")
        form = await wait_for_form(pilot)
        assert form.texts.by_name["name"] == "halo"
        await wait_until(pilot, lambda: "✗ np is 2, but halo.exchange runs on" in read_screen(app))
        await pilot.press("ctrl+f", *"halo_len")
        await wait_until(pilot, lambda: not find_row(app, "np").display)
        await pilot.press("ctrl+s")
        await wait_until(pilot, lambda: app.focused is find_row(app, "np").query_one(Input))
        assert find_row(app, "np").display
        assert app.screen is form
        await pilot.press("4")
        await wait_until(pilot, lambda: "✗" not in read_screen(app))
        await pilot.press("ctrl+s")
        await wait_until(pilot, lambda: isinstance(app.screen, SuitesPage))
        await wait_until(pilot, lambda: app.screen.query_one(CasesPane).case is not None)
        assert app.screen.query_one(CasesPane).case.np == 4


async def test_new_case_that_a_default_makes_invalid_goes_to_the_field_that_cures_it(suite):
    suite.write_text(CONFLICT.partition("  - name: halo")[0])
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_cases(pilot, 1)
        await pilot.press("f4")
        await choose(pilot, "halo.exch")
        await wait_for_form(pilot)
        await wait_until(pilot, lambda: "✗ np is 2, but" in read_screen(app))
        await pilot.press("ctrl+s")
        await wait_until(pilot, lambda: app.focused is find_row(app, "np").query_one(Input))
        assert isinstance(app.screen, CaseForm)


async def test_entry_that_the_form_cannot_hold_is_edited_in_the_text(suite):
    suite.write_text(CONFLICT.replace("benchmark: halo.exchange", "benchmark: halo.exchang"))
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_cases(pilot)
        # A file with errors is opened at the first of them.
        await wait_until(pilot, lambda: app.screen.query_one(CasesPane).selected_line == 8)
        await wait_until(pilot, lambda: "e goes to the case in the text" in read_screen(app))
        assert not app.screen.offers("edit")
        assert app.screen.offers("edit_text")
        app.screen.query_one("#cases").focus()
        await pilot.press("f3")
        await wait_until(pilot, lambda: app.focused is get_editor(app))
        assert get_editor(app).cursor_line == 9
