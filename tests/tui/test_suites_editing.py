"""Editing on the Suites page: cursor, deletions, changes on disk, and new suites."""

import threading

import pytest
from textual.widgets import Input

from spbench.errors import Diagnostic
from spbench.suites.edit.outline import lacks_only_cases
from spbench.suites.loader import CheckedText, check_text
from spbench.tui.dialogs import AskLine
from spbench.tui.suites.cases_pane import CasesPane
from spbench.tui.suites.disk_watch import DiskState, DiskWatch
from spbench.tui.suites.document import open_document
from spbench.tui.suites.problem_list import ProblemList
from spbench.tui.suites.text_pane import TextPane
from spbench.tui.suites.tree import FileCheck, check_file
from support.tui.app_driver import DEADLINE, read_screen, wait_until
from support.tui.suites_page import (
    FIRST_CASE_LINE,
    SECOND_CASE_LINE,
    SIZE,
    SUITE,
    answer,
    choose,
    get_editor,
    get_text_pane,
    list_messages,
    move_to_line,
    open_suite,
    replace_line,
    wait_for_cases,
    wait_for_form,
)

LONG = SUITE + "".join(
    f"  - name: more-{number}\n    benchmark: link.barrier\n    np: 2\n" for number in range(9)
)
HEAD = "schema: spbench.suite/1\nname: fresh\n"


def is_cursor_shown(editor):
    first = editor.scroll_offset.y
    return first <= editor.cursor_location[0] < first + editor.content_size.height


@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
async def test_cursor_stays_in_view_when_problems_are_listed(suite, size):
    suite.write_text(LONG)
    app = open_suite(suite)
    async with app.run_test(size=size) as pilot:
        await wait_for_cases(pilot, 12)
        editor = get_editor(app)
        editor.focus()
        # The last line in view, which the problems would cover.
        await move_to_line(pilot, editor.scroll_offset.y + editor.content_size.height)
        editor.scroll_to(y=0, animate=False)
        await pilot.pause()
        await pilot.press("end", "enter", *"wrong", "enter", *"wrong")
        await wait_until(pilot, lambda: app.screen.query_one(ProblemList).has_class("some"))
        await wait_until(pilot, lambda: is_cursor_shown(editor))


async def test_cursor_stays_in_view_when_the_terminal_shrinks(suite):
    suite.write_text(LONG)
    app = open_suite(suite)
    async with app.run_test(size=(120, 40)) as pilot:
        await wait_for_cases(pilot, 12)
        editor = get_editor(app)
        await move_to_line(pilot, 15)
        editor.scroll_to(y=0, animate=False)
        await pilot.resize_terminal(80, 24)
        await wait_until(pilot, lambda: editor.content_size.height < 15)
        await wait_until(pilot, lambda: is_cursor_shown(editor))


def read_title(app):
    return str(get_text_pane(app).border_title)


@pytest.mark.parametrize(
    ("line", "question"),
    [(SECOND_CASE_LINE, "Delete second and its 2 cases?"), (6, "Delete first?")],
)
async def test_deletion_names_the_number_of_cases_and_can_be_undone(suite, line, question):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_cases(pilot)
        await move_to_line(pilot, line)
        await pilot.press("f8")
        await wait_until(pilot, lambda: f"{question} (Ctrl+Z" in read_screen(app))
        await answer(pilot, "y")
        await wait_until(pilot, lambda: get_editor(app).text != SUITE)
        await pilot.press("ctrl+z")
        await wait_for_cases(pilot, 3)
        assert get_editor(app).text == SUITE


@pytest.mark.parametrize("key", ["tab", "shift+tab", "escape"])
async def test_key_that_leaves_the_text_does_not_change_it(suite, key):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_cases(pilot)
        editor = get_editor(app)
        editor.focus()
        await wait_until(pilot, lambda: "Esc Cases" in read_screen(app))
        await pilot.press(key)
        await wait_until(pilot, lambda: app.focused is not editor)
        assert editor.text == SUITE


async def test_undo_names_the_change_of_a_form_and_the_lines_of_typed_text(suite):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_cases(pilot)
        await move_to_line(pilot, SECOND_CASE_LINE)
        await pilot.press("f8")
        await wait_until(pilot, lambda: "Delete second" in read_screen(app))
        await answer(pilot, "y")
        await wait_for_cases(pilot, 1)
        get_editor(app).focus()
        pane = get_text_pane(app)
        await pilot.press("ctrl+home", "x", "ctrl+z")
        assert str(pane.border_subtitle) == "undone: text of line 1 (Ctrl+Y redoes it)"
        await pilot.press("ctrl+z")
        question = "your typing is undone; Ctrl+Z again undoes: case second deleted"
        assert app.message_log[-1].text == question
        await pilot.press("ctrl+z")
        assert str(pane.border_subtitle) == "undone: case second deleted (Ctrl+Y redoes it)"
        await pilot.press("ctrl+y")
        assert str(pane.border_subtitle) == "redone: case second deleted (Ctrl+Z undoes it)"
        assert app.message_log[-1].text == question


async def test_undone_change_of_a_form_is_shown_until_the_next_change(suite):
    app = open_suite(suite)
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_for_cases(pilot)
        await move_to_line(pilot, SECOND_CASE_LINE)
        await pilot.press("f8")
        await wait_until(pilot, lambda: "Delete second" in read_screen(app))
        await answer(pilot, "y")
        await wait_for_cases(pilot, 1)
        pane = get_text_pane(app)
        await pilot.press("ctrl+z")
        await wait_for_cases(pilot, 3)
        await pilot.press("down", "up")
        assert str(pane.border_subtitle) == "undone: case second deleted (Ctrl+Y redoes it)"
        await pilot.press("ctrl+y")
        await wait_for_cases(pilot, 1)
        assert str(pane.border_subtitle) == "redone: case second deleted (Ctrl+Z undoes it)"
        await replace_line(pilot, 1, "# mine")
        await wait_until(pilot, lambda: not pane.border_subtitle)


@pytest.mark.parametrize("key", ["ctrl+s", "f5"])
async def test_saving_or_running_removes_the_undone_change_from_the_border(suite, key):
    app = open_suite(suite)
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_for_cases(pilot)
        pane = get_text_pane(app)
        pane.editor.replace_text(f"# mine\n{SUITE}", 1, "comment added")
        await wait_until(pilot, lambda: pane.has_changes)
        await pilot.press("ctrl+z", "ctrl+y")
        assert "redone: comment added" in str(pane.border_subtitle)
        await pilot.press(key)
        await wait_until(pilot, lambda: not pane.border_subtitle)
        assert suite.read_text().startswith("# mine")


@pytest.mark.parametrize("pane_id", ["cases", "files", "command"])
async def test_typed_text_is_undone_from_each_pane(suite, pane_id):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_cases(pilot)
        editor = get_editor(app)
        editor.focus()
        await pilot.press("ctrl+home", "#")
        text = editor.text
        app.screen.query_one(f"#{pane_id}").focus()
        await wait_until(pilot, lambda: app.focused is not editor)
        await pilot.press("ctrl+z")
        await wait_until(pilot, lambda: editor.text == SUITE)
        undone = "undone: text of line 1 (Ctrl+Y redoes it)"
        assert str(app.screen.text_pane.border_subtitle) == undone
        await pilot.press("ctrl+y")
        await wait_until(pilot, lambda: editor.text == text)


async def test_undo_keeps_the_selected_case(suite):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_cases(pilot)
        pane = app.screen.query_one(CasesPane)
        await replace_line(pilot, SECOND_CASE_LINE + 2, "    np: 3")
        await wait_until(pilot, lambda: pane.case.np == 3)
        await move_to_line(pilot, FIRST_CASE_LINE)
        await wait_until(pilot, lambda: pane.case.id == "first")
        await pilot.press("ctrl+z")
        await wait_until(pilot, lambda: pane.cases.rows.cases[-1].np != 3)
        assert get_editor(app).cursor_line > SECOND_CASE_LINE
        assert pane.case.id == "first"
        app.screen.set_focus(pane.cases.table)
        await pilot.press("f8")
        await wait_until(pilot, lambda: "Delete first?" in read_screen(app))


async def test_undone_deletion_selects_the_case_that_is_back(suite):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_cases(pilot)
        pane = app.screen.query_one(CasesPane)
        await pilot.press("end", "f8")
        await answer(pilot, "y")
        await wait_for_cases(pilot, 1)
        await pilot.press("ctrl+z")
        await wait_for_cases(pilot, 3)
        assert pane.case.id == "second[iterations=5]"
        await pilot.press("f8")
        await wait_until(pilot, lambda: "Delete second" in read_screen(app))


async def test_redo_to_the_saved_text_removes_the_mark_of_changes(suite):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_cases(pilot)
        await replace_line(pilot, 1, "# mine")
        await pilot.press("ctrl+s")
        await wait_until(pilot, lambda: "not saved" not in read_title(app))
        await pilot.press("ctrl+z")
        await wait_until(pilot, lambda: "not saved" in read_title(app))
        await pilot.press("ctrl+y", "ctrl+y")
        await wait_until(pilot, lambda: "not saved" not in read_title(app))
        assert get_editor(app).text == suite.read_text()


async def test_change_on_disk_is_shown_and_reloaded(suite):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_cases(pilot)
        disk_text = SUITE + "# theirs\n"
        suite.write_text(disk_text)
        await wait_until(pilot, lambda: "▲ changed on disk (Ctrl+R)" in read_title(app))
        await pilot.press("ctrl+r")
        await wait_until(pilot, lambda: get_editor(app).text == disk_text)
        await wait_until(pilot, lambda: read_title(app) == "made-up.yaml")
        await pilot.press("ctrl+r")
        await wait_until(pilot, lambda: "has not changed on disk" in "".join(list_messages(app)))
        suite.unlink()
        await wait_until(pilot, lambda: "▲ deleted on disk" in read_title(app))
        await pilot.press("ctrl+r")
        await wait_until(pilot, lambda: "not reloaded" in "".join(list_messages(app)))
        assert get_editor(app).text == disk_text
        await pilot.press("ctrl+s")
        await wait_until(pilot, lambda: "was deleted on disk. Write it again?" in read_screen(app))
        await pilot.press("y")
        await wait_until(pilot, suite.exists)


async def test_reloading_asks_about_unsaved_changes(suite):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_cases(pilot)
        await replace_line(pilot, 1, "# mine")
        edited_text = get_editor(app).text
        disk_text = SUITE + "# theirs\n"
        suite.write_text(disk_text)
        await wait_until(pilot, lambda: "changed on disk" in read_title(app))
        await pilot.press("ctrl+r")
        await answer(pilot, "n")
        assert get_editor(app).text == edited_text
        await pilot.press("ctrl+r")
        await answer(pilot, "y")
        await wait_until(pilot, lambda: get_editor(app).text == disk_text)
        await pilot.press("ctrl+z")
        assert get_editor(app).text == edited_text
        await wait_until(pilot, lambda: "not saved" in read_title(app))


def test_watch_reads_a_file_only_if_its_stamp_differs(tmp_path, monkeypatch):
    path = tmp_path / "a.yaml"
    path.write_text(SUITE)
    reads = []

    def read(path):
        reads.append(path)
        return path.read_text()

    watch = DiskWatch(open_document(path))
    monkeypatch.setattr("spbench.suites.loader.read_suite_file", read)
    assert [watch.check() for _ in range(3)] == [DiskState.CURRENT] * 3
    assert len(reads) == 1
    path.write_text(SUITE + "# theirs\n")
    assert [watch.check() for _ in range(3)] == [DiskState.CHANGED] * 3
    assert len(reads) == 2
    path.write_text(SUITE)
    assert watch.check() is DiskState.CURRENT


async def test_new_suite_has_a_hint_and_no_error(suite):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_cases(pilot)
        await pilot.press("ctrl+n")
        await wait_until(pilot, lambda: isinstance(app.screen, AskLine))
        app.screen.query_one(Input).value = "suites/fresh"
        await pilot.press("enter")
        await wait_until(pilot, lambda: "appears here" in read_screen(app))
        assert read_screen(app).count("no cases yet: F4 adds one") == 1
        assert "error" not in read_screen(app)
        assert "✗" not in read_screen(app)
        await pilot.press("f5")
        await wait_until(pilot, lambda: "the suite has no cases" in "".join(list_messages(app)))
        await pilot.press("f4")
        await choose(pilot, "gemm")
        await wait_for_form(pilot)
        await pilot.press("ctrl+s")
        await wait_for_cases(pilot, 1)
        await wait_until(pilot, lambda: "F4 adds one" not in read_screen(app))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (HEAD, True),
        (HEAD + "cases:\n", True),
        (HEAD + "cases: []\n", True),
        (HEAD + "cases: 3\n", False),
        (HEAD + "cases:\nunknown: 1\n", False),
        ("name: fresh\ncases:\n", False),
        ("", False),
        ("name: [\n", False),
        (SUITE, False),
    ],
)
def test_suite_lacks_only_cases(tmp_path, text, expected):
    path = tmp_path / "a.yaml"
    assert lacks_only_cases(check_text(text, path), text) is expected
    path.write_text(text)
    if expected:
        assert check_file(path) == FileCheck(0, 0)


def test_other_single_error_is_an_error():
    checked_text = CheckedText(None, (Diagnostic("a.yaml", 1, 1, "wrong"),))
    assert not lacks_only_cases(checked_text, SUITE)


async def test_text_typed_before_the_question_of_a_deletion_is_kept(suite, monkeypatch):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_cases(pilot)
        await move_to_line(pilot, FIRST_CASE_LINE)
        parse = TextPane.parse

        async def type_and_parse(self):
            monkeypatch.undo()
            parsed = await parse(self)
            await replace_line(pilot, 0, "# typed")
            return parsed

        monkeypatch.setattr(TextPane, "parse", type_and_parse)
        await pilot.press("f8")
        await wait_until(pilot, lambda: "Delete first? (Ctrl+Z" in read_screen(app))
        await answer(pilot, "y")
        await wait_until(pilot, lambda: "name: first" not in get_editor(app).text)
        assert get_editor(app).text.startswith("# typed")


async def test_hung_check_of_the_file_is_not_repeated(suite, monkeypatch):
    release = threading.Event()
    checks = []

    def check(self):
        checks.append(self)
        release.wait(DEADLINE)

    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_cases(pilot)
        pane = get_text_pane(app)
        await wait_until(pilot, lambda: not pane._is_checking_disk)
        monkeypatch.setattr(DiskWatch, "check", check)
        for _ in range(3):
            pane._start_disk_check()
            await pilot.pause()
        assert len(checks) == 1
        release.set()
        await wait_until(pilot, lambda: not pane._is_checking_disk)
        await pilot.press("2")
        await wait_until(pilot, lambda: app.current_mode == "run")
        await wait_until(pilot, lambda: not pane._is_checking_disk)
        checks.clear()
        pane._start_disk_check()
        await pilot.pause()
        assert checks == []


async def test_key_goes_to_the_next_error(suite):
    text = SUITE.replace("np: 2", "np: two").replace("name: made-up", "nam: made-up")
    suite.write_text(text)
    app = open_suite(suite)
    async with app.run_test(size=(120, 40)) as pilot:
        await wait_until(pilot, lambda: "^G Next error" in read_screen(app))
        editor = get_editor(app)
        lines = [problem.line for problem in (await get_text_pane(app).parse()).problems]
        assert len(set(lines)) > 1
        await wait_until(pilot, lambda: editor.cursor_line == lines[0])
        editor.focus()
        for line in (*lines[1:], lines[0]):
            await pilot.press("ctrl+g")
            await wait_until(pilot, lambda line=line: editor.cursor_line == line)
        editor.load_text(SUITE)
        await wait_until(pilot, lambda: "Next error" not in read_screen(app))
