"""The Suites page: files, the text and its problems, the form, cases, commands, and starting."""

from threading import Event

import pytest
from textual.widgets import Input, OptionList

from spbench.engine.commands import build_commands
from spbench.engine.plan import Request, plan_run
from spbench.errors import MissingError
from spbench.launch.choice import LaunchChoice
from spbench.suites.case import Suite
from spbench.suites.loader import check_text
from spbench.tui.chooser import Chooser
from spbench.tui.dialogs import AskLine
from spbench.tui.suites.cases_pane import CasesPane, CommandPane
from spbench.tui.suites.document import open_document
from spbench.tui.suites.page import SuitesPage
from spbench.tui.suites.parsed_suite import parse_text
from spbench.tui.suites.text_pane import ProblemList
from spbench.tui.suites.tree import SuiteTree
from spbench.tui.widgets.line_table import LineTable
from support.tui.driving import DEADLINE, SIZES, shown, until
from support.tui.suites_page import (
    AT_FIRST,
    AT_SECOND,
    SIZE,
    SUITE,
    answered,
    choose,
    complaints,
    editor,
    ids,
    in_form,
    opened,
    pane,
    ready,
    to_line,
    type_over,
)


@pytest.mark.parametrize("size", SIZES)
async def test_a_suite_is_shown_with_its_cases_ranks_and_errors_of_its_neighbours(suite, size):
    (suite.parent / "wrong.yaml").write_text("schema: spbench.suite/1\nname: wrong\n")
    (suite.parent / "none.yaml").write_text("hosts: [a, b]\n")
    app = opened(suite)
    async with app.run_test(size=size) as pilot:
        await ready(pilot)
        await until(pilot, lambda: "▸ first" in shown(app))
        text = shown(app)
        assert "schema: spbench.suite/1" in text
        assert "3 cases" in text
        assert ids(app) == ["first", "second[iterations=5]", "second[iterations=10]"]
        narrow = size[0] == 80
        assert app.screen.query_one(SuiteTree).display is not narrow
        await pilot.press("t")
        assert app.screen.query_one(SuiteTree).display is narrow
        if not narrow:
            await pilot.press("f2")
        await until(pilot, lambda: "wrong.yaml  ✗ 1 error" in shown(app))
        assert "made-up.yaml  3 cases" in shown(app)
        assert "none.yaml" not in shown(app)


async def test_what_is_wrong_is_marked_and_said_while_one_types_until_it_is_mended(suite):
    app = opened(suite)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await type_over(pilot, 14, "    matrixx:")
        text = editor(app).text
        told = check_text(text, suite).diagnostics
        await until(pilot, lambda: app.screen.query_one(ProblemList).has_class("some"))
        await until(pilot, lambda: "as they were before the errors" in shown(app))
        await until(pilot, lambda: "14✗" in shown(app))
        screen = shown(app)
        assert len(told) == 1
        assert f"✗ 14:{told[0].column}  {told[0].message}"[:60] in screen
        assert "● made-up.yaml not saved (Ctrl+S)  ✗ 1 error" in screen
        await pilot.press("ctrl+z", "ctrl+z")
        await until(pilot, lambda: not app.screen.query_one(ProblemList).has_class("some"))
        assert editor(app).text == SUITE
        assert "✗" not in shown(app)
        assert "●" not in shown(app)


async def test_choosing_a_problem_goes_to_its_place(suite):
    suite.write_text(SUITE.replace("np: 2", "np: 1").replace("image_size: 64", "image_size: 0"))
    app = opened(suite)
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: shown(app).count("✗") > 3)
        problems = app.screen.query_one(ProblemList)
        problems.focus()
        await pilot.press("down", "down", "enter")
        await until(pilot, lambda: app.focused is editor(app))
        assert editor(app).cursor_location == (12, 8)


@pytest.mark.long
async def test_the_cursor_chooses_a_case_and_a_chosen_case_moves_the_cursor(suite):
    app = opened(suite)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        table = app.screen.query_one(LineTable)
        editor(app).focus()
        await to_line(pilot, AT_SECOND + 2)
        await until(pilot, lambda: table.cursor_key == "second[iterations=5]")
        table.focus()
        await pilot.press("down")
        await until(pilot, lambda: app.screen.query_one(CasesPane).case.id.endswith("10]"))
        assert editor(app).cursor_line == AT_SECOND
        await pilot.press("home")
        await until(pilot, lambda: editor(app).cursor_line == AT_FIRST)
        assert app.focused is table
        await pilot.press("enter")
        await until(pilot, lambda: app.focused is editor(app))


async def test_a_case_is_removed_after_a_question(suite):
    app = opened(suite)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await to_line(pilot, AT_FIRST)
        await pilot.press("delete")
        await answered(pilot, "n")
        assert editor(app).text == SUITE
        await pilot.press("f8")
        await answered(pilot, "y")
        await ready(pilot, 2)
        assert "first" not in editor(app).text.replace("The first", "first")
        assert "# The second, swept.\n  - name: second" in editor(app).text


async def test_the_exact_launch_command_of_the_chosen_case_is_shown(suite):
    app = opened(suite)
    folder = suite.parent.parent
    try:
        told = build_commands(
            plan_run(Request(suite, folder / "home", app.context.options.environ))
        )
    except MissingError as error:
        pytest.skip(f"no launcher to show the command of: {error}")
    async with app.run_test(size=(200, 60)) as pilot:
        await ready(pilot)
        command = app.screen.query_one(CommandPane)
        await until(pilot, lambda: command.line == told[0].line)
        await to_line(pilot, AT_SECOND)
        standalone = dict(told[0].standalone)["second[iterations=5]"]
        await until(pilot, lambda: "--iterations 5" in shown(app))
        words = " ".join(" ".join(shown(app).split()).replace("│", "").split())
        assert "--iterations 5" in standalone
        assert command.line in words
        assert "Command of second[iterations=5]" in words
        await pilot.press("y")
        assert app.clipboard == command.line


async def test_the_cursor_on_a_case_does_not_print_the_whole_suite(suite, monkeypatch):
    printed = []

    def told(suite):
        printed.append(suite)
        return "a suite"

    monkeypatch.setattr(Suite, "__repr__", told)
    app = opened(suite)
    async with app.run_test(size=(200, 60)) as pilot:
        await ready(pilot)
        await to_line(pilot, AT_SECOND)
        await until(pilot, lambda: "Command of second" in shown(app))
    assert not printed


async def test_a_short_pane_has_the_launch_line_below_its_heading(suite):
    hosts = LaunchChoice(launcher="mpirun_rsh", assume="mvapich2-2.3.7", hosts="node[01-02]:2")
    app = opened(suite, launch_choice=hosts)
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        await until(pilot, lambda: "(assumed, not run)" in shown(app))
        await until(pilot, lambda: " mpirun_rsh " in shown(app).split("(assumed, not run)")[1])
        assert "--export-all -np 2" in app.screen.query_one(CommandPane).line


async def test_a_missing_launcher_is_its_one_sentence(suite):
    app = opened(suite, environ={"PATH": "/nowhere"}, launch_choice=LaunchChoice(launcher="srun"))
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await until(pilot, lambda: "srun" in shown(app).split("Command")[-1])
        assert app.screen.query_one(CommandPane).line == ""


async def test_a_changed_text_is_marked_and_saved(suite):
    app = opened(suite)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        assert app.screen.describe_unsaved() is None
        await type_over(pilot, 1, "# Another line.")
        await until(pilot, lambda: "● made-up.yaml not saved" in shown(app))
        assert app.screen.describe_unsaved() == "made-up.yaml is not saved."
        await pilot.press("ctrl+s")
        await until(pilot, lambda: app.screen.describe_unsaved() is None)
        assert suite.read_text() == SUITE.replace("What stands above all", "Another line")
        await until(pilot, lambda: "●" not in shown(app))


async def test_a_file_that_changed_on_disk_is_written_over_only_after_a_question(suite):
    app = opened(suite)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        theirs = SUITE + "# theirs\n"
        suite.write_text(theirs)
        await pilot.press("f5")
        await until(pilot, lambda: any("changed on disk" in note for note in complaints(app)))
        assert app.started == []
        await type_over(pilot, 1, "# mine")
        await pilot.press("ctrl+s")
        await answered(pilot, "n")
        assert suite.read_text() == theirs
        await pilot.press("ctrl+s")
        await answered(pilot, "y")
        await until(pilot, lambda: suite.read_text() == editor(app).text)


async def test_unsaved_changes_are_asked_about_when_another_file_is_opened(suite):
    (suite.parent / "other.yaml").write_text(SUITE.replace("name: made-up", "name: other"))
    app = opened(suite)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await type_over(pilot, 1, "# mine")
        tree = app.screen.query_one(SuiteTree)
        tree.focus()
        await until(pilot, lambda: "other.yaml" in shown(app))
        await pilot.press("down", "enter")
        await answered(pilot, "n")
        assert "# mine" in editor(app).text
        await pilot.press("enter")
        await answered(pilot, "y")
        await until(pilot, lambda: "name: other" in editor(app).text)
        assert not pane(app).has_changes


@pytest.mark.long
async def test_cases_composed_in_a_new_suite_are_taken_back_where_the_text_then_fits(suite):
    app = opened(suite)
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        await pilot.press("n")
        await until(pilot, lambda: isinstance(app.screen, AskLine))
        app.screen.query_one(Input).value = "suites/fresh"
        await pilot.press("enter")
        await until(pilot, lambda: "● fresh.yaml not saved" in shown(app))
        for count in (1, 2, 3):
            await pilot.press("f4")
            await choose(pilot, "gemm")
            await in_form(pilot)
            await pilot.press("ctrl+s")
            await ready(pilot, count)
        composed = editor(app).text
        assert editor(app).show_vertical_scrollbar
        await pilot.press("shift+tab", "ctrl+z")
        await ready(pilot, 2)
        assert not editor(app).show_vertical_scrollbar
        await pilot.press("ctrl+y")
        assert editor(app).text == composed


LONG = SUITE + "# and more\n" * 90


def undo(app):
    editor(app).insert("# more\n" * 90, location=(0, 0))
    editor(app).move_cursor(editor(app).document.end)
    editor(app).undo()


def redo(app):
    editor(app).load_text(LONG)
    editor(app).delete((5, 0), editor(app).document.end)
    editor(app).undo()
    editor(app).move_cursor(editor(app).document.end)
    editor(app).redo()


def delete(app):
    editor(app).load_text(LONG)
    editor(app).select_all()
    editor(app).action_delete_left()


def change(app):
    editor(app).load_text(LONG)
    editor(app).move_cursor(editor(app).document.end)
    editor(app).replace_text(SUITE[:40], 1)


def open_another(app):
    editor(app).load_text(LONG)
    editor(app).move_cursor(editor(app).document.end)
    (app.context.options.suite.parent / "short.yaml").write_text("schema: spbench.suite/1\n")
    pane(app).open(open_document(app.context.options.suite.parent / "short.yaml"))


@pytest.mark.parametrize("shrink", [undo, redo, delete, change, open_another])
async def test_a_text_that_was_taller_than_the_editor_may_shrink_in_any_way(suite, shrink):
    app = opened(suite)
    async with app.run_test(size=(200, 60)) as pilot:
        await ready(pilot)
        shrink(app)
        assert editor(app).size.height < LONG.count("\n")
        await until(pilot, lambda: not editor(app).show_vertical_scrollbar)
        lines = editor(app).document.line_count
        assert lines < editor(app).size.height
        assert editor(app).cursor_location[0] < lines


async def test_a_new_suite_is_begun_in_a_file_that_is_not_there_yet(suite):
    app = opened(suite)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        for name, sentence in (("suites/made-up.yaml", "is there already"), ("a.txt", ".yaml")):
            await pilot.press("n")
            await until(pilot, lambda: isinstance(app.screen, AskLine))
            app.screen.query_one(Input).value = name
            await pilot.press("enter")
            await until(pilot, lambda s=sentence: any(s in note for note in complaints(app)))
        await pilot.press("n")
        await until(pilot, lambda: isinstance(app.screen, AskLine))
        app.screen.query_one(Input).value = "suites/fresh"
        await pilot.press("enter")
        await until(pilot, lambda: "● fresh.yaml not saved" in shown(app))
        await pilot.press("f4")
        await choose(pilot, "gemm")
        await in_form(pilot)
        await pilot.press("ctrl+s")
        await ready(pilot, 1)
        await pilot.press("f5")
        await until(pilot, lambda: app.started != [])
        fresh = suite.parent / "fresh.yaml"
        assert app.started == [(str(fresh),)]
        assert check_text(fresh.read_text(), fresh).suite.name == "fresh"


async def test_all_or_one_case_is_run_with_the_hosts_that_were_chosen(suite):
    app = opened(suite, launch_choice=LaunchChoice(hosts="localhost:4", launcher="openmpi"))
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        options = ("--hosts", "localhost:4", "--launcher", "openmpi")
        await pilot.press("f5")
        await until(pilot, lambda: len(app.started) == 1)
        await to_line(pilot, AT_SECOND)
        await until(pilot, lambda: app.screen.query_one(CasesPane).case.name == "second")
        await pilot.press("f6")
        await until(pilot, lambda: len(app.started) == 2)
        await pilot.press("i")
        await choose(pilot, "slow")
        await until(pilot, lambda: len(app.started) == 3)
        one = ("--case", "second[iterations=5]")
        assert app.started == [
            (str(suite), *options),
            (str(suite), *one, *options),
            (str(suite), *one, "--inject", "slow", *options),
        ]


async def test_no_letter_starts_a_run(suite):
    app = opened(suite)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("r", "R", "f5")
        await until(pilot, lambda: app.started != [])
        assert app.started == [(str(suite),)]


async def test_a_text_with_errors_is_not_run_and_one_that_changed_is_saved_first(suite):
    app = opened(suite)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await type_over(pilot, 13, "    np: 0")
        await pilot.press("f5")
        await until(pilot, lambda: "not started: 1 error to fix" in "".join(complaints(app)))
        assert app.started == []
        assert suite.read_text() == SUITE
        await type_over(pilot, 13, "    np: 3")
        await pilot.press("f6")
        await until(pilot, lambda: app.started != [])
        assert "np: 3" in suite.read_text()


@pytest.mark.long
async def test_readonly_shows_all_and_changes_nothing(suite):
    app = opened(suite, readonly=True)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        editor(app).focus()
        await pilot.press("x", "c", "e", "i", "n", "delete", "ctrl+s", "f4", "f5", "f6", "f8")
        await pilot.pause()
        assert isinstance(app.screen, SuitesPage)
        assert editor(app).text == suite.read_text() == SUITE
        assert app.started == []
        assert "Compose" not in shown(app)
        assert "Files" in shown(app)


async def test_without_a_suite_the_files_are_shown_and_one_opens_by_enter_or_a_click(suite):
    (suite.parent / "other.yaml").write_text(SUITE)
    app = opened(suite, suite=None)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "other.yaml  3 cases" in shown(app))
        assert "No suite is open" in shown(app)
        await pilot.press("f5", "c")
        await until(pilot, lambda: len(complaints(app)) == 2)
        await pilot.press("enter")
        await ready(pilot)
        assert pane(app).document.path == suite
        await pilot.press("t")
        await until(pilot, lambda: "other.yaml" in shown(app))
        at = next(y for y, line in enumerate(shown(app).split("\n")) if "other.yaml" in line)
        await pilot.click(offset=(8, at))
        await until(pilot, lambda: pane(app).document.path.name == "other.yaml")


async def test_one_types_on_while_the_loader_reads(suite, monkeypatch):
    reading = Event()
    go_on = Event()

    def slow(text, request):
        reading.set()
        assert go_on.wait(DEADLINE)
        return parse_text(text, request)

    app = opened(suite)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        monkeypatch.setattr("spbench.tui.suites.text_pane.parse_text", slow)
        editor(app).focus()
        await pilot.press("end", "a")
        await until(pilot, reading.is_set)
        await pilot.press("b", "c")
        assert editor(app).document.get_line(0).endswith("abc")
        assert not go_on.is_set()
        go_on.set()
        await until(pilot, lambda: pane(app)._parsed.text == editor(app).text)


@pytest.mark.long
async def test_faults_of_the_case_are_offered_and_the_list_narrows(suite):
    app = opened(suite)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("f7")
        await until(pilot, lambda: isinstance(app.screen, Chooser))
        found = app.screen.query_one(OptionList)
        everything = found.option_count
        assert "corrupt-halo" in shown(app)
        assert "the last rank sleeps for ever" in shown(app)
        assert "the last rank does so in halo.exchange; a check must find it" in shown(app)
        await pilot.press(*"halo", "down", "up")
        await until(pilot, lambda: 0 < found.option_count < everything)
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, SuitesPage))
        assert app.started == []
