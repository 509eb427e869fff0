"""Help, palette, cheat sheet and ctrl+c, through which users find actions."""

import re

import pytest
from textual.command import CommandList, CommandPalette
from textual.content import Content
from textual.widgets import Input, Static
from typer.testing import CliRunner

from spbench.cli.app import app as command_line
from spbench.tui.chooser import Choice, Chooser
from spbench.tui.guide.actions import Scope, list_actions
from spbench.tui.guide.cheat_sheet import CheatSheet, break_lines
from spbench.tui.guide.help_screen import HelpScreen
from spbench.tui.guide.jump_dialog import JumpDialog
from spbench.tui.guide.palette import list_commands, rate_match
from spbench.tui.guide.topics import TOPICS
from spbench.tui.pages import PAGES
from spbench.tui.settings_dialogs import ThemeChooser
from spbench.tui.themes import THEMES
from spbench.tui.widgets.prose import join_lines, render_prose
from support.tui.app_driver import SIZES, make_console, read_screen, wait_until
from support.tui.suites_page import get_editor, open_suite, wait_for_cases

NEWCOMER_WORDS = (
    *("settings", "setting", "default", "defaults", "batch", "slurm", "mpirun"),
    *("compare", "baseline", "slow rank", "fault", "theme"),
    *("preferences", "messages", "jump", "undo", "demo"),
)


async def open_page(pilot, page="results"):
    await wait_until(
        pilot, lambda: "F1 Help" in read_screen(pilot.app) and pilot.app.current_mode == page
    )
    await wait_until(pilot, lambda: pilot.app.focused is not None)


def list_phrases(app):
    return [command.phrase for command in list_commands(app.screen, app.choose_theme)]


@pytest.mark.parametrize("size", SIZES)
async def test_help_has_pane_and_page_first(tmp_path, home, size):
    app = make_console(tmp_path, page="results", home=home)
    async with app.run_test(size=size) as pilot:
        await open_page(pilot)
        await pilot.press("f1")
        await wait_until(pilot, lambda: isinstance(app.screen, HelpScreen))
        await wait_until(pilot, lambda: "This pane" in read_screen(app))
        headings = [str(static.content) for static in app.screen.query(".heading")]
        assert headings == ["This pane", "This page", "Everywhere"]
        await pilot.press("escape")
        await wait_until(pilot, lambda: not isinstance(app.screen, HelpScreen))


async def test_help_has_no_entries_of_the_toolkit(suite):
    app = open_suite(suite)
    async with app.run_test(size=(120, 40)) as pilot:
        await wait_for_cases(pilot)
        get_editor(app).focus()
        await wait_until(pilot, lambda: app.focused is get_editor(app))
        await pilot.press("#")
        await wait_until(
            pilot, lambda: "suites.undo" in {action.id for action in list_actions(app.screen)}
        )
        actions = list_actions(app.screen)
        assert all(action.id for action in actions)
        keys = " ".join(key for action in actions for key in action.keys)
        assert "super" not in keys
        assert "^Z" in keys
        scopes = {action.id: action.scope for action in actions}
        assert scopes["suites.undo"] is Scope.PAGE
        assert scopes["app.quit"] is Scope.EVERYWHERE
        await pilot.press("f1")
        await wait_until(pilot, lambda: "suites.run-all" in read_screen(app))
        assert "`" not in read_screen(app)


def test_explanations_are_joined_to_paragraphs():
    text = "one two three\nfour five.\nown: a line.\n\nanother\nparagraph"
    assert join_lines(text) == "one two three four five.\nown: a line.\n\nanother paragraph"
    full = "word " * 18 + "end."
    assert join_lines(f"{full}\nMore.") == f"{full} More."


def test_code_loses_its_backticks():
    content = render_prose("press `x` now")
    assert content.plain == "press x now"
    assert len(content.spans) == 1


@pytest.mark.parametrize("size", SIZES)
async def test_cheat_sheet_shows_keys_and_closes_with_any_key(tmp_path, home, size):
    app = make_console(tmp_path, page="results", home=home)
    async with app.run_test(size=size) as pilot:
        await open_page(pilot)
        await wait_until(pilot, lambda: "c Compare" in read_screen(app))
        await pilot.press("question_mark")
        await wait_until(pilot, lambda: isinstance(app.screen, CheatSheet))
        await wait_until(pilot, lambda: "any key closes" in read_screen(app))
        text = app.screen.query_one(Static).content.plain
        for key in ("c Compare", "e Export", "/ Filter", "1-5 Pages", ": Jump", "F1 Help"):
            assert key in " ".join(text.split())
        assert ", Settings" in " ".join(text.split())
        assert "This page" in text.splitlines()[0]
        assert "Everywhere" in text.splitlines()[0]
        assert max(map(len, text.splitlines())) <= size[0] - 4
        await pilot.press("q")
        await wait_until(pilot, lambda: not isinstance(app.screen, CheatSheet))
        assert app.is_running
        assert app.current_mode == "results"


async def test_question_mark_can_be_typed(suite):
    app = open_suite(suite)
    async with app.run_test(size=(120, 40)) as pilot:
        await wait_for_cases(pilot)
        get_editor(app).focus()
        await wait_until(pilot, lambda: app.focused is get_editor(app))
        await pilot.press("question_mark", "colon")
        await wait_until(pilot, lambda: "?:" in get_editor(app).text)


def test_lines_of_the_cheat_sheet_do_not_divide_a_key():
    keys = [("a", "one"), ("b", "two"), ("c", "three")]
    assert break_lines(keys, 100) == [keys]
    assert break_lines(keys, 13) == [keys[:2], keys[2:]]
    assert break_lines(keys, 1) == [[key] for key in keys]


async def test_palette_has_the_present_page_first(tmp_path, home):
    app = make_console(tmp_path, page="results", home=home)
    async with app.run_test(size=(120, 40)) as pilot:
        await open_page(pilot)
        await wait_until(pilot, lambda: "c Compare" in read_screen(app))
        phrases = list_phrases(app)
        assert len(phrases) == len(set(phrases))
        index_here = phrases.index("Compare the marked runs, or this one with another")
        general = phrases.index("Quit the console")
        other = phrases.index("Plan: write a suite that runs the plan")
        themes = phrases.index(f"Theme: {THEMES[0].name}")
        assert index_here < general < other < themes
        assert "Watch a run that is still running" not in phrases
        for entry in PAGES:
            if entry.name not in ("results", "run"):
                assert sum(phrase.startswith(f"{entry.title}: ") for phrase in phrases) > 3


@pytest.mark.parametrize("page", [entry.name for entry in PAGES])
async def test_palette_finds_the_words_of_newcomers(tmp_path, page):
    app = make_console(tmp_path, page=page)
    async with app.run_test(size=(120, 40)) as pilot:
        await wait_until(pilot, lambda: "F1 Help" in read_screen(app))
        await wait_until(pilot, lambda: app.current_mode == page)
        commands = list(list_commands(app.screen, app.choose_theme))
        for query in NEWCOMER_WORDS:
            assert any(rate_match(query, command.phrase, command.title) for command in commands)
        [topic] = [command for command in commands if "batch jobs" in command.phrase]
        app.call_later(topic.run)
        await wait_until(pilot, lambda: "spbench submit" in read_screen(app))
        await pilot.press("escape")
        await wait_until(pilot, lambda: not app.screen.is_modal)


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.title)
def test_topics_have_existing_commands_and_options(topic):
    for command in re.findall(r"`spbench ([^`]+)`", topic.text):
        name, *arguments = command.split()
        options = {argument for argument in arguments if argument.startswith("--")}
        assert options <= read_options(name)


def read_options(command):
    """Return the options of a command of spbench."""
    result = CliRunner().invoke(command_line, [command, "--help"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    return set(re.findall(r"--[a-z-]+", result.output))


@pytest.mark.parametrize("size", SIZES)
async def test_messages_can_be_read_again(tmp_path, size):
    app = make_console(tmp_path, page="run")
    async with app.run_test(size=size) as pilot:
        await wait_until(pilot, lambda: "F1 Help" in read_screen(app))
        app.notify("the first", timeout=0.01)
        app.notify("the second", title="not started", severity="error", timeout=0.01)
        await wait_until(pilot, lambda: not app._notifications)
        await pilot.press("f9")
        await wait_until(pilot, lambda: "✗ not started: the second" in read_screen(app))
        screen = read_screen(app)
        assert screen.index("the second") < screen.index("· the first")
        await pilot.press("escape")
        await wait_until(pilot, lambda: not app.screen.is_modal)


async def test_new_messages_replace_old_ones(tmp_path):
    app = make_console(tmp_path, page="run")

    def read_toasts():
        return [toast.message for toast in app._notifications]

    async with app.run_test(size=(80, 24)) as pilot:
        for text in ("copied", "saved", "saved"):
            app.notify(text, timeout=60)
        await wait_until(pilot, lambda: read_toasts() == ["saved"])
        for text in ("no file", "no host", "no file", "no slots", "no memory"):
            app.notify(text, severity="error", timeout=60)
        await wait_until(pilot, lambda: read_toasts() == ["no file", "no slots", "no memory"])
        assert len(app.message_log) == 8


async def test_dialog_hides_the_messages_of_before(tmp_path):
    app = make_console(tmp_path, page="run")
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await wait_until(pilot, lambda: "F1 Help" in read_screen(app))
        app.notify("copied", timeout=60)
        await wait_until(pilot, lambda: "copied" in read_screen(app))
        await pilot.press("f9")
        await wait_until(pilot, lambda: app.screen.is_modal)
        assert not app._notifications
        await wait_until(pilot, lambda: "copied" in read_screen(app))  # in the list of messages
        assert not app.screen.query("Toast")


async def test_messages_in_a_dialog_are_at_the_bottom_for_a_short_time(tmp_path):
    app = make_console(tmp_path, page="run")
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await wait_until(pilot, lambda: "F1 Help" in read_screen(app))
        await pilot.press("f1")
        await wait_until(pilot, lambda: app.screen.is_modal)
        app.notify("copied", timeout=60)
        await wait_until(pilot, lambda: app.screen.query("Toast"))
        assert [toast.timeout for toast in app._notifications] == [3]
        [toast] = app.screen.query("Toast")
        await wait_until(pilot, lambda: toast.region.bottom == 39)
        assert not app.screen_stack[-2].query("Toast")


async def test_key_hides_messages_that_were_shown_for_a_second_except_errors(tmp_path):
    app = make_console(tmp_path, page="run")

    def read_toasts():
        return [toast.message for toast in app._notifications]

    async with app.run_test(size=(80, 24)) as pilot:
        await wait_until(pilot, lambda: "F1 Help" in read_screen(app))
        app.notify("no file", severity="error", timeout=60)
        app.notify("no slots", severity="warning", timeout=60)
        await wait_until(pilot, lambda: len(app._notifications) == 2)
        for toast in app._notifications:
            toast.raised_at -= 1
        app.notify("saved", timeout=60)
        await wait_until(pilot, lambda: "saved" in read_toasts())
        await pilot.press("down")
        assert read_toasts() == ["no file", "saved"]


def test_words_match_starts_or_longer_parts():
    assert rate_match("base", "Compare with a baseline", "Baseline") == 1
    full = rate_match("compare", "Compare with a baseline", "Results Baseline")
    part = rate_match("line", "Compare with a baseline", "Results Baseline")
    assert 0 < part < full < 1
    assert rate_match("ne", "Compare with a baseline", "Baseline") == 0
    assert rate_match("resnet", "Results: show the next view", "Results View") == 0
    assert rate_match("theme: spbench-l", "Theme: spbench-light", "theme") > 0
    assert rate_match("compare xyz", "Compare with a baseline", "Baseline") == 0


async def test_palette_offers_the_jump_for_other_words(suite):
    app = make_console(suite.parent.parent, page="run")
    async with app.run_test(size=(120, 40)) as pilot:
        await wait_until(pilot, lambda: "F1 Help" in read_screen(app))
        await pilot.press("ctrl+p")
        await wait_until(pilot, lambda: isinstance(app.screen, CommandPalette))
        await pilot.press(*"madeup")
        text = "No match. Search suites, runs, hosts and cases"
        await wait_until(pilot, lambda: text in read_screen(app))
        await wait_until(pilot, lambda: "Run: " not in read_screen(app))
        await pilot.press("enter")
        await wait_until(pilot, lambda: isinstance(app.screen, JumpDialog))
        assert app.screen.query_one(Input).value == "madeup"


async def test_palette_offers_the_choice_of_a_theme_first(tmp_path):
    app = make_console(tmp_path, page="run")
    async with app.run_test(size=(120, 40)) as pilot:
        await wait_until(pilot, lambda: "F1 Help" in read_screen(app))
        await pilot.press("ctrl+p")
        await wait_until(pilot, lambda: isinstance(app.screen, CommandPalette))
        await pilot.press(*"theme")
        await wait_until(pilot, lambda: "Choose a theme" in read_screen(app))
        await wait_until(pilot, lambda: "Run: " not in read_screen(app))
        await pilot.press("enter")
        await wait_until(pilot, lambda: isinstance(app.screen, ThemeChooser))


@pytest.mark.parametrize("size", SIZES)
async def test_keys_in_the_palette_end_in_one_column(tmp_path, size):
    app = make_console(tmp_path, page="results")
    async with app.run_test(size=size) as pilot:
        await wait_until(pilot, lambda: "Help" in read_screen(app))
        await pilot.press("ctrl+p")
        await wait_until(pilot, lambda: isinstance(app.screen, CommandPalette))
        commands = app.screen.query_one(CommandList)
        await wait_until(pilot, lambda: commands.option_count > 10)
        prompts = [commands.get_option_at_index(index).prompt for index in range(10)]
        widths = {Content.from_text(prompt).cell_length for prompt in prompts}
        assert len(widths) == 1
        assert widths.pop() <= commands.scrollable_content_region.width - 4  # the padding


@pytest.mark.parametrize("page", [entry.name for entry in PAGES])
async def test_actions_of_pages_fit_into_lines_of_the_palette(tmp_path, page):
    app = make_console(tmp_path, page=page)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        bindings = [entry.binding for entry in app.screen.active_bindings.values()]
    long_texts = [
        binding.tooltip
        for binding in bindings
        if binding.tooltip and len(binding.tooltip) + len(binding.key_display or "") > 62
    ]
    assert long_texts == []


async def test_palette_runs_actions_that_dialogs_disable(tmp_path):
    app = make_console(tmp_path, page="run")
    async with app.run_test(size=(120, 40)) as pilot:
        await wait_until(pilot, lambda: "F1 Help" in read_screen(app))
        await pilot.press("ctrl+p")
        await wait_until(pilot, lambda: isinstance(app.screen, CommandPalette))
        await pilot.press(*"preferences")
        await wait_until(pilot, lambda: "Settings (preferences)" in read_screen(app))
        await pilot.press("enter")
        await wait_until(pilot, lambda: isinstance(app.screen, Chooser))


async def test_palette_opens_while_another_page_has_one(tmp_path):
    app = make_console(tmp_path)
    async with app.run_test(size=(120, 40)) as pilot:
        for page in ("suites", "hosts"):
            app.context.show_page(page)
            await wait_until(pilot, lambda: not app.screen.is_modal)
            await pilot.press("ctrl+p")
            await wait_until(pilot, lambda: isinstance(app.screen, CommandPalette))


async def test_palette_omits_actions_without_a_run_and_has_own_themes_first(tmp_path):
    app = make_console(tmp_path, page="suites")
    async with app.run_test(size=(120, 40)) as pilot:
        await wait_until(pilot, lambda: "F1 Help" in read_screen(app))
        phrases = list_phrases(app)
        assert not [phrase for phrase in phrases if phrase.startswith("Run: ")]
        themes = [phrase for phrase in phrases if phrase.startswith("Theme: ")]
        assert themes[: len(THEMES)] == [f"Theme: {theme.name}" for theme in THEMES]


async def test_list_without_a_match_says_so(tmp_path):
    app = make_console(tmp_path, page="run")
    async with app.run_test(size=(120, 40)) as pilot:
        await wait_until(pilot, lambda: "F1 Help" in read_screen(app))
        app.push_screen(Chooser("A choice", [Choice("first", "the first one")]))
        await wait_until(pilot, lambda: "the first one" in read_screen(app))
        await pilot.press(*"xyz", "enter")
        await wait_until(pilot, lambda: "no match" in read_screen(app))
        assert isinstance(app.screen, Chooser)


async def test_palette_plays_the_demo(tmp_path):
    app = make_console(tmp_path, page="suites")
    async with app.run_test(size=(120, 40)) as pilot:
        await wait_until(pilot, lambda: "F1 Help" in read_screen(app))
        commands = list_commands(app.screen, app.choose_theme)
        [demo] = [command for command in commands if command.phrase.startswith("Watch the demo")]
        app.call_later(demo.run)
        await wait_until(pilot, lambda: app.current_mode == "run" and app.context.feed is not None)


async def test_palette_finds_by_words_and_shows_the_key(tmp_path):
    app = make_console(tmp_path, page="run")
    async with app.run_test(size=(120, 40)) as pilot:
        await wait_until(pilot, lambda: "F1 Help" in read_screen(app))
        await pilot.press("ctrl+p")
        await wait_until(pilot, lambda: isinstance(app.screen, CommandPalette))
        await wait_until(pilot, lambda: "Quit the console" in read_screen(app))
        await pilot.press(*"comp baseline")
        line = "Results: compare with a baseline b"
        await wait_until(pilot, lambda: line in " ".join(read_screen(app).split()))
        await pilot.press("escape")


async def test_command_of_another_page_shows_that_page(tmp_path):
    app = make_console(tmp_path, page="run")
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        commands = {
            command.phrase: command for command in list_commands(app.screen, app.choose_theme)
        }
        app.call_later(commands["Results: filter the runs"].run)
        await wait_until(pilot, lambda: app.current_mode == "results")


async def test_palette_lists_its_commands_once(tmp_path, monkeypatch):
    lists = []

    def count_lists(*args):
        lists.append(args)
        return list_commands(*args)

    monkeypatch.setattr("spbench.tui.guide.palette.list_commands", count_lists)
    app = make_console(tmp_path, page="run")
    async with app.run_test(size=(120, 40)) as pilot:
        await wait_until(pilot, lambda: "F1 Help" in read_screen(app))
        await pilot.press("ctrl+p")
        await wait_until(pilot, lambda: "Quit the console" in read_screen(app))
        await pilot.press(*"comp")
        await wait_until(pilot, lambda: "Results: compare with a baseline" in read_screen(app))
        assert len(lists) == 1


async def test_palette_of_a_dialog_has_no_actions_of_pages(tmp_path):
    app = make_console(tmp_path, page="run")
    async with app.run_test(size=(120, 40)) as pilot:
        await wait_until(pilot, lambda: "F1 Help" in read_screen(app))
        await pilot.press("colon")
        await wait_until(pilot, lambda: isinstance(app.screen, JumpDialog))
        phrases = list_phrases(app)
        assert "Results: filter the runs" not in phrases
        assert f"Theme: {THEMES[0].name}" in phrases


async def test_readonly_palette_has_no_modifying_actions(tmp_path, home):
    app = make_console(tmp_path, page="run", home=home, readonly=True)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        phrases = list_phrases(app)
        assert "Results: delete the run" not in phrases
        assert "Results: filter the runs" in phrases


async def test_ctrl_c_says_how_to_quit(tmp_path):
    app = make_console(tmp_path, page="run")
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_until(pilot, lambda: "F1 Help" in read_screen(app))
        await pilot.press("ctrl+c")
        await wait_until(pilot, lambda: len(app._notifications) == 1)
        assert "Ctrl+Q quits" in next(iter(app._notifications)).message
        assert app.is_running


async def test_ctrl_c_copies_the_selection_of_an_editor(suite):
    app = open_suite(suite)
    async with app.run_test(size=(120, 40)) as pilot:
        await wait_for_cases(pilot)
        editor = get_editor(app)
        editor.focus()
        await wait_until(pilot, lambda: app.focused is editor)
        editor.move_cursor((0, 0))
        editor.move_cursor((0, 6), select=True)
        await pilot.press("ctrl+c")
        await wait_until(pilot, lambda: app.clipboard == editor.text[:6])
        assert not app._notifications


async def test_help_has_one_heading_for_names_of_actions(tmp_path):
    app = make_console(tmp_path, page="run")
    async with app.run_test(size=(120, 40)) as pilot:
        await wait_until(pilot, lambda: "F1 Help" in read_screen(app))
        await pilot.press("f1")
        await wait_until(pilot, lambda: "name in settings" in read_screen(app))
        assert read_screen(app).count("name in settings") == 1


async def test_message_over_a_dialog_without_buttons_is_shown(tmp_path):
    app = make_console(tmp_path, page="hosts")
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await wait_until(pilot, lambda: "Help" in read_screen(app))
        await pilot.press("f1")
        await wait_until(pilot, lambda: isinstance(app.screen, HelpScreen))
        await pilot.resize_terminal(80, 5)
        app.notify("a long message " * 40, timeout=20)
        await wait_until(pilot, lambda: "a long message" in read_screen(app))
