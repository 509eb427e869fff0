"""An error in a page leaves the other pages and the run alive."""

import pytest

from spbench.tui.app import ConsoleApp
from spbench.tui.dialogs import AskLine
from spbench.tui.failed_page import FailedPage
from spbench.tui.results.page import ResultsPage
from support.tui.driving import SIZES, console, shown, until


@pytest.fixture(autouse=True)
def contained(monkeypatch, failures_end_the_test):
    monkeypatch.setattr(ConsoleApp, "CONTAINS_FAILURES", True)


def fails(*_, **__):
    raise ValueError("out of bounds")


async def failed_on(pilot, title):
    app = pilot.app
    await until(pilot, lambda: isinstance(app.screen, FailedPage))
    await until(pilot, lambda: f"The page {title} failed." in shown(app))
    await until(pilot, lambda: "ValueError: out of bounds" in shown(app))


def reports(folder):
    return sorted((folder / "home" / "crashes").glob("console-*.txt"))


async def in_an_action(pilot, monkeypatch):
    monkeypatch.setattr(ResultsPage, "action_view", fails)
    await pilot.press("v")


async def in_a_message(pilot, monkeypatch):
    monkeypatch.setattr(ResultsPage, "on_line_table_row_highlighted", fails)
    monkeypatch.setattr(ResultsPage, "on_runs_pane_filter_changed", fails)
    await pilot.press("slash", "x", "backspace")


async def in_a_worker(pilot, monkeypatch):
    async def fails_later(*_):
        fails()

    monkeypatch.setattr(ResultsPage, "_choose_baseline", fails_later)
    await pilot.press("b")


async def in_a_timer(pilot, monkeypatch):
    monkeypatch.setattr(ResultsPage, "refresh_page", fails)


async def in_drawing(pilot, monkeypatch):
    table = pilot.app.screen.query_one("#runs")
    monkeypatch.setattr(type(table), "render_line", fails)
    table.refresh()
    await until(pilot, lambda: pilot.app.page_errors or isinstance(pilot.app.screen, FailedPage))
    monkeypatch.undo()
    monkeypatch.setattr(ConsoleApp, "CONTAINS_FAILURES", True)


async def below_a_question(pilot, monkeypatch):
    monkeypatch.setattr(ResultsPage, "refresh_page", lambda page: None)
    await pilot.press("D")
    await until(pilot, lambda: isinstance(pilot.app.screen, AskLine))
    monkeypatch.setattr(AskLine, "on_input_submitted", fails)
    await pilot.press("enter")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "happens",
    [
        in_an_action,
        *(pytest.param(one, marks=pytest.mark.long) for one in (in_a_message, in_a_worker)),
        *(pytest.param(one, marks=pytest.mark.long) for one in (in_a_timer, in_drawing)),
        below_a_question,
    ],
)
async def test_an_error_closes_that_page_alone_and_it_opens_anew(
    tmp_path, monkeypatch, happens, size
):
    app = console(tmp_path, page="results")
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: "no run under" in shown(app))
        first = app.screen
        with monkeypatch.context() as spoilt:
            await happens(pilot, spoilt)
            await failed_on(pilot, "Results")
        (report,) = reports(tmp_path)
        text = report.read_text()
        assert text.startswith("spbench console: ValueError: out of bounds on the page results\n")
        for part in ("Traceback", "test_failed_page.py", "textual"):
            assert part in text
        assert report.name in "".join(shown(app).split())
        await pilot.press("y")
        await until(pilot, lambda: app.clipboard + "\n" == text)
        await pilot.press("1")
        await until(pilot, lambda: app.current_mode == "suites")
        await pilot.press("3")
        await until(pilot, lambda: isinstance(app.screen, ResultsPage) and app.screen is not first)
        await until(pilot, lambda: "no run under" in shown(app))
        assert not app.page_errors
        await pilot.press("v")


async def test_a_page_that_cannot_be_made_is_told_and_others_open(tmp_path, monkeypatch):
    monkeypatch.setattr(ResultsPage, "compose_body", fails)
    app = console(tmp_path, page="results")
    async with app.run_test(size=(80, 24)) as pilot:
        await failed_on(pilot, "Results")
        await pilot.press("4")
        await until(pilot, lambda: app.current_mode == "hosts")
        await pilot.press("3")
        await failed_on(pilot, "Results")


async def test_a_page_behind_another_fails_without_a_change_of_pages(tmp_path, monkeypatch):
    app = console(tmp_path, page="results")
    async with app.run_test(size=(120, 36), notifications=True) as pilot:
        await until(pilot, lambda: "no run under" in shown(app))
        page = app.screen
        await pilot.press("1")
        await until(pilot, lambda: app.current_mode == "suites")
        page.call_later(fails)
        await until(
            pilot, lambda: any("Results failed" in one.message for one in app._notifications)
        )
        assert app.current_mode == "suites"
        assert len(reports(tmp_path)) == 1


async def test_a_readonly_console_writes_no_report(tmp_path, monkeypatch):
    app = console(tmp_path, page="results", readonly=True)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "no run under" in shown(app))
        monkeypatch.setattr(ResultsPage, "action_view", fails)
        await pilot.press("v")
        await failed_on(pilot, "Results")
        assert reports(tmp_path) == []


async def fail_twice(app, monkeypatch):
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "no run under" in shown(app))
        monkeypatch.setattr(FailedPage, "compose_body", fails)
        monkeypatch.setattr(ResultsPage, "refresh_page", fails)
        await until(pilot, lambda: app._exception is not None)


async def test_an_error_of_the_page_with_the_report_ends_the_console(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="out of bounds"):
        await fail_twice(console(tmp_path, page="results"), monkeypatch)
