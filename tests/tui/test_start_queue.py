"""Starts while another run of the home is running: question and waiting start."""

import pytest

from spbench.engine import background
from spbench.record.runs.folder import RunFolder
from spbench.tui.context import ConsoleContext
from spbench.tui.dialogs import Confirm
from spbench.tui.start_failure import StartFailure
from spbench.tui.start_queue import CancelBothDialog, RunIsOnDialog
from support.sample_events import (
    describe_case,
    make_started_run,
    record_events,
    record_run,
    run_end,
)
from support.tui.app_driver import make_console, read_screen, wait_until
from support.tui.suites_page import open_suite, wait_for_cases, write_suite

QUESTION = "made-up is running (0/1 cases"


class RunningRun:
    """A run of the home that is running until a test ends it."""

    def __init__(self, monkeypatch, home):
        self.is_running = True
        self.folder = record_run(home, make_started_run(describe_case("warp", 2)))
        monkeypatch.setattr(
            background, "find_running", lambda home: [self.folder] if self.is_running else []
        )
        monkeypatch.setattr(RunFolder, "is_alive", lambda folder: self.is_running)


@pytest.fixture
def running(monkeypatch, tmp_path):
    async def offer_nothing(context):
        """Leave out the question whether to watch the run."""

    monkeypatch.setattr(ConsoleContext, "offer_to_watch", offer_nothing)
    return RunningRun(monkeypatch, tmp_path / "home")


async def open_question(pilot, running, key="f5"):
    """Press F5 on the Suites page while a run is watched."""
    app = pilot.app
    await wait_until(pilot, lambda: app.current_mode == "suites")
    app.context.watch_run(running.folder, show=False)
    await wait_until(pilot, lambda: app.context.feed.state.run is not None)
    await wait_until(pilot, lambda: "made-up … running" in read_screen(app))
    await wait_for_cases(pilot)
    await pilot.press(key)
    await wait_until(pilot, lambda: isinstance(app.screen, RunIsOnDialog))
    await wait_until(pilot, lambda: app.focused is not None and app.focused.id == "third")


def read_question(app):
    return " ".join(app.screen._question.split())


@pytest.mark.parametrize("size", [(80, 24), (200, 60)])
async def test_enter_starts_a_run_after_the_running_one(tmp_path, running, size):
    app = open_suite(write_suite(tmp_path))
    async with app.run_test(size=size) as pilot:
        await open_question(pilot, running)
        assert read_question(app).startswith(QUESTION)
        assert read_question(app).endswith("Start made-up.yaml after it?")
        await pilot.press("enter")
        await wait_until(pilot, lambda: app.current_mode == "run")
        line = "… made-up.yaml waits until made-up has ended; x removes it"
        await wait_until(pilot, lambda: line in read_screen(app))
        await pilot.press("3")
        await wait_until(pilot, lambda: app.current_mode == "results" and line in read_screen(app))
        assert app.started == []
        running.is_running = False
        await wait_until(pilot, lambda: app.started)
        await wait_until(pilot, lambda: "waits until" not in read_screen(app))
        assert app.current_mode == "results"


@pytest.mark.parametrize(("key", "num_starts"), [("y", 1), ("n", 0), ("escape", 0)])
async def test_run_starts_at_once_or_not_at_all(tmp_path, running, key, num_starts):
    app = open_suite(write_suite(tmp_path))
    async with app.run_test(size=(120, 40)) as pilot:
        await open_question(pilot, running, "f6")
        await pilot.press(key)
        await wait_until(pilot, lambda: not app.screen.is_modal)
        await wait_until(pilot, lambda: len(app.started) == num_starts)
        await wait_until(pilot, lambda: not app.context.start_queue.waiting)


@pytest.mark.parametrize(
    ("page", "key", "num_cancelled"), [("run", "w", 0), ("run", "y", 1), ("results", None, 0)]
)
async def test_x_removes_the_start_that_waits(
    tmp_path, running, monkeypatch, page, key, num_cancelled
):
    cancelled = []
    monkeypatch.setattr(background, "cancel_run", cancelled.append)
    app = open_suite(write_suite(tmp_path))
    async with app.run_test(size=(120, 40)) as pilot:
        await open_question(pilot, running)
        await pilot.press("a")
        await wait_until(pilot, lambda: app.current_mode == "run")
        app.context.show_page(page)
        await wait_until(pilot, lambda: "x removes it" in read_screen(app))
        await pilot.press("x")
        if key is not None:
            await wait_until(pilot, lambda: isinstance(app.screen, CancelBothDialog))
            await pilot.press(key)
        await wait_until(pilot, lambda: "x removes it" not in read_screen(app))
        await wait_until(pilot, lambda: not app.workers or not app.context.start_queue.waiting)
        assert not app.screen.is_modal
        await wait_until(pilot, lambda: len(cancelled) == num_cancelled)
        running.is_running = False
        await pilot.pause()
        assert app.started == []


@pytest.mark.parametrize(("key", "num_starts"), [("a", 1), ("y", 1), ("n", 0)])
async def test_start_again_after_a_failed_one_asks_too(
    tmp_path, running, monkeypatch, key, num_starts
):
    starts = []
    app = make_console(tmp_path, page="run")
    app.context.start_failure = StartFailure("made-up.yaml", "no such host", "H")
    monkeypatch.setattr(app.context, "_start_again", lambda **options: starts.append(options))
    async with app.run_test(size=(120, 40)) as pilot:
        await wait_until(pilot, lambda: "no such host" in read_screen(app))
        await pilot.press("f5")
        await wait_until(pilot, lambda: isinstance(app.screen, RunIsOnDialog))
        assert read_question(app).endswith("Start made-up.yaml after it?")
        await wait_until(pilot, lambda: app.focused is not None and app.focused.id == "third")
        await pilot.press(key)
        await wait_until(pilot, lambda: not app.screen.is_modal)
        if key == "a":
            await wait_until(pilot, lambda: app.context.start_queue.waiting)
            assert starts == []
            running.is_running = False
        await wait_until(pilot, lambda: len(starts) == num_starts)
        await wait_until(pilot, lambda: not app.context.start_queue.waiting)


async def test_starts_that_wait_begin_one_after_the_other(tmp_path, running):
    app = make_console(tmp_path, page="run")
    queue = app.context.start_queue
    starts = []

    async def start(name):
        if await queue.wait(name):
            starts.append(name)

    async with app.run_test(size=(120, 40)) as pilot:
        for number, name in enumerate(("first", "second"), 1):
            app.run_worker(start(name))
            await wait_until(pilot, lambda number=number: len(queue.waiting) == number)
        await wait_until(
            pilot, lambda: "first waits until made-up has ended (+1 more)" in read_screen(app)
        )
        running.is_running = False
        await wait_until(pilot, lambda: starts == ["first", "second"])


async def test_question_names_a_run_that_is_not_watched(tmp_path, running):
    app = make_console(tmp_path, page="run")
    admissions = []

    async def admit():
        admissions.append(await app.context.start_queue.admit("a.yaml"))

    async with app.run_test(size=(80, 24)) as pilot:
        await wait_until(pilot, lambda: "No run is watched" in read_screen(app))
        app.run_worker(admit())
        await wait_until(pilot, lambda: isinstance(app.screen, RunIsOnDialog))
        assert f"The run {running.folder.id} of this home is running." in read_question(app)
        await pilot.press("enter")
        await wait_until(pilot, lambda: app.context.feed is not None)
        assert app.context.feed.folder.id == running.folder.id


async def test_quitting_names_the_start_that_is_lost(tmp_path, running):
    app = open_suite(write_suite(tmp_path))
    async with app.run_test(size=(120, 40)) as pilot:
        await open_question(pilot, running)
        await pilot.press("a")
        await wait_until(pilot, lambda: app.context.start_queue.waiting)
        await pilot.press("q")
        await wait_until(pilot, lambda: isinstance(app.screen, Confirm))
        assert "A start that waits for its end is lost." in app.screen._question


async def test_question_follows_the_run_to_its_end(tmp_path, running):
    app = open_suite(write_suite(tmp_path))
    async with app.run_test(size=(120, 40)) as pilot:
        await open_question(pilot, running)
        record_events(running.folder, [run_end()])
        await wait_until(
            pilot, lambda: read_question(app) == "made-up has ended. Start made-up.yaml?"
        )
        await wait_until(pilot, lambda: "Start (y)" in read_screen(app))
        assert "After it" not in read_screen(app)
        await wait_until(pilot, lambda: app.focused is not None and app.focused.id == "yes")
        running.is_running = False
        await pilot.press("enter")
        await wait_until(pilot, lambda: app.started)
