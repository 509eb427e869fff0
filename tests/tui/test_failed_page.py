"""An error in a page does not affect the other pages and the run."""

import asyncio
from functools import partial

import pytest
from textual.worker import WorkerFailed

from spbench.tui.app import ConsoleApp
from spbench.tui.dialogs import AskLine
from spbench.tui.failed_page import FailedPage
from spbench.tui.results.page import ResultsPage
from support.tui.app_driver import DEADLINE, SIZES, make_console, read_screen, wait_until


@pytest.fixture(autouse=True)
def contain_failures(monkeypatch, failures_end_the_test):
    monkeypatch.setattr(ConsoleApp, "CONTAINS_FAILURES", True)


def raise_error(*_, **__):
    raise ValueError("out of bounds")


async def wait_for_failure(pilot, title):
    app = pilot.app
    await wait_until(pilot, lambda: isinstance(app.screen, FailedPage))
    await wait_until(pilot, lambda: f"The page {title} failed." in read_screen(app))
    await wait_until(pilot, lambda: "ValueError: out of bounds" in read_screen(app))


def list_reports(folder):
    return sorted((folder / "home" / "crashes").glob("console-*.txt"))


async def fail_in_action(pilot, monkeypatch):
    monkeypatch.setattr(ResultsPage, "action_view", raise_error)
    await pilot.press("v")


async def fail_in_message(pilot, monkeypatch):
    monkeypatch.setattr(ResultsPage, "on_line_table_row_highlighted", raise_error)
    monkeypatch.setattr(ResultsPage, "on_runs_pane_filter_changed", raise_error)
    await pilot.press("slash", "x", "backspace")


async def fail_in_worker(pilot, monkeypatch):
    async def raise_error_later(*_):
        raise_error()

    monkeypatch.setattr(ResultsPage, "_choose_baseline", raise_error_later)
    await pilot.press("b")


async def fail_in_timer(pilot, monkeypatch):
    monkeypatch.setattr(ResultsPage, "refresh_page", raise_error)


async def fail_in_drawing(pilot, monkeypatch):
    table = pilot.app.screen.query_one("#runs")
    monkeypatch.setattr(type(table), "render_line", raise_error)
    table.refresh()
    # Not wait_until: the pilot would draw the table too, and the error would end the test.
    async with asyncio.timeout(DEADLINE):
        while not (pilot.app.page_errors or isinstance(pilot.app.screen, FailedPage)):
            await asyncio.sleep(0.02)
    monkeypatch.undo()
    monkeypatch.setattr(ConsoleApp, "CONTAINS_FAILURES", True)


async def fail_below_question(pilot, monkeypatch):
    monkeypatch.setattr(ResultsPage, "refresh_page", lambda page: None)
    await pilot.press("P")
    await wait_until(pilot, lambda: isinstance(pilot.app.screen, AskLine))
    monkeypatch.setattr(AskLine, "on_input_submitted", raise_error)
    await pilot.press("enter")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "fail",
    [
        fail_in_action,
        *(
            pytest.param(failure, marks=pytest.mark.long)
            for failure in (fail_in_message, fail_in_worker)
        ),
        *(
            pytest.param(failure, marks=pytest.mark.long)
            for failure in (fail_in_timer, fail_in_drawing)
        ),
        fail_below_question,
    ],
)
async def test_error_closes_only_its_page_which_can_reopen(tmp_path, monkeypatch, fail, size):
    app = make_console(tmp_path, page="results")
    async with app.run_test(size=size) as pilot:
        await wait_until(pilot, lambda: "no run under" in read_screen(app))
        first = app.screen
        with monkeypatch.context() as patch:
            await fail(pilot, patch)
            await wait_for_failure(pilot, "Results")
        (report,) = list_reports(tmp_path)
        text = report.read_text()
        assert text.startswith("spbench console: ValueError: out of bounds on the page results\n")
        for part in ("Traceback", "test_failed_page.py", "textual"):
            assert part in text
        assert report.name in "".join(read_screen(app).split())
        await pilot.press("y")
        await wait_until(pilot, lambda: app.clipboard + "\n" == text)
        await pilot.press("1")
        await wait_until(pilot, lambda: app.current_mode == "suites")
        await pilot.press("3")
        await wait_until(
            pilot, lambda: isinstance(app.screen, ResultsPage) and app.screen is not first
        )
        await wait_until(pilot, lambda: "no run under" in read_screen(app))
        assert not app.page_errors
        await pilot.press("v")


async def test_uncomposable_page_is_reported_and_others_open(tmp_path, monkeypatch):
    monkeypatch.setattr(ResultsPage, "compose_body", raise_error)
    app = make_console(tmp_path, page="results")
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_for_failure(pilot, "Results")
        await pilot.press("4")
        await wait_until(pilot, lambda: app.current_mode == "hosts")
        await pilot.press("3")
        await wait_for_failure(pilot, "Results")


async def test_failure_of_a_hidden_page_keeps_the_current_one(tmp_path, monkeypatch):
    app = make_console(tmp_path, page="results")
    async with app.run_test(size=(120, 36), notifications=True) as pilot:
        await wait_until(pilot, lambda: "no run under" in read_screen(app))
        page = app.screen
        await pilot.press("1")
        await wait_until(pilot, lambda: app.current_mode == "suites")
        page.call_later(raise_error)
        await wait_until(
            pilot,
            lambda: any(
                "Results failed" in notification.message for notification in app._notifications
            ),
        )
        assert app.current_mode == "suites"
        assert len(list_reports(tmp_path)) == 1


async def test_readonly_console_writes_no_report(tmp_path, monkeypatch):
    app = make_console(tmp_path, page="results", readonly=True)
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_until(pilot, lambda: "no run under" in read_screen(app))
        monkeypatch.setattr(ResultsPage, "action_view", raise_error)
        await pilot.press("v")
        await wait_for_failure(pilot, "Results")
        assert list_reports(tmp_path) == []


async def fail_twice(app, monkeypatch):
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_until(pilot, lambda: "no run under" in read_screen(app))
        monkeypatch.setattr(FailedPage, "compose_body", raise_error)
        monkeypatch.setattr(ResultsPage, "refresh_page", raise_error)
        await wait_until(pilot, lambda: app._exception is not None)


async def test_error_in_the_failure_page_ends_the_console(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="out of bounds"):
        await fail_twice(make_console(tmp_path, page="results"), monkeypatch)


async def miss_widget(dialog, condition, reached):
    while not condition():
        await asyncio.sleep(0)
    reached.append(dialog)
    dialog.query_one("#missing")


@pytest.mark.parametrize("closed", ["dialog", "console"])
async def test_work_may_outlast_its_widgets(tmp_path, monkeypatch, closed):
    monkeypatch.setattr(ConsoleApp, "CONTAINS_FAILURES", False)
    app = make_console(tmp_path, page="results")
    reached = []
    async with app.run_test() as pilot:
        await wait_until(pilot, lambda: isinstance(app.screen, ResultsPage))
        dialog = AskLine("Which name?", str)
        await app.push_screen(dialog)
        is_closing = {"dialog": lambda: dialog._pruning, "console": lambda: not app.is_running}
        dialog.run_worker(partial(miss_widget, dialog, is_closing[closed], reached))
        await pilot.pause()
        if closed == "dialog":
            dialog.dismiss(None)
            await wait_until(pilot, lambda: not dialog.is_attached)
    assert reached == [dialog]


async def run_until_failure(app):
    async with app.run_test() as pilot:
        await wait_until(pilot, lambda: isinstance(app.screen, ResultsPage))
        app.screen.run_worker(partial(miss_widget, app.screen, lambda: True, []))
        await wait_until(pilot, lambda: app._exception is not None)


async def test_missing_widget_of_an_open_page_is_a_failure(tmp_path, monkeypatch):
    monkeypatch.setattr(ConsoleApp, "CONTAINS_FAILURES", False)
    with pytest.raises(WorkerFailed, match="missing"):
        await run_until_failure(make_console(tmp_path, page="results"))
