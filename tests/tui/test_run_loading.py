"""Work of the Run page in threads, and the figures of cases that run again."""

import threading
from pathlib import Path
from types import SimpleNamespace

from spbench.record.runs.folder import RunFolder
from spbench.report.previous_times import PreviousRun, PreviousTime
from spbench.tui.feed import Feed
from spbench.tui.panes import READING
from spbench.tui.run import loading
from spbench.tui.run.body import RunBody
from spbench.tui.run.case_computation import CaseComputation
from spbench.tui.run.panels import Panel
from spbench.tui.run.panes.overview import NO_PREVIOUS, HostMap
from spbench.tui.run.selection import RunSelection
from spbench.tui.widgets.histogram import HistogramChart
from support import sample_events as make
from support.tui.app_driver import make_console, read_screen, wait_until

SIZE = (200, 60)


async def watch_events(app, folder, events):
    """Watch a run that has sent these events, and return its feed."""
    folder.path.mkdir(parents=True)
    app.context.watch_run(folder, RecordedSource(events))
    return app.context.feed


class RecordedSource:
    """A run that has ended."""

    skipped = None

    def __init__(self, events):
        self._events = events

    async def batches(self):
        yield self._events


async def test_previous_times_are_not_shown_for_another_run(tmp_path, monkeypatch):
    is_reading = threading.Event()
    may_end = threading.Event()

    def list_slowly(run, identities):
        is_reading.set()
        assert may_end.wait(20)
        return {"a": PreviousTime(1.0, disturbed=False)}

    run = SimpleNamespace(summary=SimpleNamespace(started=0.0, suite="made-up"))
    monkeypatch.setattr(loading, "load_previous_run", lambda *_, **__: PreviousRun(run))
    monkeypatch.setattr(loading, "list_previous_times", list_slowly)
    app = make_console(tmp_path, page="run")
    async with app.run_test(size=SIZE) as pilot:
        first = RunFolder(tmp_path / "home" / "runs" / "first")
        await watch_events(app, first, make.make_complete_run())
        await wait_until(pilot, is_reading.is_set)
        other = RunFolder(tmp_path / "home" / "runs" / "other")
        feed = await watch_events(app, other, [])
        await wait_until(pilot, lambda: app.screen.shown_feed is feed)
        may_end.set()
        await wait_until(
            pilot, lambda: all(worker.group != "previous" for worker in app.screen.workers)
        )
        assert app.screen.presenter.selection.previous is None


async def test_times_for_the_run_before_are_hidden(tmp_path, monkeypatch):
    run = SimpleNamespace(summary=SimpleNamespace(started=0.0, suite="made-up"))
    monkeypatch.setattr(loading, "load_previous_run", lambda *_, **__: PreviousRun(run))
    times = {"a": PreviousTime(1.0, disturbed=False)}
    monkeypatch.setattr(loading, "list_previous_times", lambda *_: times)
    app = make_console(tmp_path, page="run")
    async with app.run_test(size=(120, 40)) as pilot:
        first = RunFolder(tmp_path / "home" / "runs" / "first")
        await watch_events(app, first, make.make_complete_run())
        await wait_until(pilot, lambda: app.screen.shown_feed is not None)
        app.screen.query_one(RunBody).show_panel(Panel.PREVIOUS)
        await wait_until(pilot, lambda: "Previous run: made-up" in read_screen(app))
        feed = await watch_events(app, RunFolder(first.path.with_name("other")), [])
        await wait_until(pilot, lambda: app.screen.shown_feed is feed)
        # The findings of the run without an end replace the panel.
        await wait_until(pilot, lambda: "its console was killed" in read_screen(app))
        app.screen.query_one(RunBody).show_panel(Panel.PREVIOUS)
        await wait_until(pilot, lambda: NO_PREVIOUS in read_screen(app))
        assert "Previous run: made-up" not in read_screen(app)


async def test_panes_show_no_falsehood_before_the_previous_run_is_known(tmp_path, monkeypatch):
    may_end = threading.Event()

    def load_slowly(*_, **__):
        assert may_end.wait(20)

    monkeypatch.setattr(loading, "load_previous_run", load_slowly)
    app = make_console(tmp_path, page="run")
    async with app.run_test(size=(120, 40)) as pilot:
        folder = RunFolder(tmp_path / "home" / "runs" / "first")
        await watch_events(app, folder, make.make_complete_run())
        await wait_until(pilot, lambda: app.screen.shown_feed is not None)
        app.screen.query_one(RunBody).show_panel(Panel.PREVIOUS)
        await wait_until(pilot, lambda: READING in read_screen(app))
        assert NO_PREVIOUS not in read_screen(app)
        may_end.set()
        await wait_until(pilot, lambda: NO_PREVIOUS in read_screen(app))


async def test_hidden_panes_claim_nothing_before_a_larger_screen_shows_them(tmp_path):
    app = make_console(tmp_path, page="run")
    async with app.run_test(size=(80, 24)) as pilot:
        folder = RunFolder(tmp_path / "home" / "runs" / "first")
        feed = await watch_events(app, folder, make.make_complete_run())
        await wait_until(pilot, lambda: app.screen.shown_feed is feed and feed.ended)
        presenter = app.screen.presenter
        presenter.update_all()
        hidden = [chart for chart in app.screen.query(HistogramChart) if not chart.is_on_screen]
        assert {chart.empty_text for chart in hidden} == {READING}
        assert app.screen.query_one("#host-map", HostMap).empty_text == READING
        await pilot.resize_terminal(160, 48)
        await wait_until(pilot, lambda: READING not in read_screen(app))
        assert any(chart.count_stops() for chart in hidden)


async def test_report_is_looked_for_in_a_thread(tmp_path, monkeypatch):
    threads = set()
    exists = Path.exists

    def note_thread(path):
        if path.name == "report.json" and "noted" in path.parts:
            threads.add(threading.current_thread())
        return exists(path)

    monkeypatch.setattr(Path, "exists", note_thread)
    app = make_console(tmp_path, page="run")
    async with app.run_test(size=SIZE) as pilot:
        folder = RunFolder(tmp_path / "home" / "runs" / "noted")
        await watch_events(app, folder, make.make_complete_run())
        folder.report.touch()
        await wait_until(pilot, lambda: "• report: " in read_screen(app))
    assert threads
    assert threading.main_thread() not in threads


def make_failed_attempt(*times):
    samples = [make.rank_event("samples", rank, values=[*times]) for rank in (0, 1)]
    ends = [make.rank_event("case_end", rank) for rank in (0, 1)]
    return [*samples, *ends, make.case_judged("a", "failed", "a check failed"), make.job_end()]


async def test_case_that_fails_again_has_the_figures_of_its_last_attempt(tmp_path):
    feed = Feed(RunFolder(tmp_path), RecordedSource([]))
    selection = RunSelection(feed)
    medians = CaseComputation(lambda case: case.summary("time_ms").p50, is_live=False)
    [case_start, job_start, *ranks_start] = make.make_started_run()
    times = []
    for number, time_ms in enumerate((1.0, 5.0)):
        restart = [make.retry("a"), job_start, *ranks_start]
        for event in restart if number else [case_start, job_start, *ranks_start]:
            feed._apply(event)
        if number:
            selection.cases.update()
            assert selection.cases.get("a").time is None
        for event in make_failed_attempt(time_ms, time_ms):
            feed._apply(event)
        case = feed.state.cases["a"]
        assert medians.find_pending([case]) is case
        await medians.compute(case)
        selection.cases.update()
        assert selection.cases.has_pending_times
        await selection.cases.compute_times()
        times.append((medians.get(case), selection.cases.get("a").time))
    assert times == [(1.0, 1.0), (5.0, 5.0)]
