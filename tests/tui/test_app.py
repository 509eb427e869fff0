"""The console as all pages share it: tabs, keys, help, the palette, themes, and leaving."""

import asyncio
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from textual.binding import Binding
from textual.events import AppBlur

from spbench.engine import background
from spbench.errors import UsageError
from spbench.launch.choice import LaunchChoice
from spbench.tui import start
from spbench.tui.app import ConsoleApp
from spbench.tui.context import ConsoleContext
from spbench.tui.dialogs import Confirm
from spbench.tui.help_and_palette import HelpScreen, list_commands
from spbench.tui.pages import PAGES
from spbench.tui.settings import THEMES
from support.paths import SUITES
from support.sample_events import record_run, run_start
from support.tui.driving import SIZES, console, shown, until


def told(app, words):
    """True if a notification says these words."""
    return any(words in note.message for note in app._notifications)


@pytest.mark.parametrize("size", SIZES)
async def test_each_page_opens_by_its_digit_and_by_a_click(tmp_path, size):
    app = console(tmp_path, page="run")
    async with app.run_test(size=size) as pilot:
        for digit, entry in enumerate(PAGES, 1):
            await pilot.press(str(digit))
            await until(pilot, lambda name=entry.name: app.current_mode == name)
            await until(pilot, lambda: "Palette" in shown(app))
            app.screen.set_focus(None)
        await pilot.click(offset=(14, 0))
        await until(pilot, lambda: app.current_mode == "run")


async def test_the_keys_stay_where_another_window_gets_the_focus(tmp_path):
    app = console(tmp_path, page="results")
    async with app.run_test(size=(120, 36)) as pilot:
        await until(pilot, lambda: "Filter" in shown(app))
        app.post_message(AppBlur())
        await pilot.pause(0.1)
        assert app.focused is not None
        # The footer is drawn again when a page has opened, which may be just now.
        await until(pilot, lambda: "Filter" in shown(app).splitlines()[-1])


@pytest.mark.parametrize("page", [entry.name for entry in PAGES])
async def test_the_footer_has_at_most_eight_keys_and_each_action_its_id_and_words(tmp_path, page):
    app = console(tmp_path, page=page)
    async with app.run_test(size=(200, 60)) as pilot:
        await until(pilot, lambda: "Palette" in shown(app))
        bindings = [active.binding for active in app.screen.active_bindings.values()]
        ours = {binding.id: binding for binding in bindings if binding.id}
        assert len([binding for binding in ours.values() if binding.show]) <= 8
        assert all(binding.tooltip and binding.description for binding in ours.values())
        own = [binding for binding in type(app.screen).BINDINGS if isinstance(binding, Binding)]
        assert own
        assert all(binding.id and binding.id.startswith(f"{page}.") for binding in own)


async def test_help_is_that_of_the_focused_widget_and_tells_its_keys(tmp_path):
    app = console(tmp_path, page="results")
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: "Palette" in shown(app) and app.focused is not None)
        words = app.focused.HELP
        await pilot.press("f1")
        await until(pilot, lambda: isinstance(app.screen, HelpScreen))
        text = shown(app)
        assert words.split("\n")[0][:40] in text
        assert ("Quit the console", "app.quit") in {key[1:] for key in app.screen._keys}
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, HelpScreen))


async def test_the_palette_has_every_action_of_every_page_and_each_theme(tmp_path):
    app = console(tmp_path, page="run")
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        every = list(list_commands(app.screen, False, app.choose_theme))
        titles = [command.title for command in every]
        assert {"suites: save": "(^s)"}.items() <= {
            command.title: command.help.split()[-1] for command in every
        }.items()
        assert len(titles) == len(set(titles))
        for entry in PAGES:
            for binding in entry.load().BINDINGS:
                assert any(
                    title == f"{entry.name}: {binding.description.lower()}" for title in titles
                ), binding
        assert {f"theme: {theme.name}" for theme in THEMES} <= set(titles)


async def test_a_command_of_another_page_shows_that_page_first(tmp_path):
    app = console(tmp_path, page="run")
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        found = {
            command.title: command for command in list_commands(app.screen, False, app.choose_theme)
        }
        await found["results: filter"].callback()
        await until(pilot, lambda: app.current_mode == "results")


async def test_a_theme_is_remembered_and_keys_can_be_mapped_anew(tmp_path):
    app = console(tmp_path, page="run")
    async with app.run_test(size=(80, 24)) as pilot:
        app.choose_theme("spbench-light")
        await until(pilot, lambda: (tmp_path / "console.yaml").exists())
    assert (tmp_path / "console.yaml").read_text() == "theme: spbench-light\n"
    (tmp_path / "console.yaml").write_text("theme: spbench-light\nkeys: {app.results: f9}\n")
    again = console(tmp_path, page="run")
    async with again.run_test(size=(80, 24)) as pilot:
        assert again.theme == "spbench-light"
        await pilot.press("f9")
        await until(pilot, lambda: again.current_mode == "results")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("refresh_hz: 1000", "refresh_hz: 1000 is not"),
        ("them: x  # mine", "there is no setting 'them'"),
        ("theme: nosuch", "there is no theme 'nosuch'"),
        ("keys: {run.cancl: X}", "there is no action 'run.cancl' (did you mean run.cancel?)"),
    ],
)
async def test_wrong_settings_are_told_and_their_file_is_left_alone(tmp_path, text, sentence):
    file = tmp_path / "console.yaml"
    file.write_text(text)
    app = console(tmp_path, page="run")
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: told(app, sentence))
        assert app.theme == "spbench-dark"
        app.choose_theme("spbench-light")
        await until(pilot, lambda: told(app, "fix"))
        assert app.theme == "spbench-light"
    assert file.read_text() == text


async def test_readonly_remembers_no_theme(tmp_path):
    app = console(tmp_path, page="run", readonly=True)
    async with app.run_test(size=(80, 24)) as pilot:
        app.choose_theme("spbench-light")
        await pilot.pause()
        assert app.theme == "spbench-light"
    assert not (tmp_path / "console.yaml").exists()


class Starting:
    """A run that is being started: it has a folder, or ends without one, when a test says so."""

    def __init__(self, monkeypatch, home):
        self.begun = []
        self.found = None
        self.status = None
        self.home = home
        monkeypatch.setattr(background, "start_run", self.start)

    def start(self, words, home, environ, cwd):
        self.begun.append((words, cwd))
        return self

    def appear(self):
        self.found = record_run(self.home, [run_start()])

    def folder(self):
        return self.found

    def exit_status(self):
        return self.status

    def read_last_lines(self):
        return "mpirun is not installed"


async def test_a_run_that_is_started_shows_its_page_at_once_and_no_other_is_started(
    tmp_path, monkeypatch
):
    run = Starting(monkeypatch, tmp_path / "home")
    app = console(tmp_path)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: "Palette" in shown(app))
        app.context.start_run(("a.yaml",))
        await until(pilot, lambda: app.current_mode == "run")
        await until(pilot, lambda: "… starting a run" in shown(app))
        app.context.start_run(("b.yaml",))
        await until(pilot, lambda: told(app, "another run is just being started"))
        app.context.show_page("results")
        await until(pilot, lambda: app.current_mode == "results")
        run.appear()
        await until(pilot, lambda: app.context.feed is not None)
        await until(pilot, lambda: "starting a run" not in shown(app))
        assert app.context.feed.folder == run.found
        assert app.current_mode == "results"
        assert run.begun == [(("a.yaml",), tmp_path)]


async def test_a_run_that_cannot_be_started_says_why_and_another_may_be(tmp_path, monkeypatch):
    run = Starting(monkeypatch, tmp_path / "home")
    run.status = 3
    app = console(tmp_path)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: "Palette" in shown(app))
        for count in (1, 2):
            app.context.start_run(("a.yaml",))
            await until(pilot, lambda: not app.context.starting_since)
            assert len(run.begun) == count
        await until(pilot, lambda: told(app, "mpirun is not installed"))


@pytest.mark.long
async def test_a_folder_that_is_deleted_leaves_the_console_as_it_is(tmp_path, monkeypatch):
    suite = SUITES / "smoke.yaml"
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    opened = []
    monkeypatch.setattr(start, "_reduce_garbage_collection", lambda: None)

    def app_of(opening):
        opened.append(opening)
        return Mock()

    monkeypatch.setattr(start, "ConsoleApp", app_of)
    start.open_console(
        home=Path(".spbench"), suite=suite, chosen=LaunchChoice(hostfile=Path("a.hosts"))
    )
    [opening] = opened
    assert (opening.folder, opening.home) == (folder, folder / ".spbench")
    assert opening.launch_choice.hostfile == folder / "a.hosts"
    environ = {"SPBENCH_CONFIG": str(tmp_path / "console.yaml")}
    app = ConsoleApp(replace(opening, environ=environ, launch_choice=LaunchChoice()))
    async with app.run_test(size=(200, 60)) as pilot:
        await until(pilot, lambda: "link.pingpong" in shown(app))
        folder.rmdir()
        await pilot.press("f4", "escape", "ctrl+s", "down")
        await until(pilot, lambda: "was deleted" in shown(app))
        await pilot.press("f6")
        await until(pilot, lambda: told(app, f"cannot start a run in {folder}"))
        for digit, entry in enumerate(PAGES, 1):
            await pilot.press(str(digit))
            await until(pilot, lambda name=entry.name: app.current_mode == name)
            await pilot.pause()


def test_a_folder_that_is_gone_already_is_one_sentence(tmp_path, monkeypatch):
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    with pytest.raises(UsageError, match="was deleted"):
        start.open_console(home=tmp_path)


class GoingOn:
    """A source of events that has none and does not end."""

    async def batches(self):
        await asyncio.Event().wait()
        yield []


@pytest.mark.parametrize(("key", "leaves"), [("y", True), ("n", False)])
async def test_quitting_asks_while_a_run_goes_on(tmp_path, monkeypatch, key, leaves):
    from spbench.record.runs.folder import RunFolder

    app = console(tmp_path, page="run")
    monkeypatch.setattr(ConsoleContext, "is_run_active", lambda self: True)
    async with app.run_test(size=(80, 24)) as pilot:
        app.context.watch_run(RunFolder(tmp_path / "a-run"), GoingOn())
        await pilot.pause()
        await pilot.press("q")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        assert "keeps running without the console" in shown(app)
        await pilot.press(key)
        await pilot.pause()
        assert (app.return_value == 0) == leaves
        assert isinstance(app.screen, Confirm) is False


async def test_quitting_asks_while_a_run_that_is_not_watched_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(background, "has_running", lambda: True)
    app = console(tmp_path, page="run")
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "No run is watched" in shown(app))
        await pilot.press("q")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        assert "A run keeps running without the console" in shown(app)


async def test_quitting_without_a_run_asks_nothing(tmp_path):
    app = console(tmp_path, page="run")
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("q")
        await pilot.pause()
    assert app.return_value == 0


async def test_without_colours_words_and_signs_stay(tmp_path, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    app = console(tmp_path, page="results")
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "Palette" in shown(app))
        assert app.no_color
