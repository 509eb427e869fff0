"""The Suites page: text, problems, cases, commands, and starts of runs."""

import re
from threading import Event

import pytest
from textual.widgets import Input, OptionList, Static

from spbench.engine import capacity
from spbench.engine.commands import build_commands
from spbench.engine.plan import Request, plan_run
from spbench.errors import MissingError
from spbench.launch.choice import LaunchChoice
from spbench.suites.case import Suite
from spbench.suites.loader import check_text
from spbench.tui.chooser import Chooser
from spbench.tui.dialogs import AskLine
from spbench.tui.suites.cases_pane import EMPTY_SUITE, CasesPane, CommandPane
from spbench.tui.suites.document import open_document
from spbench.tui.suites.page import SuitesPage
from spbench.tui.suites.parsed_suite import parse_text
from spbench.tui.suites.problem_list import ProblemList
from spbench.tui.suites.tree import SuiteTree
from spbench.tui.widgets.line_table import LineTable
from support.tui.app_driver import DEADLINE, SIZES, read_screen, wait_until
from support.tui.suites_page import (
    FIRST_CASE_LINE,
    SECOND_CASE_LINE,
    SIZE,
    SUITE,
    answer,
    choose,
    get_editor,
    get_text_pane,
    list_case_ids,
    list_messages,
    move_to_line,
    open_suite,
    replace_line,
    wait_for_cases,
    wait_for_form,
)


@pytest.mark.parametrize("size", SIZES)
async def test_shows_suite_cases_and_errors_of_other_files(suite, size):
    (suite.parent / "wrong.yaml").write_text("schema: spbench.suite/1\nname: wrong\ncases: 1\n")
    (suite.parent / "none.yaml").write_text("hosts: [a, b]\n")
    app = open_suite(suite)
    async with app.run_test(size=size) as pilot:
        await wait_for_cases(pilot)
        await wait_until(pilot, lambda: "▸ first" in read_screen(app))
        text = read_screen(app)
        assert "schema: spbench.suite/1" in text
        assert "3 cases" in text
        assert list_case_ids(app) == ["first", "second[iterations=5]", "second[iterations=10]"]
        narrow = size[0] == 80
        assert app.screen.query_one(SuiteTree).display is not narrow
        tree = app.screen.query_one(SuiteTree)
        for is_shown in (True, False, True):
            await pilot.press("f2")
            await wait_until(pilot, lambda shown=is_shown: tree.display is shown)
            await wait_until(pilot, lambda shown=is_shown: tree.has_focus is shown)
        await wait_until(pilot, lambda: re.search(r"wrong.yaml +✗ 1 error ", read_screen(app)))
        assert re.search(r"made-up.yaml +3 cases ", read_screen(app))
        assert "none.yaml" not in read_screen(app)


async def test_problems_are_marked_until_they_are_fixed(suite):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_cases(pilot)
        await replace_line(pilot, 14, "    matrixx:")
        text = get_editor(app).text
        diagnostics = check_text(text, suite).diagnostics
        await wait_until(pilot, lambda: app.screen.query_one(ProblemList).has_class("some"))
        await wait_until(pilot, lambda: "2 cases, 1 with errors" in read_screen(app))
        await wait_until(pilot, lambda: "14✗" in read_screen(app))
        screen = read_screen(app)
        assert len(diagnostics) == 1
        assert f"✗ 14:{diagnostics[0].column}  {diagnostics[0].message}"[:50] in screen
        assert "● made-up.yaml not saved (Ctrl+S)  ✗ 1 error" in screen
        files = app.screen.query_one(SuiteTree)
        await wait_until(pilot, lambda: "not saved" in files._format_label(suite))
        await pilot.press("ctrl+z", "ctrl+z")
        await wait_until(pilot, lambda: not app.screen.query_one(ProblemList).has_class("some"))
        assert get_editor(app).text == SUITE
        await wait_until(pilot, lambda: "✗" not in read_screen(app))
        assert "●" not in read_screen(app)
        await wait_until(pilot, lambda: "not saved" not in files._format_label(suite))


async def test_selecting_a_problem_moves_to_its_position(suite):
    suite.write_text(SUITE.replace("np: 2", "np: 1").replace("image_size: 64", "image_size: 0"))
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await wait_until(pilot, lambda: read_screen(app).count("✗") > 3)
        problems = app.screen.query_one(ProblemList)
        problems.focus()
        await pilot.press("down", "down", "enter")
        await wait_until(pilot, lambda: app.focused is get_editor(app))
        assert get_editor(app).cursor_location == (12, 8)


@pytest.mark.long
async def test_text_cursor_and_selected_case_follow_each_other(suite):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_cases(pilot)
        table = app.screen.query_one(LineTable)
        get_editor(app).focus()
        await move_to_line(pilot, SECOND_CASE_LINE + 2)
        await wait_until(pilot, lambda: table.cursor_key == "second[iterations=5]")
        table.focus()
        await pilot.press("down")
        await wait_until(pilot, lambda: app.screen.query_one(CasesPane).case.id.endswith("10]"))
        assert get_editor(app).cursor_line == SECOND_CASE_LINE
        await pilot.press("home")
        await wait_until(pilot, lambda: get_editor(app).cursor_line == FIRST_CASE_LINE)
        assert app.focused is table


@pytest.mark.parametrize("size", [(80, 24), (160, 48)])
async def test_enter_edits_a_case_in_its_form_and_e_goes_to_its_text(suite, size):
    app = open_suite(suite)
    async with app.run_test(size=size) as pilot:
        await wait_for_cases(pilot)
        await wait_until(pilot, lambda: "F2 Files" in read_screen(app))
        await pilot.press("end", "enter")
        await wait_for_form(pilot)
        assert app.screen.query_one("#preview").text.startswith("  # The second, swept.")
        await pilot.press("escape")
        await wait_until(pilot, lambda: isinstance(app.screen, SuitesPage))
        await pilot.press("e")
        await wait_until(pilot, lambda: app.focused is get_editor(app))
        assert get_editor(app).cursor_line == SECOND_CASE_LINE
        await wait_until(pilot, lambda: "Esc Cases" in read_screen(app))
        assert " e Text" not in read_screen(app)
        await pilot.press("escape")
        assert app.focused is app.screen.query_one("#cases")
        assert get_editor(app).text == SUITE


async def test_enter_on_a_case_goes_to_the_text_if_its_form_cannot_open(suite):
    app = open_suite(suite, readonly=True)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_cases(pilot)
        await pilot.press("enter")
        await wait_until(pilot, lambda: app.focused is get_editor(app))


async def test_removing_a_case_asks(suite):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_cases(pilot)
        await move_to_line(pilot, FIRST_CASE_LINE)
        await pilot.press("delete")
        await answer(pilot, "n")
        assert get_editor(app).text == SUITE
        await pilot.press("f8")
        await answer(pilot, "y")
        await wait_for_cases(pilot, 2)
        assert "first" not in get_editor(app).text.replace("The first", "first")
        assert "# The second, swept.\n  - name: second" in get_editor(app).text


async def test_shows_the_launch_command_of_the_selected_case(suite):
    app = open_suite(suite)
    folder = suite.parent.parent
    try:
        commands = build_commands(
            plan_run(Request(suite, folder / "home", app.context.options.environ))
        )
    except MissingError as error:
        pytest.skip(f"no launcher to show the command of: {error}")
    async with app.run_test(size=(200, 60)) as pilot:
        await wait_for_cases(pilot)
        command = app.screen.query_one(CommandPane)
        await wait_until(pilot, lambda: command.command_line == commands[0].line)
        await move_to_line(pilot, SECOND_CASE_LINE)
        standalone = dict(commands[0].standalone)["second[iterations=5]"]
        await wait_until(pilot, lambda: "--iterations 5" in read_screen(app))
        command_text = " ".join(str(command.query_one(Static).content).split())
        assert "--iterations 5" in standalone
        assert commands[0].launcher_line in command_text
        assert "Case second[iterations=5]" in read_screen(app)
        await pilot.press("y")
        assert app.clipboard == command.command_line


async def test_selecting_a_case_does_not_format_the_suite(suite, monkeypatch):
    printed = []

    def print_suite(suite):
        printed.append(suite)
        return "a suite"

    monkeypatch.setattr(Suite, "__repr__", print_suite)
    app = open_suite(suite)
    async with app.run_test(size=(200, 60)) as pilot:
        await wait_for_cases(pilot)
        await move_to_line(pilot, SECOND_CASE_LINE)
        await wait_until(pilot, lambda: "Case second" in read_screen(app))
    assert not printed


async def test_short_pane_has_the_launch_line_below_its_heading(suite):
    hosts = LaunchChoice(launcher="mpirun_rsh", assume="mvapich2-2.3.7", hosts="node[01-02]:2")
    app = open_suite(suite, launch_choice=hosts)
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_for_cases(pilot)
        app.screen.query_one(CommandPane).focus()  # the focused cases would have its rows
        await wait_until(pilot, lambda: "(assumed, not run)" in read_screen(app))
        await wait_until(
            pilot, lambda: " mpirun_rsh " in read_screen(app).split("(assumed, not run)")[1]
        )
        assert "--export-all -np 2" in app.screen.query_one(CommandPane).command_line


async def test_warns_of_too_many_ranks_before_the_run(suite, monkeypatch):
    monkeypatch.setattr(capacity, "count_cores", lambda: 2)
    suite.write_text(SUITE.replace("num_spatial_parts: 2, slice_method: vertical", "grid: 9"))
    excess = "case first wants 81 ranks, and this machine has 2 cores: 40.5 ranks per core"
    app = open_suite(suite)
    async with app.run_test(size=(160, 48)) as pilot:
        await wait_for_cases(pilot)
        await wait_until(pilot, lambda: "▲81" in read_screen(app))
        pane = app.screen.query_one(CommandPane)
        await wait_until(pilot, lambda: excess in str(pane.query_one(Static).content))
        await pilot.press("f3")
        form = await wait_for_form(pilot)
        message = form.query_one("#message", Static)
        await wait_until(pilot, lambda: f"81 ranks\n▲ {excess}" in str(message.content))


async def test_missing_launcher_is_one_message(suite):
    app = open_suite(
        suite, environ={"PATH": "/nowhere"}, launch_choice=LaunchChoice(launcher="srun")
    )
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_cases(pilot)
        await wait_until(pilot, lambda: "srun" in read_screen(app).split("Command")[-1])
        assert app.screen.query_one(CommandPane).command_line == ""


async def test_changed_text_is_marked_until_saved(suite):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_cases(pilot)
        assert app.screen.describe_unsaved() is None
        await replace_line(pilot, 1, "# Another line.")
        await wait_until(pilot, lambda: "● made-up.yaml not saved" in read_screen(app))
        assert app.screen.describe_unsaved() == "made-up.yaml is not saved."
        await pilot.press("ctrl+s")
        await wait_until(pilot, lambda: app.screen.describe_unsaved() is None)
        assert suite.read_text() == SUITE.replace("What stands above all", "Another line")
        await wait_until(pilot, lambda: "●" not in read_screen(app))


async def test_overwriting_a_file_changed_on_disk_asks(suite):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_cases(pilot)
        changed_text = SUITE + "# theirs\n"
        suite.write_text(changed_text)
        await pilot.press("f5")
        await wait_until(
            pilot, lambda: any("changed on disk" in note for note in list_messages(app))
        )
        assert app.started == []
        await replace_line(pilot, 1, "# mine")
        await pilot.press("ctrl+s")
        await wait_until(pilot, lambda: "-# theirs" in read_screen(app))
        assert "+# mine" in read_screen(app)
        await answer(pilot, "n")
        assert suite.read_text() == changed_text
        await pilot.press("ctrl+s")
        await answer(pilot, "y")
        await wait_until(pilot, lambda: suite.read_text() == get_editor(app).text)


async def test_opening_another_file_asks_about_unsaved_changes(suite):
    (suite.parent / "other.yaml").write_text(SUITE.replace("name: made-up", "name: other"))
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_cases(pilot)
        await replace_line(pilot, 1, "# mine")
        tree = app.screen.query_one(SuiteTree)
        tree.focus()
        await wait_until(pilot, lambda: "other.yaml" in read_screen(app))
        await pilot.press("down", "enter")
        await answer(pilot, "n")
        assert "# mine" in get_editor(app).text
        await pilot.press("enter")
        await answer(pilot, "y")
        await wait_until(pilot, lambda: "name: other" in get_editor(app).text)
        assert not get_text_pane(app).has_changes


@pytest.mark.long
async def test_undo_of_composed_cases_removes_the_scroll_bar(suite):
    app = open_suite(suite)
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_for_cases(pilot)
        await pilot.press("ctrl+n")
        await wait_until(pilot, lambda: isinstance(app.screen, AskLine))
        app.screen.query_one(Input).value = "suites/fresh"
        await pilot.press("enter")
        await wait_until(pilot, lambda: "● fresh.yaml not saved" in read_screen(app))
        for count in (1, 2, 3):
            await pilot.press("f4")
            await choose(pilot, "gemm")
            await wait_for_form(pilot)
            await pilot.press("ctrl+s")
            await wait_for_cases(pilot, count)
        composed = get_editor(app).text
        assert get_editor(app).show_vertical_scrollbar
        await pilot.press("shift+tab", "ctrl+z")
        await wait_for_cases(pilot, 2)
        assert not get_editor(app).show_vertical_scrollbar
        await pilot.press("ctrl+y")
        assert get_editor(app).text == composed
        app.screen.query_one("#cases").focus()
        await pilot.press("ctrl+z")
        await wait_until(pilot, lambda: "undone: case gemm-3 added" in read_screen(app))


LONG = SUITE + "# and more\n" * 90


def shrink_by_undo(app):
    get_editor(app).insert("# more\n" * 90, location=(0, 0))
    get_editor(app).move_cursor(get_editor(app).document.end)
    get_editor(app).undo()


def shrink_by_redo(app):
    get_editor(app).load_text(LONG)
    get_editor(app).delete((5, 0), get_editor(app).document.end)
    get_editor(app).undo()
    get_editor(app).move_cursor(get_editor(app).document.end)
    get_editor(app).redo()


def shrink_by_deletion(app):
    get_editor(app).load_text(LONG)
    get_editor(app).select_all()
    get_editor(app).action_delete_left()


def shrink_by_replacement(app):
    get_editor(app).load_text(LONG)
    get_editor(app).move_cursor(get_editor(app).document.end)
    get_editor(app).replace_text(SUITE[:40], 1, "")


def shrink_by_opening(app):
    get_editor(app).load_text(LONG)
    get_editor(app).move_cursor(get_editor(app).document.end)
    (app.context.options.suite.parent / "short.yaml").write_text("schema: spbench.suite/1\n")
    get_text_pane(app).open(open_document(app.context.options.suite.parent / "short.yaml"))


@pytest.mark.parametrize(
    "shrink",
    [shrink_by_undo, shrink_by_redo, shrink_by_deletion, shrink_by_replacement, shrink_by_opening],
)
async def test_editor_survives_shrinking_text(suite, shrink):
    app = open_suite(suite)
    async with app.run_test(size=(200, 60)) as pilot:
        await wait_for_cases(pilot)
        shrink(app)
        assert get_editor(app).size.height < LONG.count("\n")
        await wait_until(pilot, lambda: not get_editor(app).show_vertical_scrollbar)
        lines = get_editor(app).document.line_count
        assert lines < get_editor(app).size.height
        assert get_editor(app).cursor_location[0] < lines


async def test_new_suite_needs_a_new_file(suite):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_cases(pilot)
        await pilot.press("ctrl+n")
        await wait_until(pilot, lambda: isinstance(app.screen, AskLine))
        problem = app.screen.query_one("#problem")
        for name, message in (("suites/made-up.yaml", "exists already"), ("a.txt", "with .yaml")):
            app.screen.query_one(Input).value = name
            await pilot.press("enter")
            await wait_until(pilot, lambda text=message: text in str(problem.content))
        app.screen.query_one(Input).value = "suites/fresh"
        await pilot.press("enter")
        await wait_until(pilot, lambda: "● fresh.yaml not saved" in read_screen(app))
        await pilot.press("f4")
        await choose(pilot, "gemm")
        await wait_for_form(pilot)
        await pilot.press("ctrl+s")
        await wait_for_cases(pilot, 1)
        await pilot.press("f5")
        await wait_until(pilot, lambda: app.started != [])
        path = suite.parent / "fresh.yaml"
        assert app.started == [(str(path),)]
        assert check_text(path.read_text(), path).suite.name == "fresh"


async def test_runs_all_or_one_case_on_the_selected_hosts(suite):
    app = open_suite(suite, launch_choice=LaunchChoice(hosts="localhost:4", launcher="openmpi"))
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_cases(pilot)
        options = ("--hosts", "localhost:4", "--launcher", "openmpi")
        await pilot.press("f5")
        await wait_until(pilot, lambda: len(app.started) == 1)
        await move_to_line(pilot, SECOND_CASE_LINE)
        await wait_until(pilot, lambda: app.screen.query_one(CasesPane).case.name == "second")
        await pilot.press("f6")
        await wait_until(pilot, lambda: len(app.started) == 2)
        await pilot.press("i")
        await choose(pilot, "kill")
        await wait_until(pilot, lambda: len(app.started) == 3)
        case_options = ("--case", "second[iterations=5]")
        assert app.started == [
            (str(suite), *options),
            (str(suite), *case_options, *options),
            (str(suite), *case_options, "--inject", "kill", *options),
        ]


async def test_letters_do_not_start_a_run(suite):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_cases(pilot)
        await pilot.press("r", "R", "f5")
        await wait_until(pilot, lambda: app.started != [])
        assert app.started == [(str(suite),)]


async def test_run_needs_valid_text_and_saves_it_first(suite):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_cases(pilot)
        await replace_line(pilot, 13, "    np: 0")
        await pilot.press("f5")
        await wait_until(
            pilot, lambda: "not started: 1 error to fix" in "".join(list_messages(app))
        )
        assert app.started == []
        assert suite.read_text() == SUITE
        await replace_line(pilot, 13, "    np: 3")
        await pilot.press("f6")
        await wait_until(pilot, lambda: app.started != [])
        assert "np: 3" in suite.read_text()


@pytest.mark.long
async def test_readonly_shows_all_and_changes_nothing(suite):
    app = open_suite(suite, readonly=True)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_cases(pilot)
        get_editor(app).focus()
        await pilot.press("x", "c", "D", "i", "d", "delete", "ctrl+s", "f4", "f5", "f6", "f8")
        await pilot.pause()
        assert isinstance(app.screen, SuitesPage)
        assert get_editor(app).text == suite.read_text() == SUITE
        assert app.started == []
        assert "Add case" not in read_screen(app)
        assert "Files" in read_screen(app)


async def test_files_open_by_enter_or_click(suite):
    (suite.parent / "other.yaml").write_text(SUITE)
    app = open_suite(suite, suite=None)
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_until(pilot, lambda: re.search(r"other.yaml +3 cases", read_screen(app)))
        assert "open the selected suite" in read_screen(app)
        await pilot.press("enter")
        await wait_for_cases(pilot)
        assert get_text_pane(app).document.path == suite
        await pilot.press("f2")
        await wait_until(pilot, lambda: "other.yaml" in read_screen(app))
        row = next(y for y, line in enumerate(read_screen(app).split("\n")) if "other.yaml" in line)
        await pilot.click(offset=(8, row))
        await wait_until(pilot, lambda: get_text_pane(app).document.path.name == "other.yaml")


async def test_typing_continues_while_the_loader_parses(suite, monkeypatch):
    reading = Event()
    release = Event()

    def parse_slowly(text, request):
        reading.set()
        assert release.wait(DEADLINE)
        return parse_text(text, request)

    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_cases(pilot)
        monkeypatch.setattr("spbench.tui.suites.text_pane.parse_text", parse_slowly)
        get_editor(app).focus()
        await pilot.press("end", "a")
        await wait_until(pilot, reading.is_set)
        await pilot.press("b", "c")
        assert get_editor(app).document.get_line(0).endswith("abc")
        assert not release.is_set()
        release.set()
        await wait_until(pilot, lambda: get_text_pane(app)._parsed.text == get_editor(app).text)


async def test_disables_a_fault_that_nothing_can_detect(suite):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_cases(pilot)
        await move_to_line(pilot, SECOND_CASE_LINE)
        await wait_until(pilot, lambda: app.screen.query_one(CasesPane).case.name == "second")
        await pilot.press("i")
        await wait_until(pilot, lambda: isinstance(app.screen, Chooser))
        await pilot.press(*"slow")
        await wait_until(pilot, lambda: "not detectable" in read_screen(app))
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(app.screen, Chooser)
        assert app.screen.query_one(OptionList).highlighted is None


async def test_home_and_end_move_in_the_list_of_choices(suite):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_cases(pilot)
        await pilot.press("f4")
        await wait_until(pilot, lambda: isinstance(app.screen, Chooser))
        options = app.screen.query_one(OptionList)
        await pilot.press("e", "end")
        assert options.highlighted == options.option_count - 1
        await pilot.press("home")
        assert options.highlighted == 0


@pytest.mark.long
async def test_lists_faults_of_the_case_with_a_filter(suite):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_cases(pilot)
        await pilot.press("f7")
        await wait_until(pilot, lambda: isinstance(app.screen, Chooser))
        option_list = app.screen.query_one(OptionList)
        total = option_list.option_count
        assert "corrupt-halo" in read_screen(app)
        assert "the last rank sleeps for ever" in read_screen(app)
        assert "one value of a received halo is flipped" in read_screen(app)
        await pilot.press(*"halo", "down", "up")
        await wait_until(pilot, lambda: 0 < option_list.option_count < total)
        await pilot.press("escape")
        await wait_until(pilot, lambda: isinstance(app.screen, SuitesPage))
        assert app.started == []


async def test_opening_a_suite_with_errors_goes_to_the_first(suite):
    suite.write_text(SUITE.replace("iterations: [5, 10]", "iterations: [5, ten]"))
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await wait_until(pilot, lambda: "1 error" in read_screen(app))
        await wait_until(pilot, lambda: get_editor(app).cursor_line == 15)
        await wait_until(pilot, lambda: "2 cases, 1 with errors" in read_screen(app))
        await wait_until(pilot, lambda: "F3 edits the case in a form" in read_screen(app))
        app.screen.query_one("#cases").focus()
        await pilot.press("home")
        await wait_until(pilot, lambda: "The command of a case appears once" in read_screen(app))


async def test_errors_in_a_new_suite_hide_the_hint_on_its_first_case(suite):
    suite.write_text("schema: spbench.suite/1\nname: new\ncases: []\n")
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await wait_until(pilot, lambda: EMPTY_SUITE[:40] in read_screen(app))
        get_editor(app).load_text(SUITE.replace("iterations: [5, 10]", "iterations: [5, ten]"))
        await wait_until(pilot, lambda: "2 cases, 1 with errors" in read_screen(app))
        assert "no cases yet: F4" not in read_screen(app)


async def test_new_folder_of_a_suite_is_confirmed(suite):
    folder = suite.parent.parent / "missing"
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_cases(pilot)
        await pilot.press("ctrl+n")
        await wait_until(pilot, lambda: isinstance(app.screen, AskLine))
        app.screen.query_one(Input).value = "missing/new.yaml"
        await pilot.press("enter")
        await wait_until(pilot, lambda: "Saving creates the folder" in read_screen(app))
        await pilot.press("enter")
        await wait_until(pilot, lambda: "new.yaml not saved" in read_screen(app))
        assert not folder.exists()
        await pilot.press("ctrl+s")
        await wait_until(pilot, lambda: any("saved" in note for note in list_messages(app)))
        assert (folder / "new.yaml").exists()


async def test_save_and_quit(suite):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_cases(pilot)
        await replace_line(pilot, 1, "# Another line.")
        await pilot.press("ctrl+q")
        await wait_until(pilot, lambda: "Save and quit (s)" in read_screen(app))
        await pilot.press("s")
        await wait_until(pilot, lambda: app.return_code == 0)
    assert suite.read_text().startswith("# Another line.")


async def test_opening_the_open_suite_again_focuses_its_cases(suite):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_cases(pilot)
        get_editor(app).focus()
        await wait_until(pilot, lambda: app.focused is get_editor(app))
        app.screen.open(suite)
        await wait_until(pilot, lambda: app.focused is app.screen.query_one("#cases"))


async def test_f5_in_the_files_runs_the_file_under_the_cursor(tmp_path, suite, monkeypatch):
    other = tmp_path / "other.yaml"
    other.write_text(SUITE)
    app = open_suite(suite)
    async with app.run_test(size=(120, 40)) as pilot:
        await wait_for_cases(pilot)
        starts = []
        monkeypatch.setattr(app.context, "start_run", lambda args, *_, **__: starts.append(args))
        tree = app.screen.query_one(SuiteTree)
        await pilot.press("space")
        await wait_until(pilot, lambda: "F5 Run 1 case " in read_screen(app))
        await pilot.press("f2")
        await wait_until(pilot, lambda: tree.has_focus)
        await wait_until(pilot, lambda: other in tree._files)
        tree.move_cursor(tree._files[other])
        await wait_until(pilot, lambda: tree.selected_path == other)
        await wait_until(pilot, lambda: "F5 Run  " in read_screen(app))
        await pilot.press("f5")
        await wait_until(pilot, lambda: starts)
        assert str(other) in starts[0]
        assert get_text_pane(app).document.path == other
