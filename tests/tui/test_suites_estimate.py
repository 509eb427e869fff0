"""Estimated duration of a suite, and questions before runs beyond this machine."""

from threading import Event

import pytest
from textual.widgets import Static

from spbench.engine.plan import Request
from spbench.engine.remaining_time import format_remaining
from spbench.engine.run_estimate import CaseEstimate, EstimateSource, RunEstimate
from spbench.record.runs.folder import RunFolder
from spbench.suites.case import Case
from spbench.tui.dialogs import Confirm
from spbench.tui.feed import Feed, LiveSource
from spbench.tui.run.panes.headline import RemainingTime, _build_first
from spbench.tui.suites.case_rows import COLUMNS
from spbench.tui.suites.cases_table import CasesTable
from support.sample_events import case_judged, console_event, describe_case, record_run, run_start
from support.tui.app_driver import SIZES, read_screen, wait_until
from support.tui.suites_page import (
    SECOND_CASE_LINE,
    SIZE,
    SUITE,
    answer,
    get_editor,
    list_case_ids,
    move_to_line,
    open_first_case,
    open_suite,
    replace_line,
    wait_for_cases,
)

SWEPT = ("second[iterations=5]", "second[iterations=10]")


def read_title(app):
    return str(app.screen.query_one("#cases-frame").border_subtitle)


def read_question(app):
    """Return the question of the open dialog, or an empty string."""
    statics = app.screen.query(Static) if isinstance(app.screen, Confirm) else ()
    return str(statics[0].content) if statics else ""


@pytest.fixture
def known_estimates(case_estimates):
    """Estimate 4 s for the suite's first case and 10 s for each of the others."""
    case_estimates["first"] = CaseEstimate(4.0, EstimateSource.HISTORY)
    case_estimates.update(dict.fromkeys(SWEPT, CaseEstimate(10.0, EstimateSource.HISTORY)))
    return case_estimates


async def test_duration_is_next_to_the_number_of_cases(suite, known_estimates):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_cases(pilot)
        await wait_until(pilot, lambda: read_title(app) == "3 cases, about 24 s")
        known_estimates[SWEPT[1]] = CaseEstimate(None, EstimateSource.UNKNOWN)
        await replace_line(pilot, 1, "# Another line.")
        await wait_until(pilot, lambda: read_title(app) == "3 cases, about 14 s + 1 unknown case")


async def test_total_tells_the_start_of_jobs_which_the_rows_leave_out(suite, known_estimates):
    known_estimates["first"] = CaseEstimate(6.0, EstimateSource.HISTORY, 3.0)
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_cases(pilot)
        await wait_until(pilot, lambda: read_title(app) == "3 cases, about 26 s (3 s to start)")


@pytest.mark.usefixtures("known_estimates")
async def test_duration_is_that_of_marked_cases(suite):
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_cases(pilot)
        await wait_until(pilot, lambda: "about 24 s" in read_title(app))
        app.screen.query_one("#cases").focus()
        await pilot.press("space")
        await wait_until(pilot, lambda: read_title(app) == "3 cases, 1 marked, about 4 s")


async def test_slow_estimate_does_not_block_typing(suite, monkeypatch):
    started = Event()
    release = Event()

    def wait(plan, home):
        started.set()
        release.wait(30)
        return RunEstimate({"first": CaseEstimate(4.0, EstimateSource.WORK)})

    monkeypatch.setattr("spbench.tui.suites.parsed_suite._estimate_plan", wait)
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        try:
            await wait_for_cases(pilot)
            await wait_until(pilot, started.is_set)
            await replace_line(pilot, 1, "# Typed meanwhile.")
            await wait_until(pilot, lambda: "# Typed meanwhile." in get_editor(app).text)
            assert read_title(app) == "3 cases"
        finally:
            release.set()
        await wait_until(pilot, lambda: read_title(app) == "3 cases, about 4 s")


@pytest.mark.usefixtures("known_estimates")
async def test_form_shows_the_duration_of_its_case(suite):
    app = open_suite(suite)
    async with app.run_test(size=(140, 40)) as pilot:
        form = await open_first_case(pilot)
        summary = form.query_one("#message", Static)
        await wait_until(pilot, lambda: str(summary.content) == "1 case on 2 ranks, about 4 s")


def make_feed(folder, *events):
    """Make a feed of a running run, at the time of the last event."""
    feed = Feed(folder, LiveSource(folder))
    for event in events:
        feed.state.apply(event)
        feed.now = event["time"]
    feed.estimate = RunEstimate(
        {name: CaseEstimate(30.0, EstimateSource.HISTORY) for name in ("a", "b")}
    )
    return feed


def test_headline_shows_the_remaining_time(tmp_path):
    start = run_start(describe_case("a"), describe_case("b")) | {"time": 0.0}
    begin = console_event("case_begin", case="a") | {"time": 0.0}
    feed = make_feed(RunFolder(tmp_path), start, begin, case_judged("a") | {"time": 30.0})
    assert "about 30 s left" in [
        part.text for part in _build_first(feed, 1.0, format_remaining(feed.remaining))
    ]
    feed.ended = True
    assert not any(
        "left" in part.text for part in _build_first(feed, 1.0, format_remaining(feed.remaining))
    )
    unknown = make_feed(RunFolder(tmp_path), start)
    unknown.estimate = RunEstimate()
    assert not any(
        "left" in part.text
        for part in _build_first(unknown, 1.0, format_remaining(unknown.remaining))
    )


def test_remaining_time_grows_only_by_much():
    remaining = RemainingTime()
    assert [remaining.update(seconds) for seconds in (0.4, 0.6, 0.3, 2.0, 9.0)] == [
        *(0.4, 0.4, 0.3, 0.3, 9.0)
    ]
    assert [remaining.update(seconds) for seconds in (100.0, 119.0, 121.0, None, 5.0)] == [
        *(100.0, 100.0, 121.0, None, 5.0)
    ]


def test_exceeded_estimate_is_named_until_another_one_is_known():
    remaining = RemainingTime()
    assert remaining.describe(0.1, 10.0) == "about 0.1 s left"
    # A launch that hangs: the estimate is a share of its time.
    for now in (13.0, 35.0, 80.0):
        assert remaining.describe((now - 10.0) / 10, now) == "longer than estimated"
    assert remaining.describe(300.0, 81.0) == "about 5 min left"
    assert remaining.describe(None, 82.0) == ""


async def test_watched_run_is_estimated_from_its_folder(suite):
    home = suite.parent.parent / "home"
    request = Request(suite, home, {})
    fields = {"request": request.to_record(), "file": str(suite), "cwd": "/"}
    folder = record_run(home, [run_start()], **fields)
    folder.write_text("suite.yaml", suite.read_text())
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_cases(pilot)
        app.context.watch_run(folder)
        await wait_until(pilot, lambda: list(app.context.feed.estimate.cases) == ["first", *SWEPT])


async def test_asks_before_oversubscribing_this_machine(suite, monkeypatch):
    monkeypatch.setattr("spbench.engine.capacity.count_cores", lambda: 2)
    suite.write_text(suite.read_text().replace("np: 2", "np: 32"))
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_cases(pilot)
        await pilot.press("f5")
        await wait_until(
            pilot, lambda: "case second[iterations=5] wants 32 ranks" in read_question(app)
        )
        await answer(pilot, "n")
        assert app.started == []
        await pilot.press("f5")
        await answer(pilot, "y")
        await wait_until(pilot, lambda: app.started == [(str(suite), "--oversubscribe")])


async def test_asks_before_running_with_too_few_devices(suite, monkeypatch):
    monkeypatch.setattr("spbench.launch.devices.count_cores", lambda: 1)
    text = suite.read_text().replace("cases:", "launch: {oversubscribe: false}\ncases:")
    suite.write_text(text)
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_cases(pilot)
        await pilot.press("f5")
        expected = "case first is for 2 devices, one for each rank, and this machine has 1 core"
        await wait_until(pilot, lambda: expected in read_question(app))
        await answer(pilot, "n")
        assert app.started == []


async def test_runs_a_fitting_case_without_asking(suite, monkeypatch):
    monkeypatch.setattr("spbench.engine.capacity.count_cores", lambda: 2)
    suite.write_text(suite.read_text().replace("np: 2", "np: 32"))
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_cases(pilot)
        await pilot.press("f6")
        await wait_until(pilot, lambda: app.started == [(str(suite), "--case", "first")])
        await move_to_line(pilot, SECOND_CASE_LINE)


async def test_asks_before_exceeding_memory(suite, monkeypatch):
    monkeypatch.setattr("spbench.engine.capacity.read_available_memory", lambda: 1 << 20)
    monkeypatch.setattr(Case, "imports_torch", property(lambda _: True))
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_cases(pilot)
        await pilot.press("f5")
        await wait_until(
            pilot, lambda: "and this machine has 1 MiB available" in read_question(app)
        )
        await answer(pilot, "n")
        assert app.started == []


def read_estimates(app):
    table = app.screen.query_one(CasesTable)
    index = [column.key for column in COLUMNS].index("estimate")
    return [table.rows.cells(key)[index].text for key in list_case_ids(app)]


@pytest.mark.parametrize("size", SIZES)
async def test_estimate_is_next_to_each_case(suite, case_estimates, size):
    case_estimates["first"] = CaseEstimate(4.2, EstimateSource.HISTORY)
    case_estimates[SWEPT[0]] = CaseEstimate(12.34, EstimateSource.WORK)
    case_estimates[SWEPT[1]] = CaseEstimate(None, EstimateSource.UNKNOWN)
    app = open_suite(suite)
    async with app.run_test(size=size) as pilot:
        await wait_for_cases(pilot)
        await wait_until(pilot, lambda: read_estimates(app) == ["4.2 s", "~12 s", "unknown"])
        await wait_until(pilot, lambda: "~12 s" in read_screen(app))
        rows = app.screen.query_one(CasesTable).rows
        seconds = [rows.sort_value(key, "estimate") for key in list_case_ids(app)]
        assert seconds == [4.2, 12.34, float("inf")]


async def test_estimate_is_pending_until_it_is_computed(suite, monkeypatch):
    release = Event()

    def wait(plan, home):
        release.wait(30)
        return RunEstimate()

    monkeypatch.setattr("spbench.tui.suites.parsed_suite._estimate_plan", wait)
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        try:
            await wait_for_cases(pilot)
            assert read_estimates(app) == ["…"] * 3
        finally:
            release.set()
        await wait_until(pilot, lambda: read_estimates(app) == ["unknown"] * 3)


async def test_errors_in_the_text_keep_what_is_known(suite, monkeypatch):
    monkeypatch.setattr(
        "spbench.tui.suites.parsed_suite._estimate_plan", lambda plan, home: RunEstimate()
    )
    app = open_suite(suite)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_cases(pilot)
        await wait_until(pilot, lambda: read_estimates(app) == ["unknown"] * 3)
        await replace_line(pilot, 1, "schema: 5")
        await wait_until(pilot, lambda: "schema must be" in read_screen(app))
        assert read_estimates(app) == ["unknown"] * 3


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (160, 48)])
async def test_line_below_the_cases_says_how_many_launches_a_comparison_needs(suite, size):
    app = open_suite(suite)
    async with app.run_test(size=size) as pilot:
        await wait_for_cases(pilot)
        shown = "1 launch of each case: to compare runs of 3 cases, set repeat to 5 (Ctrl+D)"
        line = app.screen.query_one("#launches")
        await wait_until(pilot, lambda: str(line.content) == shown)
        frame = app.screen.query_one("#cases-frame")
        await wait_until(pilot, lambda: line.size.height > 0)
        assert line.size.height * line.size.width >= len(shown)
        assert frame.content_region.contains_region(line.region)
        assert frame.border_title == "Cases"
        get_editor(app).load_text(SUITE.replace("cases:\n", "defaults: {repeat: 5}\ncases:\n"))
        await wait_until(pilot, lambda: "to compare runs" not in read_screen(app))
