"""The form of a case: composed and edited on the screen, and written into the text."""

import asyncio
import threading
import time
from dataclasses import replace

import pytest
from textual.message_pump import MessagePump
from textual.widgets import Input

from spbench.tui.suites.cases_pane import CasesPane
from spbench.tui.suites.editor import SuiteEditor
from spbench.tui.suites.form.case_form import CaseForm
from spbench.tui.suites.form.field_row import ExpectRow, LinesBox, ReferenceRow, TextRow
from spbench.tui.suites.form.form_texts import COMMENT
from spbench.tui.suites.form.preview import build_preview
from spbench.tui.suites.page import SuitesPage
from spbench_core.catalog import BENCHMARKS
from spbench_core.catalog.parameters import Param
from support.tui.driving import SIZES, in_one_write, shown, until
from support.tui.suites_page import (
    AT_FIRST,
    SIZE,
    SUITE,
    answered,
    choose,
    complaints,
    editor,
    fill,
    first_in_form,
    ids,
    in_form,
    opened,
    ready,
    to_line,
)


async def exchange_form(pilot, key="f4"):
    """The form of a new case of halo.exchange, which a key asks for."""
    await ready(pilot)
    await pilot.press(key)
    await choose(pilot, "o.exch")
    return await in_form(pilot)


@pytest.mark.parametrize("size", SIZES)
async def test_a_sweep_composed_in_the_form_is_written_below_the_case_at_the_cursor(suite, size):
    app = opened(suite)
    async with app.run_test(size=size) as pilot:
        await ready(pilot)
        await to_line(pilot, AT_FIRST)
        form = await exchange_form(pilot, "c")
        await fill(pilot, "image_size", "64, 128")
        await fill(pilot, "halo_len", "1..3 +2")
        await fill(pilot, "num_spatial_parts", "4")
        await until(pilot, lambda: "4 cases on 4 ranks" in shown(app))
        form.query(ExpectRow).first().query(Input).first().value = "time_ms.p95"
        form.query(ExpectRow).first().query(".bound").first(Input).value = "5"
        await pilot.press("ctrl+s")
        await ready(pilot, 7)
        before, after = SUITE.split("\n  # The second")
        assert editor(app).text == (
            f"{before}\n"
            "  - name: exchange\n"
            "    benchmark: halo.exchange\n"
            "    params: {num_spatial_parts: 4}\n"
            "    matrix:\n"
            "      image_size: [64, 128]\n"
            "      halo_len: [1, 3]\n"
            "    expect:\n"
            "      time_ms.p95: {max: 5}\n"
            f"\n  # The second{after}"
        )
        assert ids(app)[1:3] == [f"exchange[image_size=64,halo_len={n}]" for n in (1, 3)]
        assert app.screen.query_one(CasesPane).case.name == "exchange"
        await pilot.press("ctrl+z") if app.focused is editor(app) else editor(app).undo()
        await ready(pilot, 3)
        assert editor(app).text == SUITE


NARROW = SIZES[0]


async def test_a_row_has_its_texts_before_its_boxes_are_mounted(suite):
    expected = ("time_ms.p50", "5", "")
    reference = ("time_ms.p50", "big", "0.35", "-0.1", "0.05")
    async with opened(suite).run_test() as pilot:
        await ready(pilot)
        rows = ExpectRow(["time_ms"], expected), ReferenceRow(["time_ms"], reference)
        assert not any(row.query(Input) for row in rows)
        assert (rows[0].texts, rows[1].texts) == (expected, reference)


async def test_references_of_systems_are_written_below_their_metric(suite):
    app = opened(suite)
    async with app.run_test(size=NARROW) as pilot:
        form = await exchange_form(pilot)
        for number, texts in enumerate(
            [("time_ms.p50", "big", "0.35", "-0.1", "0.05"), ("time_ms.p50", "vm", "2", "", "0.5")]
        ):
            await until(pilot, lambda number=number: len(form.query(ReferenceRow)) > number)
            row = form.query(ReferenceRow)[number]
            await until(pilot, lambda row=row: len(row.query(Input)) == 5)
            row.scroll_visible(animate=False)
            for box, text in zip(row.query(Input), texts, strict=True):
                box.value = text
                assert box.region.right <= NARROW[0] - 3
        await until(pilot, lambda: len(form.query(ReferenceRow)) == 3)
        await pilot.press("ctrl+s")
        await ready(pilot, 4)
        assert (
            "    expect:\n"
            "      time_ms.p50:\n"
            "        systems: {big: {reference: 0.35, lower: -0.1, upper: 0.05}, "
            "vm: {reference: 2, upper: 0.5}}\n"
        ) in editor(app).text


async def test_the_form_says_what_the_loader_would_say_and_writes_nothing_wrong(suite):
    app = opened(suite)
    async with app.run_test(size=SIZE) as pilot:
        await exchange_form(pilot)
        row = await fill(pilot, "halo_len", "1, x")
        await until(pilot, lambda: "✗ halo_len: 'x' is not a whole number" in shown(app))
        app.screen.query_one("#write").focus()
        await pilot.press("ctrl+s")
        await until(pilot, lambda: app.focused is row.query_one(Input))
        assert isinstance(app.screen, CaseForm)
        assert complaints(app) == []  # they would cover the buttons
        await fill(pilot, "halo_len", "1")
        await fill(pilot, "name", "second")
        await until(pilot, lambda: "duplicate case name 'second'" in shown(app))
        await pilot.press("ctrl+s", "escape")
        await answered(pilot, "y")
        await until(pilot, lambda: isinstance(app.screen, SuitesPage))
        assert editor(app).text == SUITE


@pytest.mark.long
async def test_up_and_down_leave_a_box_of_lines_at_its_ends(suite):
    app = opened(suite)
    async with app.run_test(size=SIZE) as pilot:
        form = await first_in_form(pilot)
        box = next(row for row in form.query(TextRow) if row.key == COMMENT).query_one(LinesBox)
        box.focus()
        box.text = "one\ntwo " + "and more " * 8
        await pilot.press("down")
        assert app.focused is box
        await pilot.press("down")
        assert app.focused is box  # the second line is wrapped
        box.move_cursor(box.document.end)
        await pilot.press("down")
        assert app.focused is not box
        await pilot.press("up")
        assert app.focused is box
        box.move_cursor((0, 0))
        await pilot.press("shift+up")
        assert app.focused is box
        await pilot.press("up")
        assert app.focused is not box


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        (["down"] * 4, "image_size"),
        pytest.param(["down"] * 5 + ["up"] * 3, "repeat", marks=pytest.mark.long),
        pytest.param(["tab"] * 4 + ["shift+tab"], COMMENT, marks=pytest.mark.long),
        (["4", "enter", "2", "enter"], "repeat"),
    ],
)
async def test_keys_that_come_at_once_land_in_the_field_to_which_those_before_went(
    suite, keys, key
):
    app = opened(suite)
    async with app.run_test(size=SIZE) as pilot:
        form = await exchange_form(pilot)
        first = form.texts.by_name
        in_one_write(app, [*keys, "s", "p"])
        await until(pilot, lambda: form.texts.by_name[key].endswith("sp"))
        typed = {"name": "4", "np": "2"} if "enter" in keys else {}
        assert form.texts.by_name == {**first, **typed, key: "sp"}


@pytest.mark.long
async def test_keys_typed_on_a_machine_that_needs_seconds_for_each_land_there_too(
    suite, monkeypatch
):
    dispatch = MessagePump._dispatch_message

    async def slowly(self, message):
        time.sleep(0.05)
        await dispatch(self, message)

    app = opened(suite)
    async with app.run_test(size=SIZE) as pilot:
        form = await exchange_form(pilot)
        first = form.texts.by_name
        with monkeypatch.context() as patch:
            patch.setattr(MessagePump, "_dispatch_message", slowly)
            for key in ("down", "down", "s", "p"):
                in_one_write(app, [key])
                await asyncio.sleep(0.6)
            async with asyncio.timeout(60):
                while form.texts.by_name == first or app._pending_keys:
                    await asyncio.sleep(0.1)
        await pilot.pause()
        assert [key for key, text in form.texts.by_name.items() if text == "sp"] == ["repeat"]


@pytest.mark.long
async def test_a_box_of_lines_takes_back_more_lines_than_it_shows(suite):
    app = opened(suite)
    async with app.run_test(size=SIZE) as pilot:
        form = await exchange_form(pilot)
        box = form.query(LinesBox).first()
        box.focus()
        box.insert("one\n" * 9)
        await until(pilot, lambda: box.show_vertical_scrollbar)
        await pilot.press("ctrl+z")
        assert (box.text, box.cursor_location) == ("", (0, 0))
        await until(pilot, lambda: not box.show_vertical_scrollbar)


async def test_a_form_left_while_its_case_is_being_resolved_leaves_quietly(suite, monkeypatch):
    app = opened(suite)
    async with app.run_test(size=SIZE) as pilot:
        form = await exchange_form(pilot)
        begun = threading.Event()
        parts_go = threading.Event()

        def late(*given):
            begun.set()
            assert parts_go.wait(30)
            return build_preview(*given)

        async def go_last(editor):
            parts_go.set()
            await asyncio.sleep(0.3)  # the other parts are gone, and the form is not

        monkeypatch.setattr("spbench.tui.suites.form.case_form.build_preview", late)
        form._schedule_preview()
        await until(pilot, begun.is_set)
        monkeypatch.setattr(SuiteEditor, "on_unmount", go_last, raising=False)
        form.dismiss(None)
        await until(pilot, lambda: isinstance(app.screen, SuitesPage))
        await until(pilot, lambda: not form.is_attached)
        assert parts_go.is_set()
        monkeypatch.undo()


async def test_a_case_is_edited_in_the_form_and_all_else_stays_as_it_is_written(suite):
    app = opened(suite)
    async with app.run_test(size=SIZE) as pilot:
        await first_in_form(pilot)
        await fill(pilot, "image_size", "96")
        await pilot.press("ctrl+s")
        await until(pilot, lambda: isinstance(app.screen, SuitesPage))
        assert editor(app).text == SUITE.replace("image_size: 64", "image_size: 96")


@pytest.mark.long
async def test_a_benchmark_that_is_new_in_the_catalog_is_in_the_list_and_in_the_form(
    suite, monkeypatch
):
    known = BENCHMARKS["memory.copy"]
    flavour = Param("flavour", "choice", "sweet", "what it tastes of", choices=("sweet", "sour"))
    made_up = replace(
        known, name="novel.kind", summary="a benchmark of a test", params=(flavour, *known.params)
    )
    monkeypatch.setitem(BENCHMARKS, "novel.kind", made_up)
    app = opened(suite)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("c")
        await until(pilot, lambda: "type to find" in shown(app))
        await pilot.press(*"novel")
        await until(pilot, lambda: "a benchmark of a test" in shown(app))
        await pilot.press("enter")
        await in_form(pilot)
        assert "what it tastes of" in shown(app)
        await fill(pilot, "flavour", "sweet, sour")
        await fill(pilot, "np", "2")
        await until(pilot, lambda: "2 cases on 2 ranks" in shown(app))
        await pilot.press("ctrl+s")
        await ready(pilot, 5)
        assert "kind[flavour=sour]" in ids(app)
