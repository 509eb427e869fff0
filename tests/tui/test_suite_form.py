"""The form of a suite's head: name, description, defaults and launch settings."""

from pathlib import Path

import pytest
from textual.widgets import Input

from spbench.errors import UsageError
from spbench.suites.edit.head import list_suite_benchmarks, read_head, replace_head
from spbench.tui.dialogs import Confirm
from spbench.tui.form.texts import FormTexts
from spbench.tui.suites.form.suite_form import SuiteForm
from spbench.tui.suites.form.suite_preview import build_suite_preview
from spbench.tui.suites.form.suite_texts import SuiteFields, read_head_draft
from spbench.tui.suites.page import SuitesPage
from spbench.tui.suites.parsed_suite import SuiteForecast
from support.paths import SUITES
from support.tui.app_driver import SIZES, read_screen, wait_until
from support.tui.suites_page import (
    FIRST_CASE_LINE,
    SUITE,
    fill,
    get_editor,
    list_case_ids,
    list_messages,
    move_to_line,
    open_suite,
    wait_for_cases,
)

SIZE = (120, 40)


def make_fields(text):
    return SuiteFields(read_head(text), list_suite_benchmarks(text))


def write_texts(text, **changes):
    """Return the text after a change of fields of the form."""
    fields = make_fields(text)
    names = {name.replace("__", "."): value for name, value in changes.items()}
    result = read_head_draft(fields, FormTexts({**fields.initial_texts.by_name, **names}))
    assert not result.errors
    return replace_head(text, result.draft).text


@pytest.mark.parametrize("path", sorted(SUITES.glob("*.yaml")), ids=lambda p: p.stem)
def test_unchanged_form_keeps_the_text(path):
    text = path.read_text()
    assert write_texts(text) == text


def test_writes_missing_keys_above_the_cases():
    text = write_texts(
        SUITE, description="New: text", defaults__np="2", params__warmup="3", launch__timeout="60"
    )
    assert text == SUITE.replace(
        "name: made-up\n",
        'name: made-up\ndescription: "New: text"\nlaunch:\n  timeout: 60\n'
        "defaults:\n  np: 2\n  params:\n    warmup: 3\n",
    )
    assert write_texts(
        text, description="", defaults__np="", params__warmup="", launch__timeout=""
    ) == SUITE.replace("name: made-up\n", 'name: made-up\ndescription: ""\n')


def test_keeps_comments_other_defaults_and_names_of_parameters():
    head = "defaults:  # of all\n  per_host: false\n  params: {iterations: 5}\n"
    text = SUITE.replace("cases:\n", f"{head}cases:\n")
    assert make_fields(text).other_keys == ["per_host"]
    assert write_texts(text, params__iterations="7") == text.replace("ns: 5}", "ns: 7}")


def test_lists_parameters_that_several_benchmarks_have():
    names = [field.name for field in make_fields(SUITE).param_fields]
    assert "iterations" in names
    assert "image_size" not in names  # only of halo.exchange
    chosen = SUITE.replace("cases:\n", "defaults:\n  params: {image_size: 64}\ncases:\n")
    assert "image_size" in [field.name for field in make_fields(chosen).param_fields]


def test_takes_one_value_of_a_parameter():
    fields = make_fields(SUITE)
    result = read_head_draft(fields, FormTexts({"name": "made up", "params.iterations": "5, 6"}))
    assert result.errors["params.iterations"] == "iterations: '5, 6' is not a whole number"
    assert result.errors["name"].startswith("name is 'made up'")


def test_preview_has_only_errors_of_the_head():
    wrong_case = SUITE.replace("num_spatial_parts: 2", "num_spatial_parts: 0")
    draft = read_head(wrong_case)

    def build(**defaults):
        def write(draft):
            return replace_head(wrong_case, draft)

        changed = type(draft)(draft.name, defaults=defaults)
        return build_suite_preview(changed, write, Path("s.yaml"), lambda suite: SuiteForecast())

    assert build(np=2).problems == ()
    assert build(np=2).lines.endswith("defaults:\n  np: 2")
    (problem,) = build(params={"iterations": "x"}).problems
    assert "iterations: 'x' is not a whole number" in problem


@pytest.mark.parametrize("text", ["", "a: [", "{name: a}", "schema: spbench.suite/1\nnme: a\n"])
def test_rejects_text_without_an_editable_head(text):
    with pytest.raises(UsageError):
        read_head(text)


async def open_suite_form(pilot):
    await wait_until(pilot, lambda: isinstance(pilot.app.screen, SuiteForm))
    await wait_until(pilot, lambda: "schema:" in pilot.app.screen.query_one("#preview").text)


async def test_one_key_edits_the_suite_in_the_text_and_outside(suite):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_cases(pilot)
        await pilot.press("ctrl+d")
        await open_suite_form(pilot)
        await pilot.press("escape")
        await wait_until(pilot, lambda: isinstance(app.screen, SuitesPage))
        get_editor(app).focus()
        await move_to_line(pilot, FIRST_CASE_LINE)
        await pilot.press("ctrl+d")
        await open_suite_form(pilot)
        await fill(pilot, "params.iterations", "7")
        await wait_until(pilot, lambda: "iterations: 7" in app.screen.query_one("#preview").text)
        await wait_until(pilot, lambda: "3 cases on 2 ranks" in read_screen(app))
        await pilot.press("ctrl+s")
        await wait_until(pilot, lambda: isinstance(app.screen, SuitesPage))
        defaults = "defaults:\n  params:\n    iterations: 7\n"
        assert get_editor(app).text == SUITE.replace("cases:\n", f"{defaults}cases:\n")
        await pilot.press("ctrl+z")
        await wait_until(pilot, lambda: get_editor(app).text == SUITE)


@pytest.mark.parametrize("size", SIZES)
async def test_form_of_the_suite_opens_on_its_first_default_and_keeps_its_text(suite, size):
    suite.write_text(SUITE.replace("cases:\n", "defaults:\n  np: 2\ncases:\n"))
    app = open_suite(suite)
    async with app.run_test(size=size) as pilot:
        await wait_for_cases(pilot)
        await pilot.press("ctrl+d")
        await open_suite_form(pilot)
        await wait_until(pilot, lambda: app.focused is not None)
        assert app.focused.parent.key == "defaults.np"
        fields = app.screen.query_one("#fields").region
        await wait_until(pilot, lambda: fields.contains_region(app.focused.region))
        await pilot.press("0")
        assert app.focused.value == "20"
        assert "made-up" in read_screen(app)


async def test_small_preview_scrolls_to_the_change(suite):
    app = open_suite(suite)
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_for_cases(pilot)
        await pilot.press("D")
        await open_suite_form(pilot)
        await fill(pilot, "launch.timeout", "77")
        await fill(pilot, "params.iterations", "7")
        await wait_until(pilot, lambda: "iterations: 7" in read_screen(app))


async def test_f3_without_a_case_names_the_key_that_adds_one(suite):
    suite.write_text("schema: spbench.suite/1\nname: a\ncases:\n")
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await wait_until(pilot, lambda: "^D Defaults" in read_screen(app))
        await pilot.press("f3")
        await wait_until(pilot, lambda: "no cases yet: F4 adds one" in "".join(list_messages(app)))


async def test_default_ranks_that_do_not_fit_a_case_are_rejected_with_the_reason(suite):
    app = open_suite(suite)
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_for_cases(pilot)
        await pilot.press("ctrl+d")
        await wait_until(pilot, lambda: isinstance(app.screen, SuiteForm))
        await fill(pilot, "defaults.np", "4")
        await wait_until(pilot, lambda: "np is 4, but halo.exchange runs" in read_screen(app))
        await wait_until(
            pilot, lambda: "np: number of ranks, which must fit the" in read_screen(app)
        )


async def test_defaults_that_do_not_fit_a_case_are_written_after_a_question(suite):
    app = open_suite(suite)
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_for_cases(pilot)
        await pilot.press("ctrl+d")
        await open_suite_form(pilot)
        await fill(pilot, "defaults.repeat", "3")
        row = await fill(pilot, "defaults.np", "4")
        await wait_until(pilot, lambda: "✗ np is 4, but halo.exchange runs" in read_screen(app))
        await pilot.press("ctrl+f", *"repeat", "ctrl+s")
        await wait_until(pilot, lambda: isinstance(app.screen, Confirm))
        question = str(app.screen.query_one("#question").content)
        assert "first: np is 4, but halo.exchange runs on 2 ranks" in question
        await pilot.press("n")
        await wait_until(pilot, lambda: app.focused is row.query_one(Input))
        await pilot.press("ctrl+s")
        await wait_until(pilot, lambda: isinstance(app.screen, Confirm))
        await pilot.press("y")
        await wait_until(pilot, lambda: isinstance(app.screen, SuitesPage))
        assert "defaults:\n  np: 4\n  repeat: 3\n" in get_editor(app).text
        await wait_until(pilot, lambda: list_case_ids(app)[:1] == ["first"])
        await wait_until(pilot, lambda: "1 with errors" in read_screen(app))
