"""The duration of a suite on the Suites page, and the question before a run beyond this machine."""

from threading import Event

import pytest
from textual.widgets import Static

from spbench.engine.plan import Request
from spbench.engine.run_estimate import CaseEstimate, EstimateSource, RunEstimate
from spbench.record.runs.folder import RunFolder
from spbench.suites.case import Case
from spbench.tui.dialogs import Confirm
from spbench.tui.feed import Feed, LiveSource
from spbench.tui.run.headline import _build_first
from support.sample_events import case_judged, console_event, describe_case, record_run, run_start
from support.tui.driving import until
from support.tui.suites_page import (
    AT_SECOND,
    SIZE,
    answered,
    editor,
    first_in_form,
    opened,
    ready,
    to_line,
    type_over,
)

SWEPT = ("second[iterations=5]", "second[iterations=10]")


def title(app):
    return str(app.screen.query_one("#cases-frame").border_title)


def question(app):
    """The question that is asked; nothing if none is."""
    statics = app.screen.query(Static) if isinstance(app.screen, Confirm) else ()
    return str(statics[0].content) if statics else ""


@pytest.fixture
def known(duration):
    """Estimates of the suite's cases: 4 s of the first one, 10 s of each of the others."""
    duration["first"] = CaseEstimate(4.0, EstimateSource.HISTORY)
    duration.update(dict.fromkeys(SWEPT, CaseEstimate(10.0, EstimateSource.HISTORY)))
    return duration


async def test_the_duration_is_next_to_the_number_of_cases(suite, known):
    app = opened(suite)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await until(pilot, lambda: title(app) == "3 cases, about 24 s")
        known[SWEPT[1]] = CaseEstimate(None, EstimateSource.UNKNOWN)
        await type_over(pilot, 1, "# Another line.")
        await until(pilot, lambda: title(app) == "3 cases, about 14 s + 1 case")


@pytest.mark.usefixtures("known")
async def test_of_marked_cases_only_theirs_counts(suite):
    app = opened(suite)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await until(pilot, lambda: "about 24 s" in title(app))
        app.screen.query_one("#cases").focus()
        await pilot.press("space")
        await until(pilot, lambda: title(app) == "3 cases, 1 marked, about 4 s")


async def test_an_estimate_that_takes_long_does_not_keep_from_typing(suite, monkeypatch):
    begun = Event()
    go = Event()

    def wait(plan, home):
        begun.set()
        go.wait(30)
        return RunEstimate({"first": CaseEstimate(4.0, EstimateSource.WORK)})

    monkeypatch.setattr("spbench.tui.suites.parsed_suite.estimate_plan", wait)
    app = opened(suite)
    async with app.run_test(size=SIZE) as pilot:
        try:
            await ready(pilot)
            await until(pilot, begun.is_set)
            await type_over(pilot, 1, "# Typed meanwhile.")
            await until(pilot, lambda: "# Typed meanwhile." in editor(app).text)
            assert title(app) == "3 cases"
        finally:
            go.set()
        await until(pilot, lambda: title(app) == "3 cases, about 4 s")


@pytest.mark.usefixtures("known")
async def test_the_form_says_how_long_its_case_takes(suite):
    app = opened(suite)
    async with app.run_test(size=(140, 40)) as pilot:
        form = await first_in_form(pilot)
        words = form.query_one("#words", Static)
        await until(pilot, lambda: str(words.content) == "1 case on 2 ranks, about 4 s")


def watched(folder, *events):
    """A feed of a run that goes on, these events ago."""
    feed = Feed(folder, LiveSource(folder))
    for event in events:
        feed.state.apply(event)
        feed.now = event["time"]
    feed.estimate = RunEstimate(
        {name: CaseEstimate(30.0, EstimateSource.HISTORY) for name in ("a", "b")}
    )
    return feed


def test_the_headline_of_a_run_has_what_remains_of_it(tmp_path):
    start = run_start(describe_case("a"), describe_case("b")) | {"time": 0.0}
    begin = console_event("case_begin", case="a") | {"time": 0.0}
    feed = watched(RunFolder(tmp_path), start, begin, case_judged("a") | {"time": 30.0})
    assert "about 30 s left" in [part.text for part in _build_first(feed, 1.0)]
    feed.ended = True
    assert not any("left" in part.text for part in _build_first(feed, 1.0))
    unknown = watched(RunFolder(tmp_path), start)
    unknown.estimate = RunEstimate()
    assert not any("left" in part.text for part in _build_first(unknown, 1.0))


async def test_a_watched_run_is_estimated_from_its_folder(suite):
    home = suite.parent.parent / "home"
    request = Request(suite, home, {})
    fields = {"request": request.to_record(), "file": str(suite), "cwd": "/"}
    folder = record_run(home, [run_start()], **fields)
    folder.write_text("suite.yaml", suite.read_text())
    app = opened(suite)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        app.context.watch_run(folder)
        await until(pilot, lambda: list(app.context.feed.estimate.cases) == ["first", *SWEPT])


async def test_more_ranks_than_this_machine_takes_are_asked_for(suite, monkeypatch):
    monkeypatch.setattr("spbench.engine.capacity.count_cores", lambda: 2)
    suite.write_text(suite.read_text().replace("np: 2", "np: 32"))
    app = opened(suite)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("f5")
        await until(pilot, lambda: "case second[iterations=5] wants 32 ranks" in question(app))
        await answered(pilot, "n")
        assert app.started == []
        await pilot.press("f5")
        await answered(pilot, "y")
        await until(pilot, lambda: app.started == [(str(suite), "--oversubscribe")])


async def test_a_plan_for_more_devices_than_there_are_is_asked_for(suite, monkeypatch):
    monkeypatch.setattr("spbench.launch.devices.count_cores", lambda: 1)
    text = suite.read_text().replace("cases:", "launch: {oversubscribe: false}\ncases:")
    suite.write_text(text)
    app = opened(suite)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("f5")
        wanted = "case first is for 2 devices, one for each rank, and this machine has 1 core"
        await until(pilot, lambda: wanted in question(app))
        await answered(pilot, "n")
        assert app.started == []


async def test_a_case_that_fits_is_run_without_a_question(suite, monkeypatch):
    monkeypatch.setattr("spbench.engine.capacity.count_cores", lambda: 2)
    suite.write_text(suite.read_text().replace("np: 2", "np: 32"))
    app = opened(suite)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("f6")
        await until(pilot, lambda: app.started == [(str(suite), "--case", "first")])
        await to_line(pilot, AT_SECOND)


async def test_more_memory_than_there_is_is_asked_for(suite, monkeypatch):
    monkeypatch.setattr("spbench.engine.capacity.read_available_memory", lambda: 1 << 20)
    monkeypatch.setattr(Case, "imports_torch", property(lambda _: True))
    app = opened(suite)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("f5")
        await until(pilot, lambda: "and this machine has 1 MiB available" in question(app))
        await answered(pilot, "n")
        assert app.started == []
