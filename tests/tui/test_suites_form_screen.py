"""The form of a case on the screen: composition, editing, and the written text."""

import asyncio
import re
import threading
import time
from dataclasses import replace

import pytest
from textual.message_pump import MessagePump
from textual.widgets import Input

from spbench.tui.chooser import Chooser
from spbench.tui.form.field_row import TextRow, fit_clauses
from spbench.tui.suites.cases_pane import CasesPane
from spbench.tui.suites.editor import SuiteEditor
from spbench.tui.suites.form.case_form import CaseForm
from spbench.tui.suites.form.form_texts import COMMENT
from spbench.tui.suites.form.metric_rows import ExpectRow, ReferenceRow
from spbench.tui.suites.form.preview import build_preview
from spbench.tui.suites.page import SuitesPage
from spbench.tui.widgets.text_box import LinesBox
from spbench_core.catalog import BENCHMARKS
from spbench_core.catalog.parameters import Param
from spbench_core.catalog.tiles import SLICE_METHOD
from support.tui.app_driver import SIZES, post_keys, read_screen, wait_until
from support.tui.suites_page import (
    FIRST_CASE_LINE,
    SIZE,
    SUITE,
    answer,
    choose,
    fill,
    get_editor,
    list_case_ids,
    list_messages,
    move_to_line,
    open_first_case,
    open_suite,
    wait_for_cases,
    wait_for_form,
)


async def open_exchange_form(pilot, key="f4"):
    """Open the form of a new case of halo.exchange by a key."""
    await wait_for_cases(pilot)
    await pilot.press(key)
    await choose(pilot, "o.exch")
    return await wait_for_form(pilot)


@pytest.mark.parametrize(("width", "shown"), [(80, " 8, 1KiB… "), (200, " 8, 1KiB, 64KiB, 1MiB… ")])
async def test_box_shows_as_much_of_the_default_as_the_terminal_allows(suite, width, shown):
    app = open_suite(suite)
    async with app.run_test(size=(width, 60)) as pilot:
        await wait_for_cases(pilot)
        await pilot.press("f4")
        await choose(pilot, "pingpong")
        await wait_for_form(pilot)
        await wait_until(pilot, lambda: shown in read_screen(app))


@pytest.mark.parametrize("size", SIZES)
async def test_composed_sweep_goes_below_the_case_at_the_cursor(suite, size):
    app = open_suite(suite)
    async with app.run_test(size=size) as pilot:
        await wait_for_cases(pilot)
        await move_to_line(pilot, FIRST_CASE_LINE)
        form = await open_exchange_form(pilot, "c")
        await fill(pilot, "image_size", "64, 128")
        await fill(pilot, "halo_len", "1..3 +2")
        await fill(pilot, "num_spatial_parts", "4")
        await wait_until(pilot, lambda: "4 cases on 4 ranks" in read_screen(app))
        form.query(ExpectRow).first().query(Input).first().value = "time_ms.p95"
        form.query(ExpectRow).first().query(".bound").first(Input).value = "5"
        await pilot.press("ctrl+s")
        await wait_for_cases(pilot, 7)
        before, after = SUITE.split("\n  # The second")
        assert get_editor(app).text == (
            f"{before}\n"
            "  - name: exchange\n"
            "    benchmark: halo.exchange\n"
            "    params:\n"
            "      num_spatial_parts: 4\n"
            "    matrix:\n"
            "      image_size: [64, 128]\n"
            "      halo_len: [1, 3]\n"
            "    expect:\n"
            "      time_ms.p95:\n"
            "        max: 5\n"
            f"\n  # The second{after}"
        )
        assert list_case_ids(app)[1:3] == [f"exchange[image_size=64,halo_len={n}]" for n in (1, 3)]
        assert app.screen.query_one(CasesPane).case.name == "exchange"
        await pilot.press("ctrl+z") if app.focused is get_editor(app) else get_editor(app).undo()
        await wait_for_cases(pilot, 3)
        assert get_editor(app).text == SUITE


NARROW = SIZES[0]


@pytest.mark.parametrize(("size", "rows"), [((80, 24), 15), ((120, 40), 30)])
async def test_list_of_benchmarks_uses_the_rows_of_the_screen(suite, size, rows):
    app = open_suite(suite)
    async with app.run_test(size=size) as pilot:
        await wait_for_cases(pilot)
        await pilot.press("f4")
        await wait_until(pilot, lambda: isinstance(app.screen, Chooser))
        await wait_until(pilot, lambda: app.screen.query_one("#found").size.height == rows)
        assert app.screen.query_one("#found").region.bottom < size[1] - 1


async def test_narrow_form_gives_free_rows_to_the_fields(suite):
    app = open_suite(suite)
    async with app.run_test(size=(80, 24)) as pilot:
        form = await open_exchange_form(pilot)
        await wait_until(pilot, lambda: form.query_one("#preview").size.height <= 2)
        assert form.query_one("#hint").size.height <= 2
        assert form.query_one("#fields").size.height >= 13


async def test_low_form_shows_its_first_heading_and_the_whole_reason_of_a_rejection(suite):
    app = open_suite(suite)
    async with app.run_test(size=(80, 24)) as pilot:
        form = await open_exchange_form(pilot)
        await wait_until(pilot, lambda: "│ Case  " in read_screen(app))
        button = form.query_one("#write")
        assert not button.has_class("wrong")
        await fill(pilot, "num_spatial_parts", "3")
        await pilot.press("ctrl+s")
        await wait_until(pilot, lambda: "✗ 1 field is wrong: num_spatial_parts" in read_screen(app))
        await wait_until(pilot, lambda: "do: 1, 4)" in read_screen(app))
        assert button.has_class("wrong")
        await fill(pilot, "num_spatial_parts", "4")
        await wait_until(pilot, lambda: not button.has_class("wrong"))


async def test_list_of_choices_begins_with_the_default_of_an_empty_field(suite):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await open_exchange_form(pilot)
        row = await fill(pilot, "slice_method", "")
        row.query_one(Input).focus()
        await pilot.press("f2")
        await wait_until(pilot, lambda: isinstance(app.screen, Chooser))
        shown = r"square +the present one, as the default"
        await wait_until(pilot, lambda: re.search(shown, read_screen(app)))


async def test_list_of_choices_begins_with_the_present_one(suite):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await open_exchange_form(pilot)
        row = await fill(pilot, "slice_method", "square")
        row.query_one(Input).focus()
        await pilot.press("f2")
        await wait_until(pilot, lambda: isinstance(app.screen, Chooser))
        await wait_until(pilot, lambda: "the present one" in read_screen(app))
        await pilot.press("enter")
        await wait_until(pilot, lambda: isinstance(app.screen, CaseForm))
        assert row.text == "square"


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (80, "vertical divides the width, horizontal the height, square (default) both"),
        (60, "vertical divides the width, horizontal the height"),
        (30, "vertical divides the width"),
        (25, "vertical divides"),
        (46, "vertical divides the width"),
    ],
)
def test_shortened_description_ends_with_a_whole_clause(width, shown):
    assert fit_clauses(SLICE_METHOD.help, width).rstrip() == shown


def test_shortened_description_without_its_details_is_complete():
    help = "method that transfers halos; auto times the possible ones: all, or some"
    assert (
        fit_clauses(help, 66).rstrip()
        == "method that transfers halos; auto times the possible ones"
    )
    assert fit_clauses(help, 40).rstrip() == "method that transfers halos"
    assert fit_clauses(help, 20).rstrip() == "method"
    assert fit_clauses("kind of the store; default: the first of the list", 37).rstrip() == (
        "kind of the store"
    )


async def test_row_has_texts_before_its_inputs_are_mounted(suite):
    expected = ("time_ms.p50", "5", "")
    reference = ("time_ms.p50", "big", "0.35", "-0.1", "0.05")
    async with open_suite(suite).run_test() as pilot:
        await wait_for_cases(pilot)
        rows = ExpectRow(["time_ms"], expected), ReferenceRow(["time_ms"], reference)
        assert not any(row.query(Input) for row in rows)
        assert (rows[0].texts, rows[1].texts) == (expected, reference)


async def test_expectations_and_references_start_at_the_same_column(suite):
    app = open_suite(suite)
    async with app.run_test(size=(200, 60)) as pilot:
        form = await open_exchange_form(pilot)
        boxes = form.query("#fields .metric")
        await wait_until(pilot, lambda: all(box.region.width for box in boxes))
        assert len({box.region.x for box in boxes}) == 1


async def test_references_of_systems_go_below_their_metric(suite):
    app = open_suite(suite)
    async with app.run_test(size=NARROW) as pilot:
        form = await open_exchange_form(pilot)
        for number, texts in enumerate(
            [("time_ms.p50", "big", "0.35", "-0.1", "0.05"), ("time_ms.p50", "vm", "2", "", "0.5")]
        ):
            await wait_until(pilot, lambda number=number: len(form.query(ReferenceRow)) > number)
            row = form.query(ReferenceRow)[number]
            await wait_until(pilot, lambda row=row: len(row.query(Input)) == 5)
            row.scroll_visible(animate=False)
            for input_widget, text in zip(row.query(Input), texts, strict=True):
                input_widget.value = text
                assert input_widget.region.right <= NARROW[0] - 3
        await wait_until(pilot, lambda: len(form.query(ReferenceRow)) == 3)
        await pilot.press("ctrl+s")
        await wait_for_cases(pilot, 4)
        assert (
            "    expect:\n"
            "      time_ms.p50:\n"
            "        systems:\n"
            "          big:\n"
            "            reference: 0.35\n"
            "            lower: -0.1\n"
            "            upper: 0.05\n"
            "          vm:\n"
            "            reference: 2\n"
            "            upper: 0.5\n"
        ) in get_editor(app).text


async def test_form_shows_errors_of_the_loader_and_writes_none(suite):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await open_exchange_form(pilot)
        row = await fill(pilot, "halo_len", "1, x")
        await wait_until(pilot, lambda: "✗ halo_len: 'x' is not a whole number" in read_screen(app))
        app.screen.query_one("#write").focus()
        await pilot.press("ctrl+s")
        await wait_until(pilot, lambda: app.focused is row.query_one(Input))
        assert isinstance(app.screen, CaseForm)
        await wait_until(pilot, lambda: "✗ 1 field is wrong: halo_len" in read_screen(app))
        assert list_messages(app) == []  # messages would cover the buttons
        await fill(pilot, "halo_len", "1")
        await fill(pilot, "name", "second")
        await wait_until(pilot, lambda: "duplicate case name 'second'" in read_screen(app))
        await pilot.press("ctrl+s", "escape")
        await answer(pilot, "y")
        await wait_until(pilot, lambda: isinstance(app.screen, SuitesPage))
        assert get_editor(app).text == SUITE


@pytest.mark.long
async def test_up_and_down_leave_a_lines_box_at_its_ends(suite):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        form = await open_first_case(pilot)
        lines_box = next(row for row in form.query(TextRow) if row.key == COMMENT).query_one(
            LinesBox
        )
        lines_box.focus()
        lines_box.text = "one\ntwo " + "and more " * 8
        await pilot.press("down")
        assert app.focused is lines_box
        await pilot.press("down")
        assert app.focused is lines_box  # the second line is wrapped
        lines_box.move_cursor(lines_box.document.end)
        await pilot.press("down")
        assert app.focused is not lines_box
        await pilot.press("up")
        assert app.focused is lines_box
        lines_box.move_cursor((0, 0))
        await pilot.press("shift+up")
        assert app.focused is lines_box
        await pilot.press("up")
        assert app.focused is not lines_box


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        (["down"] * 4, "image_size"),
        pytest.param(["down"] * 5 + ["up"] * 3, "repeat", marks=pytest.mark.long),
        pytest.param(["tab"] * 4 + ["shift+tab"], COMMENT, marks=pytest.mark.long),
        (["4", "enter", "2", "enter"], "repeat"),
    ],
)
async def test_queued_keys_reach_the_field_focused_by_earlier_ones(suite, keys, key):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        form = await open_exchange_form(pilot)
        initial_texts = form.texts.by_name
        post_keys(app, [*keys, "s", "p"])
        await wait_until(pilot, lambda: form.texts.by_name[key].endswith("sp"))
        changed_texts = {"name": "4", "np": "2"} if "enter" in keys else {}
        assert form.texts.by_name == {**initial_texts, **changed_texts, key: "sp"}


@pytest.mark.long
async def test_keys_reach_their_field_on_a_slow_machine(suite, monkeypatch):
    dispatch = MessagePump._dispatch_message

    async def dispatch_slowly(self, message):
        time.sleep(0.05)
        await dispatch(self, message)

    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        form = await open_exchange_form(pilot)
        initial_texts = form.texts.by_name
        with monkeypatch.context() as patch:
            patch.setattr(MessagePump, "_dispatch_message", dispatch_slowly)
            for key in ("down", "down", "s", "p"):
                post_keys(app, [key])
                await asyncio.sleep(0.6)
            async with asyncio.timeout(60):
                while form.texts.by_name == initial_texts or app._pending_keys:
                    await asyncio.sleep(0.1)
        await pilot.pause()
        assert [key for key, text in form.texts.by_name.items() if text == "sp"] == ["repeat"]


@pytest.mark.long
async def test_undo_in_a_lines_box_shrinks_it(suite):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        form = await open_exchange_form(pilot)
        lines_box = form.query(LinesBox).first()
        lines_box.focus()
        lines_box.insert("one\n" * 9)
        await wait_until(pilot, lambda: lines_box.show_vertical_scrollbar)
        await pilot.press("ctrl+z")
        assert (lines_box.text, lines_box.cursor_location) == ("", (0, 0))
        await wait_until(pilot, lambda: not lines_box.show_vertical_scrollbar)


async def test_form_can_close_while_its_preview_is_built(suite, monkeypatch):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        form = await open_exchange_form(pilot)
        started = threading.Event()
        release = threading.Event()

        def build_late(*arguments):
            started.set()
            assert release.wait(30)
            return build_preview(*arguments)

        async def unmount_last(get_editor):
            release.set()
            await asyncio.sleep(0.3)  # the other parts are gone, and the form is not

        monkeypatch.setattr("spbench.tui.suites.form.case_form.build_preview", build_late)
        form._schedule_preview()
        await wait_until(pilot, started.is_set)
        monkeypatch.setattr(SuiteEditor, "on_unmount", unmount_last, raising=False)
        form.dismiss(None)
        await wait_until(pilot, lambda: isinstance(app.screen, SuitesPage))
        await wait_until(pilot, lambda: not form.is_attached)
        assert release.is_set()
        monkeypatch.undo()


async def test_editing_a_case_keeps_the_rest_of_the_text(suite):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await open_first_case(pilot)
        await fill(pilot, "image_size", "96")
        await pilot.press("ctrl+s")
        await wait_until(pilot, lambda: isinstance(app.screen, SuitesPage))
        assert get_editor(app).text == SUITE.replace("image_size: 64", "image_size: 96")


@pytest.mark.long
async def test_form_supports_an_added_benchmark(suite, monkeypatch):
    benchmark = BENCHMARKS["memory.copy"]
    flavour = Param("flavour", "choice", "sweet", "what it tastes of", choices=("sweet", "sour"))
    new_benchmark = replace(
        benchmark,
        name="novel.kind",
        summary="a benchmark of a test",
        params=(flavour, *benchmark.params),
    )
    monkeypatch.setitem(BENCHMARKS, "novel.kind", new_benchmark)
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_cases(pilot)
        await pilot.press("c")
        await wait_until(pilot, lambda: "type to find" in read_screen(app))
        await pilot.press(*"novel")
        await wait_until(pilot, lambda: "a benchmark of a test" in read_screen(app))
        await pilot.press("enter")
        await wait_for_form(pilot)
        assert "what it tastes of" in read_screen(app)
        await fill(pilot, "flavour", "sweet, sour")
        await fill(pilot, "np", "2")
        await wait_until(pilot, lambda: "2 cases on 2 ranks" in read_screen(app))
        await pilot.press("ctrl+s")
        await wait_for_cases(pilot, 5)
        assert "kind[flavour=sour]" in list_case_ids(app)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (160, 48)])
async def test_long_help_of_the_focused_field_is_shown_to_its_end(suite, size):
    app = open_suite(suite)
    async with app.run_test(size=size) as pilot:
        await wait_for_cases(pilot)
        await pilot.press("f4")
        await choose(pilot, "model.network")
        form = await wait_for_form(pilot)
        row = next(row for row in form.query(TextRow) if row.key == "schedule")
        row.query_one("Input, TextArea").focus()
        await wait_until(pilot, lambda: "Default if empty: 1f1b." in read_screen(app))
