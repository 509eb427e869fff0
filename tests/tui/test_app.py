"""The parts of the console that all its pages share."""

import asyncio
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from textual.binding import Binding
from textual.events import AppBlur
from textual.widgets._toast import Toast

from spbench.engine import background
from spbench.errors import UsageError
from spbench.launch.choice import LaunchChoice
from spbench.record.runs.folder import RunFolder
from spbench.tui import start
from spbench.tui.app import QUIT_QUESTION, ConsoleApp
from spbench.tui.context import ConsoleContext
from spbench.tui.dialogs import Confirm
from spbench.tui.guide.actions import collect_action_ids
from spbench.tui.pages import PAGES
from spbench.tui.run.panes.start_note import StartNote
from support.paths import SUITES
from support.sample_events import make_complete_run, record_run, run_start
from support.tui.app_driver import SIZES, make_console, read_screen, wait_until


def has_notification(app, text):
    """Return whether a notification contains the text."""
    return any(text in note.message for note in app._notifications)


@pytest.mark.parametrize("size", SIZES)
async def test_page_opens_by_digit_and_by_click(tmp_path, size):
    app = make_console(tmp_path, page="run")
    async with app.run_test(size=size) as pilot:
        for digit, entry in enumerate(PAGES, 1):
            await pilot.press(str(digit))
            await wait_until(pilot, lambda name=entry.name: app.current_mode == name)
            await wait_until(pilot, lambda: "Quit" in read_screen(app))
            app.screen.set_focus(None)
        await pilot.click(offset=(14, 0))
        await wait_until(pilot, lambda: app.current_mode == "run")


async def test_footer_stays_when_another_window_gets_the_focus(tmp_path):
    app = make_console(tmp_path, page="results")
    async with app.run_test(size=(120, 36)) as pilot:
        await wait_until(pilot, lambda: "Filter" in read_screen(app))
        app.post_message(AppBlur())
        await pilot.pause(0.1)
        assert app.focused is not None
        # The footer is drawn again when a page has opened, which may be just now.
        await wait_until(pilot, lambda: "Filter" in read_screen(app).splitlines()[-1])


@pytest.mark.parametrize("page", [entry.name for entry in PAGES])
async def test_footer_shows_documented_keys(tmp_path, page):
    app = make_console(tmp_path, page=page)
    async with app.run_test(size=(200, 60)) as pilot:
        await wait_until(pilot, lambda: "Quit" in read_screen(app))
        bindings = [active.binding for active in app.screen.active_bindings.values()]
        bindings_by_id = {binding.id: binding for binding in bindings if binding.id}
        assert set(app.screen.FOOTER) <= collect_action_ids()
        assert all(binding.tooltip and binding.description for binding in bindings_by_id.values())
        page_bindings = [
            binding for binding in type(app.screen).BINDINGS if isinstance(binding, Binding)
        ]
        assert page_bindings
        assert all(binding.id and binding.id.startswith(f"{page}.") for binding in page_bindings)


async def test_saves_the_theme_and_applies_remapped_keys(tmp_path):
    app = make_console(tmp_path, page="run")
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_until(pilot, lambda: "F1 Help" in read_screen(app))
        app.choose_theme("spbench-light")
        await wait_until(pilot, lambda: (tmp_path / "console.yaml").exists())
    assert (tmp_path / "console.yaml").read_text() == "theme: spbench-light\n"
    (tmp_path / "console.yaml").write_text("theme: spbench-light\nkeys: {app.results: f9}\n")
    second_app = make_console(tmp_path, page="run")
    async with second_app.run_test(size=(80, 24)) as pilot:
        assert second_app.theme == "spbench-light"
        await pilot.press("f9")
        await wait_until(pilot, lambda: second_app.current_mode == "results")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("refresh_hz: 1000", "refresh_hz: 1000 is not"),
        ("them: x  # mine", "there is no setting 'them'"),
        ("theme: nosuch", "there is no theme 'nosuch'"),
        ("keys: {run.cancl: X}", "there is no action 'run.cancl' (did you mean run.cancel?)"),
    ],
)
async def test_reports_invalid_settings_and_keeps_their_file(tmp_path, text, message):
    path = tmp_path / "console.yaml"
    path.write_text(text)
    app = make_console(tmp_path, page="run")
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_until(pilot, lambda: has_notification(app, message))
        assert app.theme == "spbench-dark"
        app.choose_theme("spbench-light")
        await wait_until(pilot, lambda: has_notification(app, "fix"))
        assert app.theme == "spbench-light"
    assert path.read_text() == text


async def test_readonly_does_not_save_the_theme(tmp_path):
    app = make_console(tmp_path, page="run", readonly=True)
    async with app.run_test(size=(80, 24)) as pilot:
        app.choose_theme("spbench-light")
        await pilot.pause()
        assert app.theme == "spbench-light"
    assert not (tmp_path / "console.yaml").exists()


class FakeRunStart:
    """A start of a run that gets a folder, or ends without one, on a test's command."""

    def __init__(self, monkeypatch, home):
        self.starts = []
        self.run_folder = None
        self.status = None
        self.home = home
        monkeypatch.setattr(background, "start_run", self.start)

    def start(self, arguments, home, environ, cwd):
        self.starts.append((arguments, cwd))
        return self

    def appear(self):
        self.run_folder = record_run(self.home, [run_start()])

    def find_folder(self):
        return self.run_folder

    def cancel(self):
        self.status = -2

    def get_exit_status(self):
        return self.status

    def read_last_lines(self):
        return "mpirun is not installed"


async def test_starting_run_shows_its_page_and_blocks_others(tmp_path, monkeypatch):
    run = FakeRunStart(monkeypatch, tmp_path / "home")
    app = make_console(tmp_path)
    async with app.run_test(size=(120, 40)) as pilot:
        await wait_until(pilot, lambda: "Palette" in read_screen(app))
        app.context.start_run(("a.yaml",))
        await wait_until(pilot, lambda: app.current_mode == "run")
        await wait_until(pilot, lambda: "… starting a run" in read_screen(app))
        app.context.start_run(("b.yaml",))
        await wait_until(pilot, lambda: has_notification(app, "another run is just being started"))
        app.context.show_page("results")
        await wait_until(pilot, lambda: app.current_mode == "results")
        run.appear()
        await wait_until(pilot, lambda: app.context.feed is not None)
        await wait_until(pilot, lambda: "starting a run" not in read_screen(app))
        assert app.context.feed.folder == run.run_folder
        assert app.current_mode == "results"
        assert run.starts == [(("a.yaml",), tmp_path)]


async def test_start_can_be_cancelled_before_the_run_has_a_folder(tmp_path, monkeypatch):
    run = FakeRunStart(monkeypatch, tmp_path / "home")
    app = make_console(tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_until(pilot, lambda: "Palette" in read_screen(app))
        app.context.start_run(("a.yaml",))
        await wait_until(pilot, lambda: "x cancels" in read_screen(app))
        await wait_until(pilot, lambda: "Cancel" in read_screen(app).splitlines()[-1])
        app.simulate_key("x")
        await wait_until(pilot, lambda: has_notification(app, "the start was cancelled"))
        await wait_until(pilot, lambda: "No run is watched." in read_screen(app))
        assert run.status == -2
        assert app.context.start_failure is None


async def test_cancelled_start_shows_the_run_before_it_again(tmp_path, monkeypatch):
    home = tmp_path / "home"
    folder = record_run(home, make_complete_run())
    FakeRunStart(monkeypatch, home)
    app = make_console(tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        app.context.watch_run(folder)
        await wait_until(pilot, lambda: "1/1 passed" in read_screen(app))
        app.context.start_run(("a.yaml",))
        await wait_until(pilot, lambda: "x cancels" in read_screen(app))
        await wait_until(pilot, lambda: "Cancel" in read_screen(app).splitlines()[-1])
        app.simulate_key("x")
        await wait_until(pilot, lambda: "1/1 passed" in read_screen(app))
        assert app.context.feed.folder.id == folder.id


async def test_failed_start_is_reported_and_can_be_repeated(tmp_path, monkeypatch):
    run = FakeRunStart(monkeypatch, tmp_path / "home")
    run.status = 3
    app = make_console(tmp_path)
    async with app.run_test(size=(120, 40)) as pilot:
        await wait_until(pilot, lambda: "Palette" in read_screen(app))
        for count in (1, 2):
            app.context.start_run(("a.yaml",))
            await wait_until(pilot, lambda: not app.context.starting_since)
            assert len(run.starts) == count
        await wait_until(pilot, lambda: "mpirun is not installed" in read_screen(app))


@pytest.mark.parametrize("size", SIZES)
async def test_failed_start_stays_on_the_run_page_until_the_next(tmp_path, monkeypatch, size):
    run = FakeRunStart(monkeypatch, tmp_path / "home")
    run.status = 3
    app = make_console(tmp_path)
    async with app.run_test(size=size) as pilot:
        await wait_until(pilot, lambda: "F1 Help" in read_screen(app))
        app.context.launch_choice = LaunchChoice(hosts="node[1-2]")
        app.context.start_suite(tmp_path / "a.yaml", ["first"], ["slow"])
        for text in ("not started: a.yaml, first, fault slow, on node[1-2]", "mpirun is not", "→"):
            await wait_until(pilot, lambda text=text: text in read_screen(app))
        run.appear()
        run.status = None
        app.context.start_run(("a.yaml",))
        await wait_until(pilot, lambda: "not started" not in str(app.screen.query("#start-note")))
        await wait_until(pilot, lambda: not app.screen.query_one("#start-note").display)


async def test_f5_starts_again_with_other_hosts(tmp_path, monkeypatch):
    run = FakeRunStart(monkeypatch, tmp_path / "home")
    run.status = 3
    app = make_console(tmp_path, page="run")
    async with app.run_test(size=(120, 40)) as pilot:
        await wait_until(pilot, lambda: "F1 Help" in read_screen(app))
        await pilot.press("f5")
        await wait_until(pilot, lambda: has_notification(app, "F5 starts a suite on the Suites"))
        app.context.start_suite(tmp_path / "a.yaml", ["first"], ["slow"])
        await wait_until(pilot, lambda: "F5 Run again" in read_screen(app))
        app.context.launch_choice = LaunchChoice(hosts="node3")
        await pilot.press("f5")
        await wait_until(pilot, lambda: len(run.starts) == 2)
        (first, _), (second, _) = run.starts
        assert second == (*first, "--hosts", "node3")


async def test_failed_start_hides_the_run_before(tmp_path, monkeypatch):
    run = FakeRunStart(monkeypatch, tmp_path / "home")
    run.appear()
    app = make_console(tmp_path, page="run")
    async with app.run_test(size=(120, 40)) as pilot:
        await wait_until(pilot, lambda: "No run is watched" in read_screen(app))
        assert "Open" not in read_screen(app)  # enter has no effect
        app.context.replay_run(run.run_folder, None)
        await wait_until(pilot, lambda: app.screen.query_one("#headline").display)
        await wait_until(pilot, lambda: app.context.feed.ended)
        run.run_folder = None
        run.status = 3
        app.context.start_run(("a.yaml",))
        await wait_until(pilot, lambda: app.context.start_failure is not None)
        await wait_until(pilot, lambda: not app.screen.query_one("#headline").display)
        await wait_until(pilot, lambda: "✗ not started" in read_screen(app).splitlines()[0])
        assert app.screen.offers("again")  # the run that could not be started
        await wait_until(pilot, lambda: "Open" not in read_screen(app))


async def test_next_watched_run_removes_the_note_of_a_failed_start(tmp_path, monkeypatch):
    run = FakeRunStart(monkeypatch, tmp_path / "home")
    run.appear()
    folder = run.run_folder
    app = make_console(tmp_path, page="run")
    async with app.run_test(size=(120, 40)) as pilot:
        app.context.watch_run(folder, EndlessSource())
        follow_task = app.context._follow_task
        run.run_folder = None
        run.status = 3
        app.context.start_run(("a.yaml",))
        await wait_until(pilot, follow_task.done)
        await wait_until(pilot, lambda: app.context.start_failure is not None)
        app.context.replay_run(folder, None)
        await wait_until(pilot, lambda: app.screen.query_one("#headline").display)
        assert app.context.start_failure is None
        assert not app.screen.query_one(StartNote).display


async def test_messages_cover_no_titles(tmp_path):
    app = make_console(tmp_path)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await wait_until(pilot, lambda: "F1 Help" in read_screen(app))
        app.notify("a message")
        await wait_until(pilot, lambda: app.screen.query(Toast))
        await wait_until(pilot, lambda: app.screen.query(Toast).first().region.bottom == 23)


@pytest.mark.long
async def test_deleted_folder_does_not_end_the_console(tmp_path, monkeypatch):
    suite = SUITES / "smoke.yaml"
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    openings = []

    def make_app(opening, on_opened):
        openings.append(opening)
        return Mock()

    monkeypatch.setattr(start, "ConsoleApp", make_app)
    start.open_tui(
        home=Path(".spbench"), suite=suite, launch_choice=LaunchChoice(hostfile=Path("a.hosts"))
    )
    [opening] = openings
    assert (opening.folder, opening.home) == (folder, folder / ".spbench")
    assert opening.launch_choice.hostfile == folder / "a.hosts"
    environ = {"SPBENCH_CONFIG": str(tmp_path / "console.yaml")}
    app = ConsoleApp(replace(opening, environ=environ, launch_choice=LaunchChoice()))
    async with app.run_test(size=(200, 60)) as pilot:
        await wait_until(pilot, lambda: "link.pingpong" in read_screen(app))
        folder.rmdir()
        await pilot.press("f4", "escape", "ctrl+s", "down")
        await wait_until(pilot, lambda: "was deleted" in read_screen(app))
        await pilot.press("f6")
        await wait_until(pilot, lambda: f"cannot start a run in {folder}" in read_screen(app))
        for digit, entry in enumerate(PAGES, 1):
            await pilot.press(str(digit))
            await wait_until(pilot, lambda name=entry.name: app.current_mode == name)
            await pilot.pause()


def test_missing_folder_is_a_usage_error(tmp_path, monkeypatch):
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    with pytest.raises(UsageError, match="was deleted"):
        start.open_tui(home=tmp_path)


class EndlessSource:
    """A source without events that does not end."""

    async def batches(self):
        await asyncio.Event().wait()
        yield []


@pytest.mark.parametrize(("key", "quits"), [("y", True), ("n", False)])
async def test_quitting_asks_during_a_run(tmp_path, monkeypatch, key, quits):
    from spbench.record.runs.folder import RunFolder

    app = make_console(tmp_path, page="run")
    monkeypatch.setattr(ConsoleContext, "is_run_active", lambda self: True)
    async with app.run_test(size=(80, 24)) as pilot:
        app.context.watch_run(RunFolder(tmp_path / "a-run"), EndlessSource())
        await pilot.pause()
        await pilot.press("q")
        await wait_until(pilot, lambda: isinstance(app.screen, Confirm))
        assert "keeps running without the console" in read_screen(app)
        await pilot.press(key)
        await pilot.pause()
        assert (app.return_value == 0) == quits
        assert isinstance(app.screen, Confirm) is False


async def test_enter_watches_a_run_after_not_now(tmp_path):
    app = make_console(tmp_path, page="run")
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_until(pilot, lambda: "No run is watched" in read_screen(app))
        assert "Watch" not in read_screen(app)
        app.context.unwatched_run = folder = RunFolder(tmp_path / "home" / "halo-7")
        await wait_until(pilot, lambda: "halo-7 is running: Enter watches it" in read_screen(app))
        await wait_until(pilot, lambda: "⏎ Watch" in read_screen(app))
        await pilot.press("enter")
        await wait_until(pilot, lambda: app.context.feed is not None)
        assert app.context.feed.folder == folder


async def test_quitting_asks_during_an_unwatched_run(tmp_path, monkeypatch):
    monkeypatch.setattr(background, "has_running", lambda: True)
    app = make_console(tmp_path, page="run")
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_until(pilot, lambda: "No run is watched" in read_screen(app))
        assert "`" not in read_screen(app)
        await pilot.press("q")
        await wait_until(pilot, lambda: isinstance(app.screen, Confirm))
        assert "A run keeps running without the console" in read_screen(app)
        assert "`" not in read_screen(app)


async def test_q_quits_at_once_without_a_page_for_its_question(tmp_path):
    app = make_console(tmp_path, page="run")
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_until(pilot, lambda: "No run is watched" in read_screen(app))
        app.pages.clear()
        app.action_leave(always_asks=True)
        assert app.return_value == 0


async def test_page_is_not_updated_while_the_console_closes(tmp_path, monkeypatch):
    app = make_console(tmp_path, page="run")
    updates = []
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_until(pilot, lambda: "No run is watched" in read_screen(app))
        page = app.pages["run"]
        monkeypatch.setattr(page, "refresh_page", lambda: updates.append(page))
        page._tick()
        assert updates == [page]
        app.exit(0)
        page._tick()
        assert updates == [page]


@pytest.mark.parametrize(("key", "quits"), [("enter", True), ("y", True), ("escape", False)])
async def test_q_asks_before_it_quits(tmp_path, key, quits):
    app = make_console(tmp_path, page="run")
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_until(pilot, lambda: "No run is watched" in read_screen(app))
        await pilot.press("q")
        await wait_until(pilot, lambda: isinstance(app.screen, Confirm))
        await wait_until(pilot, lambda: "Stay (n)" in read_screen(app))
        assert QUIT_QUESTION in " ".join(read_screen(app).replace("│", "").split())
        await pilot.press(key)
        await wait_until(pilot, lambda: not isinstance(app.screen, Confirm) or not app.is_running)
        assert (app.return_value == 0) == quits


async def test_ctrl_q_quits_at_once_without_a_run(tmp_path):
    app = make_console(tmp_path, page="run")
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_until(pilot, lambda: "No run is watched" in read_screen(app))
        await pilot.press("ctrl+q")
        await wait_until(pilot, lambda: not app.is_running)
    assert app.return_value == 0


async def test_no_color_disables_colours(tmp_path, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    app = make_console(tmp_path, page="results")
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_until(pilot, lambda: "Palette" in read_screen(app))
        assert app.no_color
