"""The form of a case: search, set fields, defaults and hints."""

import textwrap

import pytest
from textual.widgets import Input, Static

from spbench.suites.edit.compose import insert_case, read_defaults, replace_case
from spbench.suites.edit.draft import CaseDraft
from spbench.suites.edit.fields import list_launch_fields, list_param_fields
from spbench.suites.loader import check_text
from spbench.tui.form.field_row import FieldRow, FormRow, TextRow
from spbench.tui.form.row_list import RowFilter
from spbench.tui.form.search_bar import SearchBar
from spbench.tui.form.texts import FormTexts
from spbench.tui.suites.form.case_form import CaseForm
from spbench.tui.suites.form.draft_reader import read_form_draft
from spbench.tui.suites.form.field_list import FieldList
from spbench.tui.suites.form.form_texts import FormFields
from spbench.tui.suites.form.preview import build_preview
from spbench.tui.suites.parsed_suite import SuiteForecast
from spbench_core.catalog import BENCHMARKS
from support.tui.app_driver import SIZES, read_screen, wait_until
from support.tui.suites_page import (
    SIZE,
    SUITE,
    choose,
    fill,
    get_editor,
    open_first_case,
    open_suite,
    wait_for_cases,
    wait_for_form,
)

NARROW = (80, 24)
HINT_WIDTH = 76
HINT_HEIGHT = 5
DEFAULTS = """\
defaults:
  np: 2
  params:
    iterations: 7
    sizes: [8]
    image_size: 64
  expect:
    time_ms:
      max: 5
"""


def list_shown_names(form):
    rows = form.query_one(FieldList).query(FormRow)
    return [row.key for row in rows if row.display and isinstance(row, FieldRow)]


def test_search_finds_parts_of_names_and_starts_of_words_of_the_help():
    row = TextRow("halo_len", "its default is the size of a half-kernel", "")
    for text in ("halo", "len", "def", "kernel", "Size of"):
        assert RowFilter(text).selects(row), text
    for text in ("fault", "ernel", "ize"):
        assert not RowFilter(text).selects(row), text


def test_search_finds_other_words_for_the_same():
    in_step = TextRow("in step", "names of swept parameters that change together", "")
    exclude = TextRow("exclude", "points to leave out", "")
    for text in ("sweep", "sweeps", "swept"):
        assert RowFilter(text).selects(in_step), text
        assert RowFilter(text).selects(exclude), text
    assert RowFilter("skip").selects(exclude)
    assert not RowFilter("skip").selects(in_step)


async def test_search_shows_fields_by_name_and_help(suite):
    app = open_suite(suite)
    async with app.run_test(size=NARROW) as pilot:
        form = await open_first_case(pilot)
        total = len(form.query_one(FieldList).rows)
        name_box = app.focused
        await pilot.press("ctrl+f", *"halo len")
        await wait_until(pilot, lambda: list_shown_names(form) == ["halo_len"])
        await wait_until(pilot, lambda: f"1 field of {total} (Esc shows all)" in read_screen(app))
        assert not any(h.display for h in form.query(".heading").results() if "Launch" in str(h))
        form.query_one(SearchBar).query_one(Input).value = ""
        await pilot.press(*"pixels of halo")
        await wait_until(pilot, lambda: list_shown_names(form) == ["halo_len"])
        await pilot.press(*" nothing")
        await wait_until(pilot, lambda: "no field found" in read_screen(app))
        await pilot.press("escape")
        await wait_until(pilot, lambda: len(list_shown_names(form)) > 10)
        assert isinstance(app.screen, CaseForm)
        assert not form.query_one(SearchBar).is_open
        assert app.focused is name_box


async def test_enter_goes_to_the_first_field_found(suite):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        form = await open_first_case(pilot)
        await pilot.press("ctrl+f", *"halo_len")
        await wait_until(pilot, lambda: list_shown_names(form) == ["halo_len"])
        await pilot.press("enter", "3")
        await wait_until(pilot, lambda: form.texts.by_name["halo_len"] == "3")


async def test_fields_with_the_words_in_their_names_come_first(suite):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        form = await open_first_case(pilot)
        names = list_shown_names(form)
        await pilot.press("ctrl+f", *"iter")
        await wait_until(pilot, lambda: list_shown_names(form)[0] == "iterations")
        assert "warmup" in list_shown_names(form)[1:]
        await pilot.press("enter", "3")
        await wait_until(pilot, lambda: form.texts.by_name["iterations"] == "3")
        await pilot.press("escape")
        await wait_until(pilot, lambda: list_shown_names(form) == names)


def test_sizes_have_one_notation():
    fields = {field.name: field for field in list_param_fields(BENCHMARKS["halo.exchange"])}
    assert "HxW" not in FieldRow(fields["image_size"], "image_size", "").hint


async def test_field_with_exactly_the_searched_name_comes_first(suite):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_cases(pilot)
        await pilot.press("f4")
        await choose(pilot, "gemm")
        form = await wait_for_form(pilot)
        await pilot.press("ctrl+f", "n")
        await wait_until(pilot, lambda: list_shown_names(form)[:1] == ["n"])
        await pilot.press("enter", "6", "4")
        await wait_until(pilot, lambda: form.texts.by_name["n"] == "64")


async def test_f3_shows_only_fields_with_a_value_of_their_own(suite):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        form = await open_first_case(pilot)
        await fill(pilot, "halo_len", "1")  # its default
        await fill(pilot, "batch_size", "2")
        await wait_until(pilot, lambda: "•batch_size" in read_screen(app))
        await pilot.press("f3")
        await wait_until(pilot, lambda: "set fields of" in read_screen(app))
        assert list_shown_names(form) == [
            "name",
            "image_size",
            "batch_size",
            "num_spatial_parts",
            "slice_method",
            "halo_len",
        ]
        await pilot.press("f3")
        await wait_until(pilot, lambda: len(list_shown_names(form)) > 10)
        assert not form.query_one(SearchBar).is_open


def test_filter_needs_all_words():
    row = FieldRow(list_param_fields(BENCHMARKS["link.ring"])[0], "sizes", "")
    assert RowFilter("").selects(row)
    assert RowFilter("SIZES message").selects(row)
    assert RowFilter("sweep").selects(row)
    [matrix_size] = [f for f in list_param_fields(BENCHMARKS["compute.gemm"]) if f.name == "n"]
    assert RowFilter("size").selects(FieldRow(matrix_size, "n", ""))
    assert not RowFilter("sizes banana").selects(row)
    assert not RowFilter(set_only=True).selects(row)
    assert RowFilter(set_only=True).selects(FieldRow(row.field, "sizes", "16"))


@pytest.mark.parametrize("name", [*BENCHMARKS, "launch"])
def test_hint_of_each_field_fits_into_a_small_terminal(name):
    is_launch = name == "launch"
    fields = list_launch_fields() if is_launch else list_param_fields(BENCHMARKS[name])
    for field in fields:
        hint = FieldRow(field, field.name, "").hint
        assert len(textwrap.wrap(hint, HINT_WIDTH)) <= HINT_HEIGHT, hint


async def test_sweep_syntax_is_shown_where_sweeps_work(suite):
    app = open_suite(suite)
    async with app.run_test(size=NARROW) as pilot:
        form = await open_first_case(pilot)
        assert 0 < form.query_one("#hint").size.height <= HINT_HEIGHT
        assert form.query_one("#hint").size.width >= HINT_WIDTH
        assert "Sweep:" not in read_screen(app)  # the name takes one value
        await fill(pilot, "dtype", "fp32")
        await wait_until(pilot, lambda: "Sweep: fp32, fp64" in read_screen(app))
        await fill(pilot, "image_size", "64")
        await wait_until(pilot, lambda: "Sweep: 64, 128 or 1..9 +2 or 8..64 *2" in read_screen(app))
        await fill(pilot, "repeat", "2")
        await wait_until(pilot, lambda: "Sweep:" not in read_screen(app))


async def test_default_follows_from_other_fields(suite):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        form = await open_first_case(pilot)
        rows = {row.key: row for row in form.query(FieldRow)}
        await wait_until(pilot, lambda: rows["grid"].query_one(Input).placeholder == "1x2")
        assert rows["np"].query_one(Input).placeholder == "2"
        await fill(pilot, "num_spatial_parts", "4")
        await wait_until(pilot, lambda: rows["grid"].query_one(Input).placeholder == "1x4")
        assert "Default if empty: 1x4." in rows["grid"].hint


def make_suite_text():
    return SUITE.replace("cases:\n", f"{DEFAULTS}cases:\n", 1)


def test_unchanged_form_does_not_write_inherited_values(tmp_path):
    text = make_suite_text()
    draft = CaseDraft("third", "link.pingpong")
    fields = FormFields(BENCHMARKS[draft.benchmark], draft, read_defaults(text))
    assert fields.inherited_texts == {"np": "2", "iterations": "7", "sizes": "8"}
    assert fields.inherited_metrics == ("time_ms",)
    result = read_form_draft(fields, fields.initial_texts)
    assert result.draft == draft
    edited = insert_case(text, result.draft)
    third = check_text(edited.text, tmp_path / "a.yaml").suite.cases[-1]
    assert (third.np, third.params["iterations"], third.params["sizes"]) == (2, 7, [8])
    texts = {**fields.initial_texts.by_name, "iterations": "9"}
    changed_draft = read_form_draft(fields, FormTexts(texts)).draft
    assert changed_draft.params == {"iterations": 9}


def test_preview_has_the_cases_with_inherited_values(tmp_path):
    text = make_suite_text()
    draft = CaseDraft("third", "link.pingpong")

    def write(draft):
        return insert_case(text, draft)

    preview = build_preview(
        draft, write, tmp_path / "a.yaml", lambda suite: SuiteForecast(), read_defaults(text)
    )
    assert preview.problems == ()
    assert [case.params["iterations"] for case in preview.cases] == [7]


def test_explicit_values_that_are_defaults_of_spbench_are_kept():
    text = make_suite_text().replace("  np: 2\n", "  np: 2\n  repeat: 3\n", 1)
    text = text.replace("  - name: second\n", "  - name: second\n    repeat: 1\n")
    draft = CaseDraft("second", "link.pingpong", np=2, matrix={"iterations": [5]}, repeat=1)
    assert "repeat: 1" in replace_case(text, 1, draft).text


@pytest.mark.parametrize(
    ("defaults", "typed", "expected"),
    [({}, "1", None), ({}, "2", 2), ({"repeat": 3}, "3", None), ({"repeat": 3}, "1", 1)],
)
def test_repeats_are_written_only_if_they_differ_from_those_without_them(defaults, typed, expected):
    draft = CaseDraft("third", "link.pingpong")
    fields = FormFields(BENCHMARKS["link.pingpong"], draft, defaults)
    texts = FormTexts({**fields.initial_texts.by_name, "repeat": typed})
    assert read_form_draft(fields, texts).draft.repeat == expected


async def test_new_case_has_no_starting_value_that_it_inherits(suite):
    text = SUITE.replace("cases:\n", "defaults:\n  params:\n    batch_size: 8\ncases:\n", 1)
    suite.write_text(text.replace("num_spatial_parts: 2", "num_spatial_parts: 2, batch_size: 1"))
    app = open_suite(suite)
    async with app.run_test(size=(140, 40)) as pilot:
        await wait_for_cases(pilot)
        await pilot.press("f4")
        await choose(pilot, "resnet")
        form = await wait_for_form(pilot)
        texts = form.texts.by_name
        assert (texts["depth"], texts["batch_size"]) == ("11", "")
        row = next(row for row in form.query(FieldRow) if row.key == "batch_size")
        assert row.query_one(Input).placeholder == "8 (defaults)"
        assert "Inherited from defaults: 8." in row.hint
        message = form.query_one("#message", Static)
        await wait_until(pilot, lambda: "1 case on" in str(message.content))
        await pilot.press("ctrl+s")
        await wait_for_cases(pilot, 4)
        suite_text = get_editor(app).text
        assert "depth: 11" in suite_text
        assert suite_text.count("batch_size") == 2


async def test_invalid_field_is_shown_although_the_search_hides_it(suite):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        form = await open_first_case(pilot)
        rows = form.query_one(FieldList).query(FieldRow)
        row = next(row for row in rows if row.key == "image_size")
        row.query_one(Input).value = "many"
        await pilot.press("ctrl+f", *"halo_len")
        await wait_until(pilot, lambda: list_shown_names(form) == ["halo_len"])
        await pilot.press("ctrl+s")
        await wait_until(pilot, lambda: app.focused is row.query_one(Input))
        assert row.display


@pytest.mark.parametrize("size", SIZES)
async def test_focused_field_is_in_view_after_searches(suite, size):
    app = open_suite(suite)
    async with app.run_test(size=size) as pilot:
        form = await open_first_case(pilot)
        fields = form.query_one(FieldList)

        def shows_focused(key):
            row = app.focused.parent
            is_focused = isinstance(row, TextRow) and row.key == key
            return is_focused and fields.region.contains_region(row.region)

        await fill(pilot, "launch.timeout", "77")
        await wait_until(pilot, lambda: shows_focused("launch.timeout"))
        await pilot.press("f3")
        await wait_until(pilot, lambda: "launch.timeout" in list_shown_names(form))
        await wait_until(pilot, lambda: shows_focused("launch.timeout"))
        await pilot.press("f3")
        await wait_until(pilot, lambda: len(list_shown_names(form)) > 10)
        await wait_until(pilot, lambda: shows_focused("launch.timeout"))
        await pilot.press("ctrl+f", *"launch", "enter")
        await wait_until(pilot, lambda: isinstance(app.focused.parent, TextRow))
        key = app.focused.parent.key
        await wait_until(pilot, lambda: shows_focused(key))
        await pilot.press("escape")
        await wait_until(pilot, lambda: len(list_shown_names(form)) > 10)
        await wait_until(pilot, lambda: shows_focused(key))
