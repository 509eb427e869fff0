"""The Run page over synthetic runs: while they run, after their end, and replayed."""

import asyncio
import json
import os
import re
import socket
import time
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from textual.widget import Widget
from textual.widgets import Button, Static

from spbench.engine import background
from spbench.errors import UsageError
from spbench.record.findings import collect_findings
from spbench.record.messages.stragglers import describe_lags, find_lags
from spbench.record.planted_faults import FAULT_FOUND
from spbench.record.runs.folder import RunFolder
from spbench.tui.advice import name_keys
from spbench.tui.dialogs import Confirm
from spbench.tui.feed import BATCH_BYTES, REPLAY_SPEEDS, Feed, LiveSource, ReplaySource
from spbench.tui.panes import Pane
from spbench.tui.run.body import RunBody
from spbench.tui.run.case_rows import RunCaseRows
from spbench.tui.run.details import DetailsScreen
from spbench.tui.run.findings import RunFindings
from spbench.tui.run.panels import CHART_PANELS, Panel, list_panes
from spbench.tui.run.panes.findings_panel import FindingsPanel
from spbench.tui.run.panes.headline import Headline
from spbench.tui.run.panes.log_view import LogView
from spbench.tui.run.panes.overview import HostMap
from spbench.tui.run.presenter import RunPresenter
from spbench.tui.run.wide_layout import MAX_FINDINGS_LINES
from spbench.tui.widgets.histogram import HistogramChart
from spbench.tui.widgets.keys import KeyBar
from spbench.tui.widgets.line_table import LineTable
from spbench.tui.widgets.rank_strip import RankStrip
from spbench.tui.widgets.stacked_bars import StackedBars
from spbench.tui.widgets.timeline import TimelineChart
from support import sample_events as make
from support.tui.app_driver import SIZES, make_console, post_keys, read_screen, wait_until

NARROW = (80, 24)
MEDIUM_SIZE = (120, 40)
WIDE = (200, 60)
WARPS = make.describe_metric("warps", "1/s", "higher", "min")
SLOWEST = "Histogram of warp: slowest rank"
SMALLEST = "Histogram of warp: warps, smallest of all ranks"
SMALLEST_BY_ITERATION = "Iterations of warp: warps, smallest of all ranks"
"""Titles of the charts of all ranks."""
HOSTS = ("node01", "node01", "node02", "node03")


class ScriptedSource(LiveSource):
    """A running run with events that come when a test sends them."""

    def __init__(self, folder, events):
        super().__init__(folder)
        self._batches = asyncio.Queue()
        self.send(*events)

    def send(self, *events):
        self._batches.put_nowait(list(events))

    def end(self):
        self._batches.put_nowait(None)

    async def batches(self):
        while (events := await self._batches.get()) is not None:
            yield events


def describe_synthetic_case(case="warp", **changes):
    """Describe a case of a benchmark that is not in the catalog."""
    np = changes.pop("np", len(HOSTS))
    return make.describe_case(
        case,
        np,
        benchmark="warp.drive",
        metrics=[make.TIME, WARPS],
        checks=["sum"],
        **{"places": [{"shard": rank} for rank in range(np)], **changes},
    )


def make_samples(times, case="warp", **fields):
    """Make a batch of times of each rank, in ms."""
    return [
        make.rank_event("samples", rank, case=case, values=values, **fields)
        for rank, values in enumerate(times)
    ]


def make_running_events():
    """Make events of four ranks, the last one slow, in the first of two cases."""
    times = [[2.0, 2.1], [2.0, 2.2], [2.1, 2.0], [6.0, 6.2]]
    progress = [
        make.rank_event("progress", rank, case="warp", phase="timing", done=2, total=8)
        for rank in range(4)
    ]
    limit = {"metric": "time_ms.p50", "op": "max", "limit": 5.0}
    cases = describe_synthetic_case(expect=[limit]), describe_synthetic_case("next")
    return [*make.make_started_run(*cases, hosts=HOSTS), *progress, *make_samples(times)]


def make_checks(case="warp", failed=(2,)):
    """Make the check of each rank, failed on the given ones."""
    return [
        make.rank_event(
            "check",
            rank,
            case=case,
            name="sum",
            passed=rank not in failed,
            max_abs_error=0.25 if rank in failed else 0.0,
            tolerance=1e-3,
            detail="row 7" if rank in failed else "",
        )
        for rank in range(4)
    ]


def make_rates(case="warp"):
    return [
        make.rank_event("samples", rank, case=case, metric="warps", values=[9.0 + rank] * 2)
        for rank in range(4)
    ]


def make_case_end(case="warp", status="failed", reason="check sum failed", **fields):
    ends = [make.rank_event("case_end", rank, case=case) for rank in range(4)]
    return [*ends, make.case_judged(case, status, reason, **fields)]


class WatchedRun:
    """The console that watches a run, with its page and the contents of the page."""

    def __init__(self, app, pilot, source):
        self.app = app
        self.pilot = pilot
        self.source = source

    @property
    def page(self):
        return self.app.screen

    def table(self, name):
        return self.page.query_one(f"#{name}", LineTable)

    @property
    def ranks(self):
        return list(self.table("ranks")._order.keys)

    def row(self, rank):
        """Return the shown cells of a rank."""
        cells = self.table("ranks")._order.rows.cells(rank)
        return [cell if isinstance(cell, str) else cell.text for cell in cells]

    @property
    def histogram(self):
        """The histogram that is shown: on a wide screen the one below the findings."""
        charts = [*self.page.query(HistogramChart)]
        return next((chart for chart in charts if chart.parent.display), charts[-1])

    def title(self, pane):
        return self.page.query_one(f"#{pane}-pane", Pane).title

    @property
    def histogram_title(self):
        return self.title(self.histogram.id)

    def remark(self, pane):
        return self.page.query_one(f"#{pane}-pane")._border_subtitle.plain

    async def press(self, *keys):
        for key in keys:
            self.app.simulate_key(key)
            await self.pilot.pause()

    async def answer(self, key, answer):
        """Press a key that opens a question, and answer it."""
        await self.press(key)
        await self.wait_until(lambda: isinstance(self.app.screen, Confirm))
        await self.press(answer)
        await self.wait_until(lambda: not isinstance(self.app.screen, Confirm))

    async def wait_until(self, condition):
        await wait_until(self.pilot, condition)

    async def wait_for_texts(self, *texts):
        await self.wait_until(lambda: all(text in read_screen(self.app) for text in texts))

    async def copy_text(self):
        """Return the text that the screen copies."""
        self.app.copy_to_clipboard("")
        await self.press("y")
        await self.wait_until(lambda: self.app.clipboard)
        return self.app.clipboard

    async def focus(self, name):
        self.page.query_one(f"#{name}").focus()
        await self.pilot.pause()


def make_startable(folder, cwd):
    """Give a run a suite, so that it can be started again."""
    (cwd / "a.yaml").touch()
    folder.path.mkdir(parents=True)
    folder.write_json("run.json", {"file": "a.yaml", "cwd": str(cwd)})


@pytest.fixture
def open_run(tmp_path):
    """Open the console at a size, on a run with these events."""

    @asynccontextmanager
    async def open_tui(size, events, source=None, focus="ranks", **options):
        app = make_console(tmp_path, page="run", **options)
        async with app.run_test(size=size, notifications=True) as pilot:
            folder = RunFolder(tmp_path / "home" / "runs" / "made-up-run")
            make_startable(folder, tmp_path)
            source = source or ScriptedSource(folder, events)
            app.context.watch_run(folder, source)
            await wait_until(
                pilot, lambda: [line for line in app.screen.query(Headline) if line.display]
            )
            run = WatchedRun(app, pilot, source)
            await run.focus(focus)
            yield run

    return open_tui


@pytest.mark.parametrize("size", SIZES)
async def test_page_without_a_run_explains_how_to_start_one(tmp_path, size):
    app = make_console(tmp_path, page="run")
    async with app.run_test(size=size) as pilot:
        await wait_until(pilot, lambda: "No run is watched" in read_screen(app))
        assert "compose a suite" in read_screen(app)
        for key in ("space", "slash", "x", "r", "n", "y", "l", "v", "p", "plus", "escape", "z"):
            await pilot.press(key)
        assert app.screen.NAME == "run"


@pytest.mark.parametrize("size", SIZES)
async def test_shows_a_passed_run(open_run, size):
    async with open_run(size, make.make_complete_run()) as run:
        await run.wait_for_texts("made-up", "✓ passed", "1/1 passed", "tile", "0,1", "2/2", "3.96")
        assert "openmpi, Open MPI 5.0" in read_screen(run.app)
        await run.wait_for_texts("All alike.")


@pytest.mark.parametrize("size", [NARROW, WIDE])
async def test_shows_an_unknown_benchmark_while_it_runs(open_run, size):
    more_times = make_samples([[2.0] * 6] * 3 + [[6.1] * 6])
    events = [*make_running_events(), *more_times, *make_checks(failed=())]
    async with open_run(size, events) as run:
        await run.wait_for_texts(
            "… running", "· waiting", "25 %", "node03", "slow", "4/4", "✓ passed"
        )
        assert run.title("ranks") == "Ranks of warp"
        assert run.table("cases").cursor_key == "warp"
        strip = run.page.query_one(RankStrip)
        await run.wait_until(lambda: strip._ratios and strip._ratios[3] > 2.8)
        if size != NARROW:
            await run.wait_for_texts("shard", SLOWEST)
            assert run.row(3)[2] == "3"
            await run.press("w")
        run.source.send(*make_rates())
        await run.press("m" if size != NARROW else "v")
        await run.wait_until(
            lambda: size == NARROW or run.title("timeline") == SMALLEST_BY_ITERATION
        )


async def test_slow_rank_is_reported_with_its_ratio(open_run):
    async with open_run(WIDE, make.make_started_run(describe_synthetic_case(), hosts=HOSTS)) as run:
        for second in range(8):
            batch = make_samples([[2.0], [2.0], [2.0], [4.0]], time=1000.0 + second)
            run.source.send(*batch)
            await run.wait_until(lambda: run.source._batches.empty())
            await run.pilot.pause(0.02)
        await run.wait_for_texts("▲ slow rank 3 on node03 takes 2.00x the time of")
        await run.focus("findings")
        await run.press("y")
        assert (
            "rank 3 on node03 takes 2.00x the time of the median rank in warp" in run.app.clipboard
        )


STRAGGLER = {"rank": 3, "host": "node03", "ratio": 3.0, "seconds": 6.0, "since": 1e9, "cause": True}


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (160, 48), (200, 60)])
async def test_row_of_the_running_case_names_its_phase(open_run, size):
    async with open_run(size, make_running_events()) as run:
        await run.wait_for_texts("… timing 25 %", "reference")


def make_noisy_end(case="warp"):
    """End a case with half of the time stolen by the hypervisor and a slow rank 3."""
    ends = [
        make.rank_event("case_end", rank, case=case, disturbed={"stolen": 0.5}) for rank in range(4)
    ]
    return [*ends, make.case_judged(case, "passed", stragglers=[STRAGGLER])]


async def test_sign_of_noisy_cases_is_explained_below_them(open_run):
    async with open_run(MEDIUM_SIZE, [*make_running_events(), *make_noisy_end()]) as run:
        await run.wait_for_texts("≈ noisy: other work used the cores")


def read_findings(app):
    """Return the findings as they are copied, since the terminal wraps them."""
    return "\n".join(word.line for word in app.screen.presenter.findings)


async def test_findings_appear_once_during_and_after_a_run(open_run):
    events = [*make_running_events(), *make_noisy_end()]
    cases = make.build_state(events).cases
    lags = find_lags(cases["warp"], cases["warp"].execution.stragglers)
    [lag_message] = map(name_keys, describe_lags(lags))
    async with open_run(WIDE, events) as run:
        await run.wait_for_texts(
            "▲ slow rank 3 on node03 takes 3.00x the time", "≈ noisy the hypervisor of"
        )
        while_running = read_findings(run.app)
        assert while_running.count(lag_message) == while_running.count("rank 3") == 1
        assert while_running.count("hypervisor") == while_running.count("≈ noisy") == 1
        run.source.send(*(make.rank_event("case_start", rank, case="next") for rank in range(4)))
        run.source.send(*make_noisy_end("next"))
        await run.wait_until(lambda: "in both cases" in read_findings(run.app))
        assert (
            read_findings(run.app).count("hypervisor")
            == read_findings(run.app).count("rank 3")
            == 1
        )
        findings = collect_findings(run.app.context.feed.state)
        run.source.send(make.run_end("passed", 0, findings=[*findings, "case x is flaky"]))
        run.source.end()
        await run.wait_until(lambda: run.app.context.feed.ended)
        await run.wait_until(lambda: "• case x is flaky" in read_findings(run.app))
        final_text = read_findings(run.app)
        assert all(final_text.count(name_keys(finding)) == 1 for finding in findings)
        assert final_text.count("hypervisor") == final_text.count("rank 3") == 1
        assert "▲ slow rank 3 on node03 takes up to 3.00x the time" in final_text


@pytest.mark.parametrize("size", [NARROW, WIDE])
async def test_oversubscription_is_reported_once(open_run, size):
    events = [
        event | {"oversubscribed": True} if event["event"] == "job_start" else event
        for event in make_running_events()
        if event["event"] != "ready"
    ]
    async with open_run(size, events) as run:
        await run.wait_for_texts("timing 25 %", "≈ noisy 4 ranks share fewer cores")
        assert read_screen(run.app).count("share") == 1


async def test_cases_with_the_same_failure_share_one_finding(open_run):
    failed_cases = make_case_end(reason="no tile"), make_case_end("next", reason="no tile")
    async with open_run(WIDE, [*make_running_events(), *failed_cases[0], *failed_cases[1]]) as run:
        await run.wait_until(lambda: "✗ failed warp and next: no tile" in read_findings(run.app))
        assert read_findings(run.app).count("no tile") == 1


async def test_findings_of_an_older_version_appear_once(open_run):
    old = "Slow: rank 3 on node03, 3.0x the median of ranks with the same work in warp."
    events = [*make_running_events(), *make_case_end(stragglers=[STRAGGLER])]
    async with open_run(WIDE, [*events, make.run_end("failed", 1, findings=[old])]) as run:
        run.source.end()
        await run.wait_until(lambda: run.app.context.feed.ended)
        await run.wait_until(lambda: f"• {old}" in read_findings(run.app))
        assert read_findings(run.app).count("rank 3") == 1


async def test_planted_faults_are_reported(open_run):
    cases = (
        describe_synthetic_case(inject="slow=2"),
        describe_synthetic_case("next", inject="bad-sum"),
    )
    async with open_run(WIDE, make.make_started_run(*cases, hosts=HOSTS)) as run:
        note = "• planted faults: slow=2 in warp; bad-sum in next"
        await run.wait_until(lambda: note in read_findings(run.app))


@pytest.mark.parametrize("size", SIZES)
async def test_found_fault_is_a_status_that_is_not_cut(open_run, size):
    reason = "fault found, as planted: rank 1 on node01 is slow"
    events = [*make_running_events(), *make_case_end(reason=reason)]
    async with open_run(size, events) as run:
        await run.wait_for_texts("! fault found")


async def test_planted_slow_rank_is_listed_once_below_failures(open_run):
    planted = describe_synthetic_case(inject="slow=2")
    cases = planted, describe_synthetic_case("next")
    reason = "fault found, as planted: rank 3 on node03 is slow"
    planted_end = make_case_end(reason=reason, stragglers=[STRAGGLER])
    started = make.make_started_run(*cases, hosts=HOSTS)
    async with open_run(WIDE, [*started, *planted_end, *make_case_end("next")]) as run:
        await run.wait_for_texts("fault found, as planted: slow=2")
        findings = read_findings(run.app)
        assert findings.count("fault found") == 1
        assert findings.index("✗ failed next") < findings.index("▲ slow rank 3")


def make_ended_run():
    """Make an ended run with a passed and a failed case."""
    passed = make_case_end(status="passed", reason=None, stragglers=[STRAGGLER])
    return [*make_running_events(), *passed, *make_case_end("next"), make.run_end("failed", 1)]


async def test_end_of_a_run_shows_first_failed_case_and_findings(open_run):
    async with open_run((120, 40), make_running_events()) as run:
        await run.wait_until(lambda: run.page.query_one(RunBody).panel is Panel.CHARTS)
        run.source.send(*make_ended_run()[len(make_running_events()) :])
        await run.wait_until(lambda: run.page.query_one(RunBody).shows_findings)
        await run.wait_until(lambda: run.table("cases").cursor_key == "next")
        assert run.title("ranks").startswith("Ranks of next")
        # Only once: a later choice of the user stays.
        await run.press("v")
        await run.wait_until(lambda: not run.page.query_one(RunBody).shows_findings)


async def test_findings_stay_in_view_through_resizes_and_next_to_logs(open_run):
    async with open_run((120, 40), make_ended_run()) as run:
        body = run.page.query_one(RunBody)
        await run.wait_until(lambda: body.panel is Panel.FINDINGS_AND_TIMELINE)
        for size in ((200, 60), (80, 24), (120, 40)):
            await run.pilot.resize_terminal(*size)
            await run.wait_until(lambda: body.shows_findings)
        assert body.panel is Panel.FINDINGS_AND_TIMELINE
        await run.press("l")
        await run.wait_until(lambda: run.page.query_one("#logs-pane").display)
        assert body.shows_findings
        await run.press("l")
        await run.wait_until(lambda: body.panel is Panel.FINDINGS_AND_TIMELINE)


@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
async def test_later_run_begins_with_the_first_panel(open_run, tmp_path, size):
    async with open_run(size, make_running_events()) as run:
        body = run.page.query_one(RunBody)
        await run.press("l")
        await run.wait_until(lambda: body.panel is Panel.LOGS)
        folder = RunFolder(tmp_path / "home" / "runs" / "later")
        source = ScriptedSource(folder, make_running_events())
        run.app.context.watch_run(folder, source)
        await run.wait_until(lambda: run.page.shown_feed is run.app.context.feed)
        await run.wait_until(lambda: body.panel is not Panel.LOGS)
        source.send(*make_ended_run()[len(make_running_events()) :])
        await run.wait_until(lambda: body.shows_findings)


async def test_end_of_a_passed_run_shows_the_case_with_most_samples(open_run):
    events = make_ended_run()[: len(make_running_events())]
    events += [*make_checks(failed=()), *make_case_end(status="passed", reason=None)]
    events += [*make_case_end("next", status="passed", reason=None), make.run_end("passed", 0)]
    async with open_run(WIDE, events) as run:
        await run.wait_until(lambda: run.table("cases").cursor_key == "warp")
        assert run.title("ranks").startswith("Ranks of warp")


async def test_cursor_is_on_the_slow_rank_until_the_user_moves_it(open_run):
    samples = make_samples([[2.0] * 9, [2.0] * 9, [2.0] * 9, [90.0] * 9])
    async with open_run(WIDE, [*make_running_events(), *samples]) as run:
        await run.wait_until(lambda: run.table("ranks").cursor_key == 3)
        assert run.page.presenter.selection.rank is None
        await run.press("home")
        await run.wait_until(lambda: run.page.presenter.selection.rank == 0)
        run.source.send(*make_case_end(stragglers=[STRAGGLER]))
        await run.wait_for_texts("✗ failed")
        assert run.table("ranks").cursor_key == 0


def test_chart_panels_without_samples_are_one_pane():
    for panel in CHART_PANELS:
        assert len(list_panes(panel, has_problem=True, has_charts=False)) == 1
        assert list_panes(panel, has_problem=True, has_charts=True) == panel.value


async def test_end_without_samples_shows_the_logs(open_run):
    error = {"message": "ValueError: no warp", "traceback": "Traceback\n  in warp.py"}
    events = [
        *make_running_events()[:-4],
        make.rank_event("case_end", 1, case="warp", status="error", error=error),
        make.case_judged("warp", "error", "rank 1: no warp"),
        make.run_end("error", 4),
    ]
    async with open_run((160, 50), events) as run:
        await run.wait_for_texts("Logs of all ranks", "in warp.py")


async def test_wide_short_screen_has_charts_next_to_findings(open_run):
    async with open_run((160, 30), make_ended_run()) as run:
        await run.wait_for_texts("✗ failed next: check sum failed")
        await run.wait_until(lambda: run.page.query_one(RunBody).panel is Panel.CHARTS)


async def test_end_of_a_run_keeps_the_users_selection(open_run):
    async with open_run((120, 40), make_running_events()) as run:
        await run.press("v", "v")
        await run.focus("cases")
        await run.press("down", "up")
        selected_case = run.table("cases").cursor_key
        panel = run.page.query_one(RunBody).panel
        run.source.send(*make_ended_run()[len(make_running_events()) :])
        await run.wait_for_texts("✗ failed")
        assert run.page.query_one(RunBody).panel == panel
        assert run.table("cases").cursor_key == selected_case


async def test_pause_freezes_ranks_but_not_counters(open_run):
    async with open_run(WIDE, make_running_events()) as run:
        await run.wait_for_texts("6.10", "0/2 cases")
        await run.press("space")
        await run.wait_for_texts("HELD")
        counts = run.histogram._counts
        heartbeat = make.rank_event("heartbeat", 0, time=1011.0)
        run.source.send(
            *make_samples([[50.0] * 9] * 4), *make_checks(), *make_case_end(), heartbeat
        )
        await run.wait_for_texts("1/2 cases", "✗ failed", "11 s")
        assert run.row(3)[7] == "6.10 ms"
        assert run.histogram._counts == counts
        await run.press("down")
        await run.wait_until(lambda: run.histogram_title == "Histogram of warp: time of rank 1")
        await run.press("escape", "space")
        await run.wait_until(lambda: run.row(3)[7] == "50.0 ms")
        await run.wait_until(lambda: sum(run.histogram._counts) == 11)
        await run.wait_until(lambda: "HELD" not in read_screen(run.app))


async def test_pause_freezes_the_host_map(open_run):
    async with open_run(WIDE, make_running_events()) as run:
        await run.wait_for_texts("6.10", "0/2 cases")
        host_map = run.page.query_one("#host-map", HostMap)
        await run.wait_until(lambda: host_map.has_content)
        await run.press("space")
        await run.wait_for_texts("HELD")
        content = host_map._content
        run.source.send(*make_samples([[2.0] * 9] * 3 + [[9.0] * 9]), *make_case_end())
        await run.wait_for_texts("1/2 cases")
        run.page.presenter.update_all()
        await run.pilot.pause()
        assert host_map._content is content
        await run.press("space")
        await run.wait_until(lambda: host_map._content is not content)


async def test_loads_of_an_ended_run_are_those_at_its_end(open_run):
    async with open_run((160, 30), make_running_events()) as run:
        await run.wait_for_texts("0/2 cases")
        assert run.title("host-loads") == "Load of the hosts, now"
        run.source.send(*make_ended_run()[len(make_running_events()) :])
        run.source.end()
        await run.wait_until(lambda: run.title("host-loads") == "Load of the hosts, at the end")


@pytest.mark.parametrize(("size", "count"), [((120, 40), 17), (NARROW, 9)])
async def test_cases_take_the_free_lines(open_run, size, count):
    cases = [make.describe_case(f"case{index:02}", 2) for index in range(20)]
    async with open_run(size, make.make_started_run(*cases, hosts=HOSTS[:2])) as run:
        await run.wait_until(
            lambda: sum("case" in line for line in read_screen(run.app).splitlines()) > count
        )


async def test_note_names_the_reference_of_the_selected_case(open_run):
    origin = "a memory copy of 65536 B by rank 0 alone"
    reference = make.rank_event(
        "metric", 0, case="warp", name="time_ms", value=1.25, measured_by=origin
    )
    async with open_run(MEDIUM_SIZE, [*make_running_events(), reference]) as run:
        await run.wait_for_texts(f"reference of warp: {origin}")


@pytest.mark.parametrize("size", [MEDIUM_SIZE, (160, 48)])
async def test_long_note_on_a_reference_ends_in_a_mark(open_run, size):
    origin = "copies of " + "each piece of the largest of all fields, " * 8
    reference = make.rank_event(
        "metric", 0, case="warp", name="time_ms", value=1.25, measured_by=origin
    )
    async with open_run(size, [*make_running_events(), reference]) as run:
        await run.wait_for_texts("reference of warp: copies of each piece of", "…")
        note = run.page.query_one("#case-note", Static)
        await run.wait_until(lambda: str(note.content).endswith("…") and note.size.height == 2)


@pytest.mark.parametrize("size", SIZES)
async def test_few_samples_call_no_rank_slow(open_run, size):
    async with open_run(size, make_running_events()) as run:
        await run.wait_for_texts("4 ranks, too few samples to compare ranks (2)", "…2.98x")
        assert "slow " not in read_screen(run.app)


@pytest.mark.parametrize("size", SIZES)
async def test_ranks_and_strip_call_the_same_rank_slow(open_run, size):
    """Nine iterations of 3 us are shorter than a time slice of the scheduler."""
    async with open_run(size, make_running_events()[:-4]) as run:
        run.source.send(*make_samples([[0.001] * 9] * 3 + [[0.003] * 9]))
        await run.wait_for_texts("too briefly to", "3.00x")
        assert run.row(3)[-2].strip() == "3.00x"
        run.source.send(*make_samples([[1.0] * 20] * 3 + [[3.0] * 20]))
        await run.wait_for_texts("rank 3 on node03 takes 3.00x", "3.00x slow")


async def test_strip_and_table_agree_after_each_update(open_run):
    async with open_run(WIDE, make_running_events()[:-4]) as run:
        presenter = run.page.presenter
        version = presenter.selection.feed.version
        presenter.tick = lambda: None
        run.source.send(*make_samples([[1.0] * 20] * 3 + [[3.0] * 20]))
        await run.wait_until(lambda: presenter.selection.feed.version > version)
        presenter._update_parts(0)
        assert run.row(3)[-2] == "3.00x slow"
        assert "3.00x" in presenter.strip._note


def list_titles(table):
    """Return the titles of the columns that a table shows."""
    return {placed.column.title for placed in table._layout.placed}


@pytest.mark.parametrize("size", [(160, 48), (200, 60)])
async def test_wide_screen_shows_all_important_columns(open_run, size):
    events = [*make_running_events(), *make_checks(failed=())]
    async with open_run(size, events) as run:
        await run.wait_for_texts("6.10", "4/4")
        for table, titles in (
            ("cases", {"status", "case", "time", "reference", "efficiency", "checks"}),
            ("ranks", {"rank", "host", "phase", "median", "skew", "check"}),
        ):
            await run.wait_until(
                lambda table=table, titles=titles: titles <= list_titles(run.table(table))
            )


async def test_wide_screen_has_charts_instead_of_empty_panes(open_run):
    async with open_run((200, 60), make_running_events()) as run:
        await run.wait_for_texts("6.10", "Histogram of warp: slowest rank")
        await run.wait_until(lambda: run.histogram.id == "left-histogram")
        findings = run.page.query_one("#findings-pane")
        await run.wait_until(lambda: findings.size.height <= MAX_FINDINGS_LINES)


@pytest.mark.parametrize("num_cases", [2, 9])
async def test_findings_get_their_lines_before_the_histogram(open_run, num_cases):
    more = [describe_synthetic_case(f"case{index}") for index in range(num_cases - 1)]
    events = make.make_started_run(describe_synthetic_case(), *more, hosts=HOSTS)
    async with open_run((160, 48), [*events, *make_samples([[2.0, 2.1]] * 4)]) as run:
        await run.wait_until(lambda: run.table("cases").row_count == num_cases)
        await run.wait_until(lambda: run.page.query_one("#findings").size.height >= 12)


async def test_ended_run_has_the_ranks_of_its_cases_on_a_wide_screen(open_run):
    names = [f"exchange[grid={grid}x1]" for grid in (1, 2)]
    run_of_two = make.run_start(*map(describe_synthetic_case, names))
    judged = [make.case_judged(name) for name in names]
    async with open_run((160, 48), [run_of_two, *judged, make.run_end()]) as run:
        await run.wait_until(lambda: {"ranks", "reference"} <= list_titles(run.table("cases")))


PARTS = make.describe_metric("wait_ms", "ms", "lower", "max", part_of="time_ms")


def make_steps_of_a_run():
    """Make the events of a run in steps: launch, set-up, samples, next case, end."""
    cases = [make.describe_case(name, 4, metrics=[make.TIME, PARTS]) for name in ("a", "b")]
    cases += [make.describe_case("small", 2)]
    launch, *set_up = make.make_started_run(*cases, hosts=HOSTS)
    next_case = [make.rank_event("case_start", rank, case="b") for rank in range(4)]
    waits = [
        make.rank_event("samples", rank, case="a", metric="wait_ms", values=[1.0] * 3)
        for rank in range(4)
    ]
    end = [make.case_judged("small", "error", "rank 0: no warp"), make.run_end("error", 1)]
    return [
        [launch],
        set_up,
        [*make_samples([[2.0, 3.0, 4.0]] * 4, "a"), *waits],
        [*make_case_end("a"), *next_case],
        make_samples([[2.0, 9.0]] * 4, "b"),
        [*make_case_end("b", "error", "no warp " * 60), *end],
    ]


@pytest.mark.parametrize("size", [(160, 48), WIDE])
async def test_panes_keep_their_places_during_a_run(open_run, size):
    first, *steps = make_steps_of_a_run()
    async with open_run(size, first) as run:
        await run.wait_until(lambda: run.table("cases").row_count == 3)

        async def list_regions():
            await run.wait_until(lambda: run.page.presenter._settled)
            await run.pilot.pause()
            panes = [pane for pane in run.page.query(Pane) if pane.is_on_screen]
            # The parts of a case take their lines from the histogram.
            shared_ids = ("parts-pane", "left-histogram-pane")
            return {pane.id: pane.region for pane in panes if pane.id not in shared_ids}

        regions = await list_regions()
        assert {"timeline-pane", "findings-pane", "host-map-pane"} <= set(regions)
        feed = run.page.presenter.selection.feed
        for events in steps:
            count = feed.event_count + len(events)
            run.source.send(*events)
            await run.wait_until(lambda count=count: feed.event_count == count)
            run.page.presenter.stay_active()
            assert await list_regions() == regions


async def test_empty_parts_have_no_legend(open_run):
    case = make.describe_case("a", 4, metrics=[make.TIME, PARTS])
    async with open_run((160, 48), make.make_started_run(case, hosts=HOSTS)) as run:
        pane = run.page.query_one("#parts-pane")
        await run.wait_until(lambda: pane.is_on_screen)
        assert not pane.query_one(StackedBars).display


async def test_parts_are_on_the_screen_only_for_a_case_that_measures_them(open_run):
    cases = [make.describe_case("a", 4), make.describe_case("b", 4, metrics=[make.TIME, PARTS])]
    async with open_run((160, 48), make.make_started_run(*cases, hosts=HOSTS)) as run:
        pane = run.page.query_one("#parts-pane")
        histogram = run.page.query_one("#left-histogram-pane")
        await run.wait_until(lambda: run.table("cases").row_count == 2 and histogram.is_on_screen)
        await run.wait_until(lambda: run.page.presenter._settled)
        assert not pane.is_on_screen
        await run.focus("cases")
        await run.press("down")
        await run.wait_for_texts("no parts of an iteration are measured so far")
        await run.press("up")
        await run.wait_until(lambda: not pane.is_on_screen)


@pytest.mark.parametrize("times", [[2.0, 2.0, 2.0], [2.0, 2.0, 90.0]])
async def test_parts_name_the_median_if_long_iterations_decide_the_mean(open_run, times):
    case = make.describe_case("a", 4, metrics=[make.TIME, PARTS])
    waits = [
        make.rank_event("samples", rank, case="a", metric="wait_ms", values=[1.0] * 3)
        for rank in range(4)
    ]
    events = [*make.make_started_run(case, hosts=HOSTS), *make_samples([times] * 4, "a"), *waits]
    async with open_run(WIDE, [*events, *make_case_end("a", "passed", None)]) as run:
        await run.wait_for_texts("Parts of an iteration of a, mean")
        is_named = (
            "median 2.00 ms: a few long iterations" in run.page.query_one("#parts-pane")._remark
        )
        assert is_named is (max(times) > 2.0)


@pytest.mark.parametrize("size", [(160, 48), WIDE])
async def test_chart_of_an_earlier_case_is_dimmed_and_named(open_run, size):
    async with open_run(size, make_running_events()) as run:
        await run.wait_until(lambda: run.page.presenter._settled)
        await run.wait_until(lambda: run.title(run.histogram.id) == SLOWEST)
        start = [make.rank_event("case_start", rank, case="next") for rank in range(4)]
        progress = make.rank_event("progress", 0, case="next", phase="check", done=1, total=2)
        run.source.send(*make_case_end(), *start, progress)
        await run.wait_for_texts("Ranks of next", "earlier case: warp", "no samples so far: check")
        chart = run.histogram
        assert chart.count_stops()
        assert chart.styles.opacity < 0.5
        assert run.title("timeline") == "Iterations, earlier case: warp"
        run.source.send(*make_samples([[50.0] * 9] * 4, case="next"))
        await run.wait_for_texts("Histogram of next", "Iterations of next")
        assert chart.styles.opacity == 1.0
        assert "no samples" not in read_screen(run.app)


def note_layouts(monkeypatch):
    """Return a list to which each widget that asks for a layout is added."""
    layouts = []
    refresh = Widget.refresh

    def note_layout(self, *regions, layout=False, **options):
        if layout:
            layouts.append(self)
        return refresh(self, *regions, layout=layout, **options)

    monkeypatch.setattr(Widget, "refresh", note_layout)
    return layouts


async def test_page_without_a_run_causes_no_layout(tmp_path, monkeypatch):
    app = make_console(tmp_path, page="run")
    async with app.run_test(size=NARROW) as pilot:
        await wait_until(pilot, lambda: "No run is watched" in read_screen(app))
        layouts = note_layouts(monkeypatch)
        app.screen.refresh_page()
        assert layouts == []
        app.context.unwatched_run = RunFolder(tmp_path / "halo-7")
        app.screen.refresh_page()
        await wait_until(pilot, lambda: "halo-7 is running" in read_screen(app))


async def test_updates_cause_no_layout_of_the_page(open_run, monkeypatch):
    async with open_run((200, 60), make_ended_run()) as run:
        await run.wait_for_texts("■ ended")
        presenter = run.page.presenter
        await run.wait_until(lambda: presenter._settled)
        layouts = note_layouts(monkeypatch)
        presenter.update_all()
        presenter.update_all()
        findings = run.page.query_one("#findings", FindingsPanel)
        last = findings._shown[-1]
        findings.show([*findings._shown[:-1], replace(last, message=last.message[:-1] + "!")])
        assert layouts == []


async def test_compare_goes_back_to_the_comparison(open_run):
    async with open_run(WIDE, make.make_complete_run()) as run:
        feed = run.app.context.feed
        feed.source = LiveSource(feed.folder)
        feed.compared_side = "20010101-083000-made-up"
        await run.wait_for_texts("c Compare")
        summary = RunFindings(feed).collect()[0].text
        assert "c goes back to the comparison with 20010101-083000-made-up" in summary
        await run.press("c")
        await run.wait_until(lambda: run.app.current_mode == "results")
        assert run.app.context.run_to_compare in (feed.folder.id, None)


@pytest.mark.parametrize("size", SIZES)
async def test_panes_have_titles(open_run, size):
    async with open_run(size, make_running_events()) as run:
        await run.wait_for_texts("Cases", "Ranks of warp")
        await run.press("l")
        await run.wait_for_texts("Logs of all ranks")


@pytest.mark.parametrize("size", SIZES)
async def test_ended_run_has_a_summary(open_run, size, tmp_path):
    async with open_run(size, make_ended_run()) as run:
        await run.wait_for_texts("■ ended 2 cases: 1 passed, 1 failed", "F runs again what")
        assert "c compares it with earlier runs" in read_findings(run.app)
        assert "report:" not in read_findings(run.app)
        (tmp_path / "home" / "runs" / "made-up-run" / "report.json").touch()
        await run.wait_until(
            lambda: any(
                "report:" in note.text for note in run.page.presenter.selection.findings.collect()
            )
        )


async def test_paused_ranks_can_be_sorted_by_active_time(open_run):
    waits = make.describe_metric("wait_ms", "ms", part_of="time_ms", waits=True)
    case = {**describe_synthetic_case(), "metrics": [make.TIME, waits]}
    events = make.make_started_run(case, hosts=HOSTS)
    events += make_samples([[9.0], [9.0], [9.0], [9.0]])
    events += make_samples([[8.0], [5.0], [7.0], [6.0]], metric="wait_ms")
    async with open_run(WIDE, events) as run:
        table = run.table("ranks")
        await run.wait_until(lambda: "active" in [column.key for column in table.columns])
        await run.wait_until(lambda: "6.00 ms" in run.row(0))
        table.sort_by("active")
        await run.wait_until(lambda: run.ranks == [0, 2, 3, 1])
        await run.press("space")
        await run.wait_for_texts("HELD")
        table.sort_by("active", reverse=True)
        assert run.ranks == [1, 3, 2, 0]


async def test_keys_typed_right_after_the_filter_key_reach_it(open_run):
    async with open_run(WIDE, make_running_events()) as run:
        await run.wait_until(lambda: run.ranks == [0, 1, 2, 3])
        post_keys(run.app, "/e01 no/")
        await run.wait_until(lambda: run.page.query_one("#filter Input").value == "e01 no/")
        assert "HELD" not in read_screen(run.app)


async def test_filter_shows_matching_ranks_until_escape(open_run):
    events = [*make_running_events(), *make_samples([[2.0] * 6] * 3 + [[6.1] * 6])]
    async with open_run(WIDE, events) as run:
        await run.wait_until(lambda: run.ranks == [0, 1, 2, 3])
        await run.press("slash", *"e01")
        await run.wait_until(lambda: run.ranks == [0, 1])
        await run.wait_until(lambda: run.remark("ranks") == "2 of 4 match 'e01'")
        await run.press("enter", "down")
        await run.wait_until(
            lambda: run.table("ranks").has_focus and run.table("ranks").cursor_key == 1
        )
        await run.press("slash", *[*["backspace"] * 3, *"slow"])
        await run.wait_until(lambda: run.ranks == [3])
        await run.press("escape")
        await run.wait_until(lambda: run.ranks == [0, 1, 2, 3])
        assert run.table("ranks").has_focus
        assert not run.page.query_one("#filter").display


@pytest.mark.long
async def test_key_for_the_slowest_follows_the_current_order(open_run, tmp_path):
    async with open_run(WIDE, make_running_events()) as run:
        await run.wait_until(lambda: len(run.ranks) == 4)
        await run.press("o")
        await run.wait_until(lambda: run.ranks[0] == 3)
        await run.press(*["s"] * 20)
        run.table("ranks").sort_by("host")
        await run.press("o")
        await run.wait_until(lambda: run.ranks[0] == 3)
        folder = RunFolder(tmp_path / "home" / "runs" / "other")
        run.app.context.watch_run(folder, ScriptedSource(folder, make_running_events()))
        await run.wait_until(lambda: run.page.shown_feed is run.app.context.feed)
        await run.wait_until(lambda: run.ranks == [0, 1, 2, 3])


@pytest.mark.parametrize("key", ["o", "escape"])
async def test_keys_return_to_the_order_by_number(open_run, key):
    async with open_run(WIDE, make_running_events()) as run:
        await run.wait_until(lambda: len(run.ranks) == 4)
        await run.wait_for_texts("o Slowest")
        await run.press("o")
        await run.wait_for_texts("o By rank", "Esc All ranks")
        await run.wait_until(lambda: run.ranks[0] == 3)
        await run.press(key)
        await run.wait_until(lambda: run.ranks == [0, 1, 2, 3])
        await run.wait_for_texts("o Slowest")
        assert run.page.presenter.selection.rank == (3 if key == "o" else None)


async def test_sorts_ranks_and_copies_a_row(open_run):
    async with open_run(WIDE, [*make_running_events(), *make_checks(failed=())]) as run:
        await run.wait_until(lambda: len(run.ranks) == 4)
        await run.press("n")
        await run.wait_for_texts("no case has a problem so far")
        await run.press("end", "y")
        expected = (
            "rank 3 on node03, shard 3, timing 2/8, 2 iterations, last 6.20 ms, median 6.10 ms"
        )
        assert run.app.clipboard.startswith(expected)
        assert "skew 2.98x, checks passed" in run.app.clipboard
        await run.press("o")
        await run.wait_until(lambda: run.ranks[0] == 3)
        await run.press("o")
        await run.wait_until(lambda: run.ranks == [0, 1, 2, 3])
        await run.press("s", "s")
        await run.wait_until(lambda: run.table("ranks").sorted_by == ("host", False))
        await run.press("S")
        await run.wait_until(lambda: run.ranks[0] == 3)
        for column in ("p95", "last", "iterations", "check"):
            run.table("ranks").sort_by(column, reverse=True)
            await run.wait_until(lambda: sorted(run.ranks) == [0, 1, 2, 3])
        run.table("ranks").sort_by("p95", reverse=True)
        await run.wait_until(lambda: run.ranks[0] == 3)


async def test_sorting_moves_the_cursor_to_the_top_row(open_run):
    async with open_run(NARROW, make_running_events()) as run:
        await run.wait_until(lambda: len(run.ranks) == 4)
        table = run.table("ranks")
        await run.focus("cases")
        await run.press("o")
        assert (table.cursor_key, table.has_focus) == (3, True)
        run.source.send(*make_samples([[9.0] * 9, [2.0] * 9, [2.0] * 9, [2.0] * 9]))
        await run.wait_until(lambda: run.ranks[0] == 0)
        assert table.cursor_key == 3
        await run.press("s")
        assert table.cursor_key == run.ranks[0]
        table.sort_by("skew", reverse=True)
        await run.press("space", "enter")
        await run.wait_for_texts("rank 0 ", "time ", "last 9.00 ms, median 9.00 ms, p95 9.00 ms")
        await run.wait_for_texts("4.50x the median of ranks 0-3")


@pytest.mark.parametrize("size", SIZES)
async def test_strip_names_the_slow_rank_and_those_that_wait(open_run, size):
    times = [6.0, 6.1, 6.0, 6.2]
    waits = make.describe_metric("wait_ms", "ms", "lower", part_of="time_ms", waits=True)
    case = make.describe_case("warp", 4, metrics=[make.TIME, waits])
    events = make.make_started_run(case, hosts=HOSTS)
    for rank in range(4):
        events += [
            make.rank_event("samples", rank, case="warp", values=[times[rank]] * 8),
            make.rank_event(
                "samples", rank, case="warp", metric="wait_ms", values=[4.0 * (rank < 3)] * 8
            ),
        ]
    async with open_run(size, events) as run:
        await run.wait_for_texts("rank 3 on node03 takes 3.10x the time of", "ranks 0,")
        assert "4.00 ms per iteration" in run.page.query_one(RankStrip)._note


@pytest.mark.parametrize("size", SIZES)
async def test_failed_check_shows_its_largest_error_and_position(open_run, size):
    async with open_run(size, [*make_running_events(), *make_checks()]) as run:
        await run.wait_for_texts(
            "check sum failed on rank 2 on node02", "largest error", "✗ failed"
        )
        await run.wait_for_texts("largest error", "0.25", "(tolerance", "0.001): row 7")
        await run.press("n")
        await run.wait_until(lambda: run.table("ranks").cursor_key == 2)
        await run.press("n")
        await run.wait_until(lambda: run.table("ranks").cursor_key == 2)
        strip = run.page.query_one(RankStrip)
        await run.wait_until(lambda: strip._failed == {2} and strip._selected == 2)


@pytest.mark.parametrize("size", SIZES)
async def test_finished_case_keeps_its_ranks_until_f_follows_again(open_run, size):
    second = [make.rank_event("case_start", rank, case="next") for rank in range(4)]
    times = make_samples([[30.0], [31.0], [32.0], [33.0]], "next")
    async with open_run(
        size, [*make_running_events(), *make_checks(), *make_case_end(), *second, *times]
    ) as run:
        await run.wait_until(lambda: run.table("cases").cursor_key == "next")
        await run.wait_for_texts("31.0")
        await run.focus("cases")
        await run.press("up")
        await run.wait_until(lambda: run.title("ranks") == "Ranks of warp")
        await run.wait_for_texts("done", "2.05", "✗ failed")
        assert "31.0 " not in read_screen(run.app).replace("…31.0", "")
        assert run.table("cases").cursor_key == "warp"
        await run.press("f")
        await run.wait_until(lambda: run.title("ranks") == "Ranks of next")
        assert run.table("cases").cursor_key == "next"


async def test_time_of_a_running_case_equals_its_final_time(open_run):
    limit = make.rank_event(
        "metric", 0, case="warp", name="time_ms", value=1.25, measured_by="one alone"
    )
    async with open_run(WIDE, make_running_events()) as run:
        await run.wait_for_texts("…6.10 ms")
        await run.wait_until(lambda: run.table("cases").cursor_key == "warp")
        run.source.send(
            limit, *make_checks(failed=()), *make_case_end(status="passed", reason=None)
        )
        await run.wait_for_texts("6.10 ms", "1.25 ms", "20 %", "✓ passed", "4/4")
        run.source.send(*(make.rank_event("case_start", rank, case="next") for rank in range(4)))
        await run.wait_until(lambda: run.title("ranks") == "Ranks of next")
        await run.wait_until(lambda: run.table("cases").cursor_key == "next")
        await run.wait_until(lambda: "earlier case: warp" in run.title("timeline"))


async def test_sparse_ticks_eventually_show_all(open_run, monkeypatch):
    async with open_run(WIDE, make_running_events()) as run:
        await run.wait_for_texts("6.10", "0/2 cases", "… running")
        presenter = run.page.presenter
        feed = presenter.selection.feed
        events = make_samples([[50.0] * 9] * 4)
        count = feed.event_count + len(events)
        line = run.page.query_one(TimelineChart)
        await run.wait_until(lambda: line._values == [6.0, 6.2])
        clock = []
        monkeypatch.setattr("spbench.tui.run.presenter.monotonic", lambda: clock[-1])
        presenter.tick = lambda: None

        def tick(now):
            clock.append(now)
            RunPresenter.tick(presenter)

        tick(1e9)
        run.source.send(*events)
        await run.wait_until(lambda: feed.event_count == count)
        tick(1e9 + 0.01)
        tick(1e9 + 60.0)
        # The tick before has updated one chart at most.
        assert len(line._values) == sum(run.histogram._counts) == 11


async def test_efficiency_above_100_percent_is_explained_once(open_run):
    reference = make.rank_event(
        "metric", 0, case="warp", name="time_ms", value=9.15, measured_by="one alone"
    )
    case_end = make_case_end(status="passed", reason=None)
    async with open_run(
        WIDE, [*make_running_events(), reference, *make_checks(failed=()), *case_end]
    ) as run:
        await run.wait_for_texts("9.15 ms", "150 %", "above 100 %: faster than the reference")
        assert read_screen(run.app).count("above 100 %") == 1


@pytest.mark.long
async def test_charts_follow_the_selected_rank_and_metric(open_run):
    async with open_run(WIDE, [*make_running_events(), *make_rates()]) as run:
        await run.wait_until(lambda: run.title(run.histogram.id) == SLOWEST)
        line = run.page.query_one(TimelineChart)
        await run.wait_until(lambda: line._values == [6.0, 6.2])
        await run.press("down", "down")
        await run.wait_until(lambda: run.histogram_title == "Histogram of warp: time of rank 2")
        await run.wait_until(lambda: line._values == [2.1, 2.0])
        await run.press("m")
        await run.wait_until(lambda: run.title("timeline") == "Iterations of warp: warps of rank 2")
        await run.wait_until(
            lambda: (line._values, line._unit, line._better) == ([11, 11], "1/s", "higher")
        )
        await run.press("escape")
        await run.wait_until(lambda: run.title(run.histogram.id) == SMALLEST)
        await run.wait_until(lambda: line._values == [9.0, 9.0])
        await run.press("m")
        await run.wait_until(lambda: run.title(run.histogram.id) == SLOWEST)
        await run.wait_for_texts("limit 5.00 ms")
        await run.focus("ranks")
        await run.press("end")
        await run.wait_until(lambda: run.table("ranks").cursor_key == 3)
        await run.wait_until(lambda: run.histogram_title == "Histogram of warp: time of rank 3")


@pytest.mark.parametrize("size", SIZES)
async def test_coordinates_have_columns_sorted_by_number(open_run, size):
    cases = describe_synthetic_case(
        places=[{"lane": f"0,{10 - rank}", "depth": 0} for rank in range(4)]
    )
    other = describe_synthetic_case("next", places=[])
    async with open_run(size, make.make_started_run(cases, other, hosts=HOSTS)) as run:
        await run.wait_until(lambda: run.row(0)[2:4] == ["0,10", "0"])
        table = run.table("ranks")
        await run.wait_for_texts("lane", "depth", "0,10")
        table.sort_by("coordinate.lane")
        await run.wait_until(lambda: run.ranks == [3, 2, 1, 0])
        run.source.send(*(make.rank_event("case_start", rank, case="next") for rank in range(4)))
        await run.wait_until(lambda: run.ranks == [0, 1, 2, 3])
        assert table.sorted_by == (None, False)
        assert "lane" not in read_screen(run.app)
        assert len(run.row(0)) == len(table.columns)


@pytest.mark.parametrize("size", SIZES)
async def test_details_show_the_phases_of_a_step(open_run, size):
    async with open_run(size, make.make_phases_run()) as run:
        await run.wait_until(lambda: run.row(2)[3:5] == ["2+0", "2,0"])
        await run.focus("cases")
        await run.press("enter")
        await run.wait_for_texts(
            "spin 60 %, send 10 %, idle 20 %, packing and sending 10 %", "all ranks  "
        )
        await run.wait_for_texts(
            "rank 2 stage 2+0 tile 2,0", "■ spin  ■ send  ■ idle  · packing and sending"
        )
        await run.press("y")
        assert "mean step: spin 60 %" in run.app.clipboard
        await run.press("escape")
        await run.focus("ranks")
        await run.press("end", "enter")
        await run.wait_for_texts("replica 0, stage 2, tile 2,0", "stage 0", "only rank of stage 2")
        await run.wait_for_texts("  idle  ", "3.00 ms, 30 %")
        await run.press("end")
        await run.wait_for_texts(" 60 % ")
        [chart] = run.app.screen.query(StackedBars)
        assert [bar.label for bar in chart._bars] == ["rank 2", "all ranks"]


def make_log_events(count):
    return [
        make.rank_event(
            "log", number % 4, level="info", message=f"said {number}", time=1000.0 + number
        )
        for number in range(count)
    ]


@pytest.mark.parametrize("size", SIZES)
async def test_logs_of_one_or_all_ranks_replace_the_charts(open_run, size):
    async with open_run(size, [*make_running_events(), *make_log_events(101)]) as run:
        await run.wait_until(lambda: len(run.ranks) == 4)
        await run.press("l")
        await run.wait_for_texts("said 99", "said 100")
        await run.press("down")
        await run.wait_until(
            lambda: "said 97" in read_screen(run.app) and "said 100" not in read_screen(run.app)
        )
        assert "said 98" not in read_screen(run.app)
        await run.press("escape")
        await run.wait_for_texts("said 100")
        await run.press("l")
        await run.wait_until(lambda: "said 100" not in read_screen(run.app))


async def test_logs_scroll_and_keep_their_position(open_run):
    async with open_run(WIDE, [*make_running_events(), *make_log_events(101)]) as run:
        await run.wait_until(lambda: len(run.ranks) == 4)
        await run.press("l")
        await run.wait_for_texts("said 100")
        await run.focus("logs")
        await run.press("up", "up")
        await run.wait_until(
            lambda: "said 99" not in read_screen(run.app) and "said 98" in read_screen(run.app)
        )
        run.source.send(make.rank_event("log", 0, level="error", message="said 101\nand more"))
        await run.wait_until(lambda: run.app.context.feed.log_count == 102)
        await run.press("down")
        await run.wait_until(
            lambda: "said 99" in read_screen(run.app) and "said 100" not in read_screen(run.app)
        )
        await run.press("pageup")
        await run.wait_until(lambda: "said 99" not in read_screen(run.app))
        await run.press("end")
        await run.wait_for_texts("said 101", "and more")
        await run.press("pageup", "pagedown")
        await run.wait_for_texts("said 101")


async def test_findings_open_their_panel_after_the_last_update_of_cases(open_run):
    async with open_run(NARROW, make_running_events()) as run:
        await run.wait_until(lambda: len(run.ranks) == 4)
        body = run.page.query_one(RunBody)
        assert not body.shows_findings
        run.app.context.feed.failure = "the log is damaged"
        run.page.presenter._show_cases()
        run.page.presenter._show_findings()
        await run.wait_until(lambda: body.shows_findings)


@pytest.fixture
def eastern_time_zone(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC-5")
        time.tzset()
        yield
    time.tzset()


async def test_log_times_are_utc(open_run, eastern_time_zone):
    async with open_run(WIDE, [*make_running_events(), *make_log_events(1)]) as run:
        await run.press("l")
        await run.wait_for_texts("00:16:40 rank 0")


async def test_wide_characters_of_logs_are_all_shown(open_run):
    log_event = make.rank_event("log", 0, level="info", message="漢字" * 200 + "end")
    async with open_run(MEDIUM_SIZE, [*make_running_events(), log_event]) as run:
        await run.wait_until(lambda: len(run.ranks) == 4)
        await run.press("l")
        await run.wait_for_texts("end")
        assert read_screen(run.app).count("漢") == 200


async def test_rows_of_a_table_in_the_logs_are_cut_and_scroll_sideways(open_run):
    columns = [f"column{number:02}" for number in range(20)]
    table = "   ".join(columns) + "\n" + "   ".join(f"value{number:04}" for number in range(20))
    log_event = make.rank_event("log", 0, level="info", message=table)
    async with open_run((80, 24), [*make_running_events(), log_event]) as run:
        await run.wait_until(lambda: len(run.ranks) == 4)
        await run.press("l")
        await run.wait_for_texts("column00   column01", "value0000   value0001")
        lines = read_screen(run.app).splitlines()
        header = next(line for line in lines if "   column01" in line)
        values = next(line for line in lines if "   value0001" in line)
        assert header.index("column00") == values.index("value0000")
        assert header.rstrip(" │").endswith("»")
        await run.focus("logs")
        await run.press(*["right"] * 9)
        await run.wait_for_texts("column18   column19", "value0018   value0019")
        assert "column00" not in read_screen(run.app)
        await run.press(*["left"] * 9)
        await run.wait_for_texts("column00   column01")


async def test_logs_have_one_background(open_run):
    async with open_run(WIDE, [*make_running_events(), *make_log_events(1)]) as run:
        await run.press("l")
        await run.wait_for_texts("said 0")
        view = run.page.query_one(LogView)
        lines = [view.render_line(0), view.render_line(1)]
        assert len({segment.style.bgcolor for line in lines for segment in line}) == 1


@pytest.mark.parametrize(
    ("size", "titles"),
    [
        ((80, 40), ["1 of 5, v: histogram", "2 of 5, v: iterations", "3 of 5, v: hosts by case"]),
        ((120, 24), ["1 of 4, v: findings", "2 of 4, v"]),
        (MEDIUM_SIZE, ["1 of 4, v: findings", "2 of 4, v"]),
    ],
)
async def test_title_of_a_panel_has_its_position_and_the_name_of_the_next(open_run, size, titles):
    async with open_run(size, [*make_running_events(), *make_log_events(3)]) as run:
        empty_panels = {Panel.PARTS, Panel.PREVIOUS, Panel.HOSTS, Panel.GPUS}
        body = run.page.query_one(RunBody)
        await run.wait_until(lambda: body.empty_panels == empty_panels)
        if body.panel is Panel.NONE:
            await run.press("v")
        for title in titles:
            await run.wait_for_texts(title)
            await run.press("v")


@pytest.mark.long
async def test_key_cycles_panels_with_contents_and_hidden_ones_are_not_drawn(open_run, monkeypatch):
    updated_types = []
    panels = []
    for widget in (HistogramChart, TimelineChart):
        monkeypatch.setattr(
            widget, "update", lambda self, *_, **__: updated_types.append(type(self))
        )
    async with open_run(
        NARROW, [*make_running_events(), *make_checks(), *make_log_events(3)]
    ) as run:
        await run.wait_for_texts("check sum failed", "timing 2/8")
        await run.pilot.pause(0.6)
        assert updated_types == []
        empty_panels = {Panel.PARTS, Panel.PREVIOUS, Panel.HOSTS, Panel.GPUS}
        body = run.page.query_one(RunBody)
        await run.wait_until(lambda: body.empty_panels == empty_panels)
        for _ in range(5):
            await run.press("v")
            panes = run.page.query("#lower > *")
            panels.append([pane.id for pane in panes if pane.is_on_screen])
            if panels[-1] == ["histogram-pane"]:
                await run.wait_until(lambda: HistogramChart in updated_types)
                assert TimelineChart not in updated_types
    single_panes = ("histogram-pane", "timeline-pane", "lower-host-map-pane", "logs-pane")
    assert panels == [*([pane] for pane in single_panes), []]


async def test_case_with_an_error_shows_its_traceback(open_run):
    traceback = "Traceback (most recent call last):\n" + "\n".join(
        f'  File "warp.py", line {line}, in drive [red]' for line in range(80)
    )
    error = {"status": "error", "error": {"traceback": traceback}}
    events = [
        *make_running_events(),
        *make_checks(failed=[1]),
        make.rank_event("case_end", 1, case="warp", **error),
        make.case_judged(
            "warp", "error", "rank 1 on node01: ValueError: no warp", traceback=traceback
        ),
    ]
    async with open_run(WIDE, events) as run:
        await run.wait_for_texts("✗ error", "rank 1 on node01: ValueError: no warp")
        await run.focus("cases")
        await run.press("enter")
        await run.wait_until(lambda: isinstance(run.app.screen, DetailsScreen))
        await run.wait_for_texts(
            "warp.drive, 4 ranks", "Traceback (most recent", "line 1, in drive [red]"
        )
        assert "line 79," not in read_screen(run.app)
        await run.press("end")
        await run.wait_for_texts("line 79,")
        await run.press("y")
        assert "line 40, in drive" in run.app.clipboard
        await run.press("escape")
        await run.wait_until(lambda: not isinstance(run.app.screen, DetailsScreen))
        await run.press("n")
        await run.wait_until(lambda: run.table("ranks").cursor_key == 1)
        await run.press("enter")
        await run.wait_until(lambda: isinstance(run.app.screen, DetailsScreen))
        await run.wait_for_texts("node01, local rank 1", "0-1", "self,sm")
        await run.wait_for_texts(
            "sum, repeat 0: ✗ failed, largest error 0.25 (tolerance 0.001): row 7"
        )


async def test_open_details_follow_the_run_to_its_end(open_run):
    def find_bar_actions():
        return {key.action for key in run.app.screen_stack[-2].query_one(KeyBar).shown}

    async with open_run(WIDE, make_running_events()) as run:
        await run.wait_until(lambda: run.table("cases").row_count == 2)
        await run.wait_until(lambda: run.table("cases").cursor_key == "warp")
        await run.focus("cases")
        await run.press("end")
        await run.wait_until(lambda: run.table("cases").cursor_key == "next")
        await run.press("enter")
        await run.wait_until(lambda: isinstance(run.app.screen, DetailsScreen))
        assert dict(run.app.screen._details.lines)["status"] == "· waiting"
        assert "cancel" in find_bar_actions()
        run.source.send(
            *make_checks(failed=[]),
            *make_case_end("warp", "passed", ""),
            make.case_judged("next", "failed", "no warp"),
            make.run_end("failed", 1),
        )
        run.source.end()
        await run.wait_for_texts("failed: no warp")
        await run.wait_until(lambda: "cancel" not in find_bar_actions())


@pytest.mark.long
async def test_each_job_shows_its_own_ranks(open_run):
    small_case = describe_synthetic_case("small", np=2)
    events = [
        make.run_start(describe_synthetic_case(), small_case),
        make.job_start("warp", np=4),
        *(make.rank_event("ready", rank, host=host) for rank, host in enumerate(HOSTS)),
        *(make.rank_event("case_start", rank, case="warp") for rank in range(4)),
        *make_samples([[2.0]] * 4),
        *make_case_end(status="passed", reason=None),
        make.job_end(),
    ]
    async with open_run(WIDE, events) as run:
        await run.wait_until(lambda: run.ranks == [0, 1, 2, 3])
        second_job = make.job_start("small", np=2) | {"job": 2, "oversubscribed": True}
        run.source.send(second_job)
        await run.wait_for_texts("job 2: 2 ranks", "2 ranks share fewer cores")
        run.source.send(*(make.rank_event("ready", rank, host="node09") for rank in range(2)))
        run.source.send(*(make.rank_event("case_start", rank, case="small") for rank in range(2)))
        await run.wait_until(lambda: run.ranks == [0, 1])
        await run.wait_for_texts("node09", "on 1 host")
        await run.wait_until(lambda: run.table("cases").cursor_key == "small")
        await run.focus("cases")
        await run.press("home")
        await run.wait_until(lambda: run.ranks == [0, 1, 2, 3])
        await run.wait_for_texts("node03")


@pytest.mark.parametrize("size", SIZES)
async def test_rank_that_is_lost_before_the_first_case_is_among_the_ranks(open_run, size):
    reason = "rank 1 on node01, 1.5 s after the launch, was killed by signal 9"
    lost = make.console_event("rank_lost", job=1, rank=1, host="node01", reason=reason)
    events = [
        make.run_start(describe_synthetic_case()),
        make.job_start("warp", np=4),
        *(make.rank_event("hello", rank, host=host) for rank, host in enumerate(HOSTS)),
        lost,
        make.job_end(),
        make.case_judged("warp", "error", reason),
        make.run_end("error", 4),
    ]
    async with open_run(size, events) as run:
        await run.wait_until(lambda: run.ranks == [0, 1, 2, 3])
        await run.wait_until(lambda: "died" in run.row(1))
        assert "unfinished" in run.row(0)
        await run.press("n")
        await run.wait_until(lambda: run.table("ranks").cursor_key == 1)
        await run.press("enter")
        await run.wait_for_texts("died", "after the launch", "local rank unknown")


@pytest.mark.parametrize("size", SIZES)
async def test_rank_that_is_lost_before_its_case_remains_after_the_next_launch(open_run, size):
    reason = "rank 1 on node01, 1.5 s after the launch, was killed by signal 9"
    events = [
        make.run_start(describe_synthetic_case(), describe_synthetic_case("next")),
        make.job_start("warp", np=4),
        *(make.rank_event("hello", rank, host=host) for rank, host in enumerate(HOSTS)),
        make.console_event("rank_lost", job=1, rank=1, host="node01", reason=reason),
        make.job_end(),
        make.case_judged("warp", "error", reason),
        make.job_start("next", job=2, np=4),
        *(make.rank_event("ready", rank, job=2, host=host) for rank, host in enumerate(HOSTS)),
        *(make.rank_event("case_start", rank, job=2, case="next") for rank in range(4)),
    ]
    async with open_run(size, events) as run:
        await run.focus("cases")
        await run.press("home")
        await run.wait_until(lambda: run.ranks == [0, 1, 2, 3])
        await run.wait_until(lambda: "died" in run.row(1))
        assert "node01" in run.row(1)
        assert "unfinished" in run.row(0)
        await run.wait_for_texts("4 ranks; 1 failed: rank 1")
        await run.press("n")
        await run.wait_until(lambda: run.table("ranks").cursor_key == 1)
        await run.press("enter")
        await run.wait_for_texts("died", "after the launch", "local rank unknown")


async def test_next_launch_keeps_the_data_of_the_last_case(open_run):
    events = [
        make.run_start(describe_synthetic_case(repeat=3)),
        make.job_start("warp", np=4),
        *(make.rank_event("ready", rank, host=host) for rank, host in enumerate(HOSTS)),
        *(make.rank_event("case_start", rank, case="warp") for rank in range(4)),
    ]
    async with open_run(MEDIUM_SIZE, events) as run:
        await run.wait_for_texts("no samples so far")
        run.source.send(
            make.rank_event("progress", 0, case="warp", phase="check", done=12, total=19)
        )
        await run.wait_for_texts("no samples so far: check 63 %")
        ends = [make.rank_event("case_end", rank, case="warp") for rank in range(4)]
        run.source.send(*make_samples([[2.0, 2.1, 7.25]] * 4), *ends, make.job_end())
        run.source.send(make.job_start("warp", np=4, job=2))
        run.source.send(*(make.rank_event("ready", rank, host="node09") for rank in range(4)))
        await run.wait_for_texts("job 2: 4 ranks", "Ranks of warp", "7.25 ms")
        await run.wait_until(lambda: run.remark("ranks").startswith("1 of 3 launches"))
        await run.wait_for_texts("waiting 1/3", "1/3 repeats")
        assert "node09" not in read_screen(run.app)  # a rank of the next launch
        await run.wait_until(lambda: "no samples" not in read_screen(run.app))


@pytest.mark.parametrize(("cases", "focused"), [(("a", "b"), "cases"), (("a",), "ranks")])
async def test_cases_have_the_focus_unless_there_is_only_one(tmp_path, cases, focused):
    app = make_console(tmp_path, page="run")
    folder = RunFolder(tmp_path / "home" / "runs" / "made-up-run")
    events = make.make_started_run(*(make.describe_case(case, 4) for case in cases), hosts=HOSTS)
    async with app.run_test(size=WIDE) as pilot:
        app.context.watch_run(folder, ScriptedSource(folder, events))
        await wait_until(pilot, lambda: "node03" in read_screen(app))
        assert app.screen.focused.id == focused


async def test_samples_of_one_rank_only_are_shown_without_choosing_it(open_run):
    events = make_running_events()[:-4]
    async with open_run(WIDE, events) as run:
        run.source.send(*make_samples([[2.0] * 14]))
        await run.wait_for_texts("Histogram of warp: time of rank 0")


async def test_text_without_samples_is_not_cut_in_a_narrow_chart(open_run):
    events = make_running_events()[:-4]
    async with open_run(MEDIUM_SIZE, events) as run:
        run.source.send(*make_samples([[2.0] * 14, [2.0] * 14]))
        await run.wait_for_texts(
            "2 ranks sent times: up to 14 iterations; arrow keys", "choose one"
        )


async def test_headline_row_and_charts_have_the_same_phase(open_run):
    started = make.make_started_run(describe_synthetic_case(), hosts=HOSTS)
    async with open_run(WIDE, started) as run:
        for done in (1, 2, 3):
            progress = make.rank_event(
                "progress", 0, case="warp", phase="check", done=done, total=4
            )
            run.source.send(progress)
            await run.wait_for_texts(f"no samples so far: check {25 * done} %")
            row = run.page.presenter.selection.cases.get("warp")
            assert row.status_text == f"check {25 * done} %"


async def test_case_that_later_ones_pass_waits_for_its_own_launch(open_run):
    cases = describe_synthetic_case("program"), describe_synthetic_case("warp")
    started = make.make_started_run(*cases, hosts=HOSTS)
    events = [
        {**event, "case": "warp"} if event.get("event") == "case_start" else event
        for event in started
    ]
    async with open_run(WIDE, events) as run:
        await run.wait_for_texts("case program: later, in a separate launch")


def test_case_between_two_launches_has_its_time_so_far():
    folder = RunFolder(Path("made-up-run"))
    feed = Feed(folder, LiveSource(folder))
    ends = [make.rank_event("case_end", rank, case="warp") for rank in range(4)]
    case = describe_synthetic_case(repeat=2)
    events = [*make.make_started_run(case, hosts=HOSTS), *make_samples([[2.0]] * 4), *ends]
    for event in [*events, make.job_end(), make.job_start("warp", np=4, job=2)]:
        feed._apply(event)
    rows = RunCaseRows(feed)
    rows.update()
    assert "waiting 1/2" in rows.cells("warp")[0].text
    assert "…2.00 ms" in rows.cells("warp")


async def test_all_panes_change_to_a_new_case_in_one_tick(open_run, monkeypatch):
    async with open_run(WIDE, make_running_events()) as run:
        await run.wait_until(lambda: run.page.presenter._settled)
        await run.wait_until(lambda: run.title(run.histogram.id) == SLOWEST)
        page = run.page
        feed = page.presenter.selection.feed
        monkeypatch.setattr(page, "_tick", lambda: None)
        monkeypatch.setattr(page, "refresh_page", lambda: None)
        events = [
            *make_case_end(),
            *(make.rank_event("case_start", rank, case="next") for rank in range(4)),
            *make_samples([[50.0] * 9] * 4, case="next"),
        ]
        count = feed.event_count + len(events)
        run.source.send(*events)
        await run.wait_until(lambda: feed.event_count == count)
        type(page).refresh_page(page)
        titles = [run.title(name) for name in ("ranks", run.histogram.id, "timeline")]
        assert titles == [
            "Ranks of next",
            "Histogram of next: slowest rank",
            "Iterations of next: slowest rank",
        ]
        rows = page.presenter.selection.cases
        assert [rows.get(case).status for case in ("warp", "next")] == ["failed", "running"]
        assert run.table("cases").cursor_key == "next"


@pytest.mark.parametrize("size", SIZES)
async def test_charts_of_the_previous_run_are_emptied(open_run, tmp_path, size):
    async with open_run(size, make_running_events()) as run:
        charts = [*run.page.query(HistogramChart), run.page.query_one(TimelineChart)]
        await run.wait_until(lambda: any(chart.count_stops() for chart in charts))
        run.page.presenter.update_all()
        folder = RunFolder(tmp_path / "home" / "runs" / "other")
        run.app.context.watch_run(folder, ScriptedSource(folder, []))
        run.page.refresh_page()
        assert not any(chart.count_stops() for chart in charts)


async def test_hidden_charts_are_emptied_for_another_case(open_run):
    async with open_run(WIDE, make_running_events()) as run:
        await run.wait_until(lambda: run.title(run.histogram.id) == SLOWEST)
        chart = run.page.query_one(TimelineChart)
        run.page.query_one("#lower").display = False
        await run.wait_until(lambda: not chart.is_on_screen)
        run.source.send(
            *make_case_end(),
            *(make.rank_event("case_start", rank, case="next") for rank in range(4)),
            *make_samples([[50.0] * 9] * 4, case="next"),
        )
        await run.wait_until(lambda: run.title("ranks") == "Ranks of next")
        assert not chart.count_stops()


async def test_selection_during_an_update_is_kept(open_run):
    async with open_run(WIDE, make_running_events()) as run:
        await run.wait_until(lambda: run.table("cases").cursor_key == "warp")
        await run.focus("cases")
        run.table("cases").action_last()
        run.page.presenter.update_all()  # before the page gets the message of the selection
        await run.wait_for_texts("Ranks of next")
        assert run.table("cases").cursor_key == "next"


async def test_previous_status_is_hidden_while_a_run_starts(open_run):
    async with open_run(WIDE, make.make_complete_run()) as run:
        await run.wait_for_texts("made-up", "1/1 passed")
        run.app.context.starting_since = time.monotonic() - 7
        await run.wait_for_texts(
            "… starting a run", "spbench reads the suite and asks the hosts for their cores, "
        )
        [seconds] = re.findall(r"their cores, (\d+) s", read_screen(run.app))
        assert int(seconds) >= 7
        assert "1/1 passed" not in read_screen(run.app)
        run.app.context.starting_since = None
        await run.wait_for_texts("1/1 passed")


@pytest.mark.parametrize("size", SIZES)
async def test_details_of_a_failed_rank_have_error_and_job_output(open_run, size, tmp_path):
    error = {"message": "ValueError: no such tile", "traceback": "Traceback\n  in halo.py\n"}
    events = [
        *make_running_events(),
        make.rank_event("case_end", 2, case="warp", status="error", error=error),
        make.case_judged(
            "warp", "error", "rank 2 on node02: no such tile", traceback="Trace\n  in halo.py"
        ),
        make.job_end("error"),
        make.run_end("error", 4),
    ]
    async with open_run(size, events) as run:
        folder = RunFolder(tmp_path / "home" / "runs" / "made-up-run")
        (folder.create_job_folder(1) / "stderr.log").write_text("MPI_ABORT was invoked\n")
        await run.wait_for_texts("✗ error")
        await run.press("l")
        await run.wait_for_texts("ValueError: no such tile", "in halo.py")
        for name, key in (("cases", "warp"), ("ranks", 2)):
            await run.focus(name)
            run.page.presenter.cursors.move(run.table(name), key)
            await run.press("enter")
            await run.wait_until(lambda: isinstance(run.app.screen, DetailsScreen))
            text = await run.copy_text()
            for expected in ("no such tile", "in halo.py", "stderr.log)\nMPI_ABORT was invoked"):
                assert expected in text, name
            await run.press("escape")


async def test_cancelled_cases_share_one_finding(open_run):
    reason = "cancelled in the console after 6.2 s of the run"
    events = [
        *make_running_events(),
        make.case_judged("warp", "cancelled", reason),
        make.case_judged("next", "cancelled", f"did not run: {reason}"),
        make.job_end("cancelled"),
        make.run_end("cancelled", 130),
    ]
    async with open_run(WIDE, events) as run:
        await run.wait_for_texts(f"- {reason}: warp and next", "F Run rest", "0/2 passed")
        await run.wait_for_texts("F runs again what was cancelled")
        assert "replay" not in read_screen(run.app)


async def test_shows_cancelled_and_skipped_cases(open_run):
    events = [
        *make_running_events(),
        make.case_judged("warp", "cancelled", "the run was cancelled"),
        make.case_judged("next", "skipped", "the run was cancelled before it"),
        make.job_end("cancelled"),
        make.run_end("cancelled", 130, errors=["interrupted by SIGINT"]),
    ]
    async with open_run(WIDE, events) as run:
        await run.wait_for_texts("- cancelled", "- skipped", "0/2 passed", "interrupted by SIGINT")
        await run.focus("cases")
        await run.press("down")
        await run.wait_for_texts("no rank has begun here", "Ranks of next")


@pytest.mark.long
async def test_run_of_a_killed_console_is_unfinished(open_run):
    async with open_run(WIDE, make_running_events()) as run:
        await run.wait_for_texts("… running", "Cancel")
        run.source.end()
        await run.wait_for_texts("! unfinished", "its console was killed")
        await run.wait_until(lambda: "Cancel" not in read_screen(run.app))
        await run.wait_until(
            lambda: "made-up ! unfinished 0/2" in read_screen(run.app).splitlines()[0]
        )
        await run.wait_until(lambda: all(run.row(rank)[3] == "unfinished" for rank in range(4)))
        await run.wait_until(
            lambda: "… " not in read_screen(run.app) and "waiting" not in read_screen(run.app)
        )
        await run.focus("cases")
        await run.press("enter")
        await run.wait_until(lambda: isinstance(run.app.screen, DetailsScreen))
        await run.wait_for_texts("status", "! unfinished")
        assert "running" not in read_screen(run.app)


@pytest.mark.parametrize("size", SIZES)
async def test_ended_run_shows_no_phase_of_its_killed_ranks(open_run, size):
    async with open_run(size, make_running_events()) as run:
        await run.wait_for_texts("timing 25 %")
        run.source.send(
            make.console_event("rank_lost", rank=0, host="node01", reason="killed"),
            make.case_judged("warp", "error", "rank 0 was killed"),
            make.job_end("rank 0 was killed"),
            make.case_judged("next", "skipped", "the run was ended"),
            make.run_end("error", 2),
        )
        await run.wait_for_texts("✗ error")
        await run.wait_until(lambda: "timing" not in read_screen(run.app))
        await run.wait_until(lambda: run.row(0)[3] == "died" and run.row(1)[3] == "unfinished")


async def test_end_of_a_run_ends_the_pause(open_run):
    async with open_run(WIDE, make_running_events()) as run:
        await run.wait_for_texts("6.10")
        await run.press("space")
        await run.wait_for_texts("HELD")
        run.source.send(
            *make_samples([[50.0] * 9] * 4),
            *make_checks(),
            *make_case_end(),
            make.run_end("failed", 1),
        )
        run.source.end()
        await run.wait_for_texts("✗ failed", "check sum failed on rank 2")
        await run.wait_until(
            lambda: "HELD" not in read_screen(run.app) and run.row(3)[7] == "50.0 ms"
        )


async def test_findings_of_the_previous_run_are_emptied(open_run, tmp_path):
    async with open_run((160, 48), make_ended_run()) as run:
        await run.wait_until(lambda: run.page.presenter.findings)
        folder = RunFolder(tmp_path / "home" / "runs" / "made-up-next")
        run.app.context.watch_run(folder, ScriptedSource(folder, []))
        await run.wait_until(lambda: run.page.shown_feed.folder is folder)
        assert run.page.query_one("#findings", FindingsPanel)._shown == []


async def test_headline_resets_for_another_run(open_run, tmp_path):
    async with open_run(WIDE, make_running_events()) as run:
        await run.wait_for_texts("4 ranks on 3 hosts")
        headline = run.page.query_one(Headline)
        headline._rate.value = 154.0
        headline._rate._events = 10**6
        events = make.make_started_run(describe_synthetic_case(), hosts=["node01"] * 4)
        folder = RunFolder(tmp_path / "home" / "runs" / "other")
        run.app.context.watch_run(folder, ScriptedSource(folder, events))
        await run.wait_for_texts("4 ranks on 1 host", " 0 events/s")


@pytest.mark.parametrize("size", SIZES)
async def test_swept_values_distinguish_cases(open_run, size):
    ids = [f"exchange[grid={grid},halo_len=3]" for grid in ("1x8", "2x4", "8x1")]
    async with open_run(
        size, make.make_started_run(*map(describe_synthetic_case, ids), hosts=HOSTS)
    ) as run:
        await run.wait_for_texts("1x8", "2x4", "8x1")


async def test_run_of_another_host_is_followed_but_not_cancellable(open_run, tmp_path):
    folder = make.record_run(
        tmp_path / "home", make_running_events(), console={"pid": 1, "host": "node09"}
    )
    async with open_run(WIDE, [], LiveSource(folder)) as run:
        await run.wait_for_texts("… running on node09", "as far as its log shows")
        await run.wait_until(lambda: "Cancel" not in read_screen(run.app))
        assert not run.app.context.feed.ended
        with folder.events.open("ab") as log:
            log.write(json.dumps({"job": 1, **make.rank_event("log")}).encode() + b"\n")
        await run.wait_until(lambda: run.app.context.feed.log_count == 1)
        os.utime(folder.events, (1000.0, 1000.0))
        await run.wait_for_texts("! unfinished", "nothing came from its console on node09")


async def test_killed_run_with_a_long_first_line_is_read_fully(tmp_path):
    first, *later_events = make_running_events()
    make_console = {"pid": 2**30, "host": socket.gethostname(), "started": 1.0}
    long_event = first | {"description": "x" * (3 * BATCH_BYTES)}
    folder = make.record_run(tmp_path / "home", [long_event, *later_events], console=make_console)
    events = [event async for batch in LiveSource(folder).batches() for event in batch]
    assert [event["event"] for event in events] == [
        event["event"] for event in [first, *later_events]
    ]


async def test_invalid_event_log_is_an_error_with_its_position(open_run):
    async with open_run(NARROW, [*make_running_events(), make.run_resumed("nowhere")]) as run:
        await run.wait_for_texts("✗ error", "event 19 is none of a run")


async def test_external_names_are_not_parsed_as_markup(open_run):
    hosts = ("[red]a[/]", "[/b]")
    case = describe_synthetic_case("case[width=1,mode=[bold]]", np=2)
    log = make.rank_event("log", 0, level="error", message="[/x] \x1b[31m")
    times = make_samples([[1.0], [2.0]], case["id"])
    async with open_run(WIDE, [*make.make_started_run(case, hosts=hosts), *times, log]) as run:
        await run.wait_for_texts("[red]a[/]", "[/b]", "Ranks of case[width=1,mode=[bold]]")
        await run.press("down", "l")
        await run.wait_until(lambda: run.title("logs") == "Logs of rank 1")
        await run.press("up")
        await run.wait_for_texts("[/x] ?[31m")


def make_replayed_events(pause=0.05):
    """Make a run in which each rank sends its times one by one."""
    events = make.make_started_run(describe_synthetic_case(), hosts=HOSTS)
    for step in range(400):
        events += make_samples([[2.0]] * 4, time=1001.0 + step * pause)
    return [*events, *make_case_end(status="passed", reason=None), make.job_end(), make.run_end()]


@pytest.mark.long
async def test_replay_pauses_and_changes_speed(open_run):
    source = ReplaySource(make_replayed_events(), 1.0)
    async with open_run(WIDE, [], source) as run:
        await run.wait_for_texts("▶ 1x at", "made-up  ▶ replay", "p Pause")
        assert "Cancel" not in read_screen(run.app)
        await run.press("p")
        await run.wait_until(lambda: "⏸ 1x" in read_screen(run.app) and not source.playing)
        await run.wait_for_texts("p Play")
        await run.pilot.pause(0.25)
        before = source.played_count
        await run.pilot.pause(0.25)
        assert source.played_count == before
        await run.press("minus")
        await run.wait_for_texts("⏸ 0.5x")
        await run.press(*["plus"] * 3)
        await run.wait_for_texts("⏸ 5x")
        assert source.speed == 5.0
        await run.press("p")
        await run.wait_until(lambda: source.played_count > before)
        await run.press(*["plus"] * len(REPLAY_SPEEDS))
        await run.wait_for_texts("■ played", "✓ passed")
        assert source.speed is None
        await run.wait_until(lambda: "p Pause" not in read_screen(run.app))


async def test_cancel_asks_and_reports_errors(open_run, monkeypatch):
    cancelled_folders = []
    monkeypatch.setattr(background, "cancel_run", cancelled_folders.append)
    async with open_run(MEDIUM_SIZE, make_running_events()) as run:
        await run.wait_for_texts("Cancel")
        await run.answer("x", answer="n")
        await run.answer("x", answer="escape")
        assert cancelled_folders == []
        await run.answer("x", answer="y")
        await run.wait_until(lambda: cancelled_folders == [run.app.context.feed.folder])
        await run.wait_for_texts("the ranks were asked to end")

        def refuse(folder):
            raise UsageError("the run goes on on node09; cancel it there")

        monkeypatch.setattr(background, "cancel_run", refuse)
        await run.answer("x", answer="y")
        await run.wait_for_texts("cancel it there")


async def test_run_can_be_cancelled_before_the_page_shows_it(open_run, tmp_path, monkeypatch):
    async with open_run(WIDE, make.make_complete_run()) as run:
        await run.wait_for_texts("1/1 passed")
        monkeypatch.setattr(run.page, "refresh_page", lambda: None)
        folder = RunFolder(tmp_path / "home" / "runs" / "just-started")
        run.app.context.watch_run(folder, ScriptedSource(folder, []))
        await run.press("x")
        await run.wait_for_texts("Cancel the run just-started?")
        await run.press("escape")
        run.page._close()
        await run.press("x")
        await run.wait_for_texts("Cancel the run just-started?")
        await run.press("escape")


@pytest.mark.parametrize(
    ("rank", "skew"), [(0, "1.00x, the faster of ranks 0-1 (the same work)"), (1, "1.50x the time")]
)
async def test_details_of_two_ranks_name_the_other_one(open_run, rank, skew):
    events = make.make_timed_run([[4.0] * 9, [6.0] * 9], HOSTS[:2])
    async with open_run(WIDE, events) as run:
        await run.wait_until(lambda: len(run.ranks) == 2)
        run.table("ranks").move_to(rank)
        await run.focus("ranks")
        await run.press("enter")
        await run.wait_for_texts(f"rank {rank} ", skew)


async def test_details_of_a_case_explain_its_signs(open_run):
    async with open_run((80, 24), [*make_running_events(), *make_noisy_end()]) as run:
        await run.wait_for_texts("✓ passed ▲ ≈")
        await run.focus("cases")
        await run.press("enter")
        await run.wait_until(lambda: isinstance(run.app.screen, DetailsScreen))
        assert "≈ other work used the cores" in dict(run.app.screen._details.lines)["signs"]


async def test_details_of_a_rank_explain_their_values(open_run):
    async with open_run(NARROW, make_running_events()) as run:
        await run.wait_until(lambda: run.ranks == [0, 1, 2, 3])
        await run.focus("ranks")
        await run.press("enter")
        await run.wait_until(lambda: isinstance(run.app.screen, DetailsScreen))
        parts = dict(run.app.screen._details.lines)["parts"]
        assert parts == "none: warp.drive measures only whole iterations"
        await run.press("f1")
        await run.wait_for_texts("skew: its own time")


async def test_rerun_starts_in_its_folder_without_a_question(open_run, monkeypatch, tmp_path):
    requested_folders = []
    starts = []

    def build_rerun_args(folder, repeat, *, with_faults):
        assert (repeat, with_faults) == (None, True)
        requested_folders.append(folder)
        return ("a.yaml",)

    monkeypatch.setattr(background, "build_rerun_args", build_rerun_args)
    monkeypatch.setattr(background, "find_start_folder", lambda folder: tmp_path)
    async with open_run(WIDE, make.make_complete_run()) as run:
        monkeypatch.setattr(
            run.app.context, "start_run", lambda *arguments, **_: starts.append(arguments)
        )
        await run.wait_for_texts("✓ passed", "Run again")
        await run.press("f5")
        await run.wait_until(lambda: starts == [(("a.yaml",), tmp_path)])
        assert requested_folders == [run.app.context.feed.folder]


async def test_run_without_its_suite_cannot_be_repeated(open_run, tmp_path):
    async with open_run(WIDE, make.make_complete_run()) as run:
        await run.wait_for_texts("✓ passed", "Run again")
        (tmp_path / "a.yaml").unlink()
        run.app.context.watch_run(
            run.app.context.feed.folder,
            ScriptedSource(run.app.context.feed.folder, make.make_complete_run()),
        )
        page = run.page
        feed = run.app.context.feed
        await run.wait_until(lambda: page.shown_feed is feed and not page.can_rerun)
        await run.wait_until(lambda: "Run again" not in read_screen(run.app))
        await run.press("f5")
        assert not isinstance(run.app.screen, Confirm)


async def test_readonly_neither_cancels_nor_starts(open_run):
    async with open_run(WIDE, make_running_events(), readonly=True) as run:
        await run.wait_for_texts("Hold")
        await run.press("x", "f5")
        await run.pilot.pause()
        assert not isinstance(run.app.screen, Confirm)
        assert "Cancel" not in read_screen(run.app)


@pytest.mark.parametrize("size", SIZES)
async def test_focused_pane_can_fill_the_page_and_shrink_again(open_run, size):
    async with open_run(size, make_running_events()) as run:
        await run.wait_until(lambda: run.table("ranks").size.height == 5)
        before = run.table("ranks").size
        await run.press("z")
        await run.wait_until(lambda: run.table("ranks").size.width > before.width or size == NARROW)
        await run.wait_until(lambda: run.table("ranks").size.height > size[1] - 12)
        await run.wait_for_texts("made-up", "z: all panes")
        await run.press("z")
        await run.wait_until(lambda: run.table("ranks").size == before)
        await run.wait_until(lambda: "z: all panes" not in read_screen(run.app))


@pytest.mark.long
async def test_panes_follow_terminal_size_and_another_run(open_run, tmp_path):
    async with open_run(WIDE, [*make_running_events(), *make_checks()]) as run:
        await run.wait_for_texts("Findings", "check sum failed")
        await run.pilot.resize_terminal(*NARROW)
        await run.wait_until(lambda: not run.page.query_one("#findings-pane").is_on_screen)
        await run.wait_for_texts("check sum failed", "node03")
        await run.pilot.resize_terminal(*WIDE)
        await run.wait_until(lambda: run.page.query_one("#findings-pane").is_on_screen)
        await run.wait_for_texts(SLOWEST)
        await run.press("slash", "n", "o")
        folder = RunFolder(tmp_path / "home" / "runs" / "other")
        run.app.context.watch_run(folder, ScriptedSource(folder, make.make_complete_run()))
        await run.wait_for_texts("✓ passed", "tile", "0,1")
        await run.wait_until(lambda: "warp" not in read_screen(run.app))
        assert not run.page.query_one("#filter").display


async def test_slow_rank_among_thousands_is_visible(open_run):
    np = 2000
    hosts = [f"node{rank // 64:02d}" for rank in range(np)]
    times = [[2.0 + (rank % 7) / 100] * 8 for rank in range(np)]
    times[1234] = [9.0] * 8
    async with open_run(
        WIDE,
        [*make.make_started_run(describe_synthetic_case(np=np), hosts=hosts), *make_samples(times)],
    ) as run:
        await run.wait_until(lambda: len(run.ranks) == np)
        # Sorting moves the cursor to the rank that is the slowest then.
        await run.wait_until(lambda: "9.00 ms" in run.row(1234))
        await run.press("o")
        await run.wait_until(lambda: run.ranks[0] == 1234)
        await run.wait_for_texts("x slow", "rank 1234, 4.")
        run.source.send(*make_case_end(status="passed", reason=None))
        run.source.send(make.rank_event("case_start", 0, case="warp"))
        await run.wait_for_texts("1/1 cases")


# Failed ranks and cases


def make_run_with_problems():
    """Return a run with failed ranks, a failed case without one, and a slow rank."""
    cases = [make.describe_case(name, 4) for name in ("good", "bad", "broken", "slow")]
    return [
        *make.make_started_run(*cases, hosts=HOSTS),
        *(make.rank_event("case_start", rank, case="bad") for rank in range(4)),
        *(
            make.rank_event("check", rank, case="bad", passed=False, max_abs_error=1.0)
            for rank in (0, 2)
        ),
        make.case_judged("good", "passed", None),
        make.case_judged("bad", "failed", "check halo failed"),
        make.case_judged("broken", "timeout", "it took too long"),
        make.case_judged("slow", "passed", None, stragglers=[STRAGGLER]),
        make.run_end("failed", 1),
    ]


def lists_next_problem(run):
    """Return whether the key bar shows the key for the next problem."""
    return "n Next problem" in read_screen(run.app).splitlines()[-1]


async def test_key_goes_through_the_problems_of_all_cases(open_run):
    async with open_run(WIDE, make_run_with_problems()) as run:
        await run.wait_until(lambda: lists_next_problem(run))
        # The timeout is worse than the failed check.
        await run.wait_until(lambda: run.table("cases").cursor_key == "broken")
        selection = run.page.presenter.selection
        problems = []
        for key in ("n", "n", "n", "n", "n"):
            await run.press(key)
            problems.append((selection.case.id, selection.rank))
        assert problems[:4] == [("slow", 3), ("bad", 0), ("bad", 2), ("broken", None)]
        assert problems[4] == problems[0]
        await run.focus("findings")
        await run.press("enter")
        assert (selection.case.id, selection.rank) == ("bad", 0)


async def test_run_without_samples_gives_their_room_to_findings(open_run):
    case = make.case_judged("warp", "error", "rank 0 ended with exit code 1")
    events = [
        *make.make_started_run(describe_synthetic_case(), hosts=HOSTS),
        case,
        make.run_end("error", 1),
    ]
    async with open_run(WIDE, events) as run:
        await run.wait_for_texts("■ ended 1 case", "✗ error warp: rank 0 ended")
        body = run.page.query_one(RunBody)
        await run.wait_until(lambda: not body.query_one("#left-histogram-pane").display)
        await run.wait_until(lambda: not body.query_one("#lower").display)
        assert "no samples" not in read_screen(run.app)
        findings = body.query_one("#findings-pane")
        await run.wait_until(lambda: findings.region.bottom == body.region.bottom)


async def test_ended_run_names_the_worst_problem_that_it_shows_first(open_run):
    async with open_run(WIDE, make_run_with_problems()) as run:
        await run.wait_for_texts("shown: broken, the worst problem")
        await run.press("n")
        await run.wait_until(lambda: "the worst problem" not in read_screen(run.app))


async def test_passed_run_begins_at_the_first_measured_case(open_run):
    cases = describe_synthetic_case("first"), describe_synthetic_case("last")
    events = [
        *make.make_started_run(*cases, hosts=HOSTS),
        *make_samples([[2.0] * 3] * 4, "first"),
        *make_case_end("first", status="passed", reason=None),
        *make_samples([[2.0] * 9] * 4, "last"),
        *make_case_end("last", status="passed", reason=None),
        make.run_end("passed", 0),
    ]
    async with open_run(WIDE, events) as run:
        await run.wait_until(lambda: run.table("cases").cursor_key == "first")
        assert "the worst problem" not in read_screen(run.app)


async def test_key_goes_to_the_slow_link_of_a_recorded_finding(open_run):
    finding = (
        "link from rank 1 on a to rank 2 on b takes 118x the time of the median link in net (9 us)"
    )
    cases = describe_synthetic_case("net", measures="link"), describe_synthetic_case("next")
    events = [
        *make.make_started_run(*cases, hosts=HOSTS),
        *make_case_end("net", status="passed", reason=None),
        *make_case_end("next"),
        make.run_end("failed", 1, findings=[finding]),
    ]
    async with open_run(WIDE, events) as run:
        await run.wait_until(lambda: run.table("cases").cursor_key == "next")
        await run.wait_for_texts("✓ passed ▲")
        await run.press("n")
        selection = run.page.presenter.selection
        await run.wait_until(lambda: (selection.case.id, selection.rank) == ("net", 1))


async def test_key_for_problems_is_shown_only_with_one(open_run):
    async with open_run(WIDE, make_running_events()) as run:
        await run.wait_for_texts("o Slowest")
        assert not lists_next_problem(run)
        await run.press("n")
        await run.wait_for_texts("no case has a problem so far")
        run.source.send(*make_checks())
        await run.wait_until(lambda: lists_next_problem(run))


async def test_replay_does_not_offer_to_run_failed_cases(open_run):
    events = [*make_running_events(), *make_case_end(), make.run_end("failed", 1)]
    async with open_run(WIDE, [], ReplaySource(events, None)) as run:
        await run.wait_for_texts("■ ended")
        # A demo is not among the runs of the Results page.
        assert "3 compares" not in read_screen(run.app)
        assert "F runs again" not in read_screen(run.app)
        assert "Run failed" not in read_screen(run.app)
        await run.press("F")
        await run.wait_until(
            lambda: any("a replay starts no run" in note.message for note in run.app._notifications)
        )
        assert run.app.context.feed.source is run.source


@pytest.mark.parametrize(("key", "is_watched"), [("enter", True), ("n", False)])
async def test_enter_watches_a_running_run(tmp_path, monkeypatch, key, is_watched):
    folder = RunFolder(tmp_path / "home" / "runs" / "made-up-run")
    monkeypatch.setattr(background, "find_running", lambda home: [folder])
    monkeypatch.setattr(RunFolder, "is_alive", lambda folder: True)
    app = make_console(tmp_path, page="run")
    watched = []
    monkeypatch.setattr(app.context, "watch_run", watched.append)
    async with app.run_test(size=MEDIUM_SIZE) as pilot:
        await wait_until(pilot, lambda: app.focused is not None and app.focused.id == "yes")
        await pilot.press(key)
        await wait_until(pilot, lambda: not isinstance(app.screen, Confirm))
        if is_watched:
            await wait_until(pilot, lambda: watched == [folder])
        else:
            text = "made-up-run is running: Enter watches it."
            await wait_until(pilot, lambda: text in read_screen(app))
            await wait_until(pilot, lambda: "… made-up-run running" in read_screen(app))
            assert watched == []
            await pilot.press("enter")
            await wait_until(pilot, lambda: watched == [folder])


async def test_failed_cases_can_rerun_after_the_end(open_run):
    starts = []
    async with open_run(WIDE, [*make_running_events(), *make_checks()]) as run:
        vars(run.app.context).update(start_run=lambda arguments, cwd, **_: starts.append(arguments))
        await run.wait_for_texts("… running")
        await run.press("F")
        await run.wait_until(
            lambda: any("still running" in note.message for note in run.app._notifications)
        )
        run.source.send(*make_case_end(), make.run_end("failed", 1))
        await run.wait_for_texts("✗ failed")
        await run.wait_until(lambda: run.app.context.feed.state.run.status == "failed")
        request = {"inject": ["slow=9@warp"]}
        run.app.context.feed.folder.write_json(
            "run.json", {"id": "made-up-run", "request": request}
        )
        await run.press("F")
        await run.wait_for_texts("Run the failed case warp again?", "slow=9 (case")
        assert [button.id for button in run.app.screen.query(Button)] == ["yes", "third", "no"]
        await run.press("enter")
        await run.wait_until(lambda: starts == [("--failed", "made-up-run")])


async def test_passed_run_has_no_cases_to_rerun(open_run):
    async with open_run(WIDE, make.make_complete_run()) as run:
        vars(run.app.context).update(start_run=lambda arguments, cwd, **_: pytest.fail("started"))
        await run.wait_for_texts("✓ passed")
        await run.press("F")
        await run.wait_until(
            lambda: any("no case of made-up" in note.message for note in run.app._notifications)
        )


@pytest.mark.parametrize(
    ("reasons", "status"),
    [
        ([None, f"{FAULT_FOUND}: slow"], "! fault found"),
        ([f"check sum failed; {FAULT_FOUND}: drop-halo"] * 2, "! fault found"),
        (["check sum failed", f"{FAULT_FOUND}: slow"], "✗ failed"),
    ],
)
async def test_status_of_a_run_that_only_found_its_faults(open_run, reasons, status):
    names = ("first", "second")
    events = [
        *make.make_started_run(*(make.describe_case(name, 2) for name in names), hosts=HOSTS[:2]),
        *(
            make.case_judged(name, "failed" if reason else "passed", reason)
            for name, reason in zip(names, reasons, strict=True)
        ),
        make.run_end("failed", 1),
    ]
    async with open_run(WIDE, events) as run:
        await run.wait_for_texts("■ ended")
        await run.wait_for_texts(f"made-up {status} {reasons.count(None)}/2")
        headline = run.page.query_one(Headline)
        await run.wait_until(lambda: status in str(headline.content))
        num_found = sum(FAULT_FOUND in (reason or "") for reason in reasons)
        fault_count = "1 fault" if num_found == 1 else f"{num_found} faults"
        assert f"{reasons.count(None)}/2 passed, {fault_count} found" in str(headline.content)


async def test_failure_is_shown_before_a_fault_that_was_found(open_run):
    cases = [make.describe_case(name, 2) for name in ("planted", "broken")]
    events = [
        *make.make_started_run(*cases, hosts=HOSTS[:2]),
        make.case_judged("planted", "failed", f"{FAULT_FOUND}: slow"),
        make.case_judged("broken", "failed", "check sum failed"),
        make.run_end("failed", 1),
    ]
    async with open_run(WIDE, events) as run:
        await run.wait_until(lambda: run.table("cases").cursor_key == "broken")


async def test_rerun_names_the_faults_that_it_plants_again(open_run):
    async with open_run(WIDE, make.make_complete_run()) as run:
        folder = run.app.context.feed.folder
        folder.write_json("run.json", {"id": folder.id, "request": {"inject": ["slow=3"]}})
        await run.wait_for_texts("✓ passed")
        await run.press("f5")
        await run.wait_for_texts("It has planted", "faults: slow=3.", "Without faults (w)")


@pytest.mark.parametrize(
    ("key", "args"),
    [
        ("y", ("--inject", "slow=3")),
        ("enter", ("--inject", "slow=3")),
        ("w", ()),
        ("n", None),
        ("escape", None),
    ],
)
async def test_runs_again_with_or_without_the_faults(open_run, key, args):
    starts = []
    async with open_run(WIDE, make.make_complete_run()) as run:
        vars(run.app.context).update(start_run=lambda arguments, cwd, **_: starts.append(arguments))
        folder = run.app.context.feed.folder
        argv = ["run", "a.yaml", "--inject", "slow=3"]
        request = {"inject": ["slow=3"]}
        folder.write_json("run.json", {"id": folder.id, "request": request, "argv": argv})
        await run.wait_for_texts("✓ passed")
        await run.press("f5")
        await run.wait_for_texts("Without faults (w)", "With faults (y)", "Cancel (n)")
        await run.wait_until(lambda: run.app.focused is not None and run.app.focused.id == "yes")
        assert [button.id for button in run.app.screen.query(Button)] == ["yes", "third", "no"]
        await run.press(key)
        expected = [] if args is None else [("a.yaml", *args)]
        await run.wait_until(lambda: not run.app.screen.is_modal)
        await run.wait_until(lambda: starts == expected)


@pytest.mark.parametrize(
    ("keys", "args"),
    [
        ("y", []),
        ("o", ["--without-cancelled"]),
        ("n", None),
        ("ow", ["--without-faults", "--without-cancelled"]),
        ("on", None),
    ],
)
async def test_failed_cases_run_again_with_or_without_the_cancelled(open_run, keys, args):
    starts = []
    cases = [make.describe_case(name, 2) for name in ("wrong", "long")]
    events = [
        *make.make_started_run(*cases, hosts=HOSTS[:2]),
        make.case_judged("wrong", "failed", "its values are wrong"),
        make.case_judged("long", "cancelled"),
        make.run_end("cancelled", 130),
    ]
    async with open_run(WIDE, events) as run:
        vars(run.app.context).update(start_run=lambda arguments, cwd, **_: starts.append(arguments))
        folder = run.app.context.feed.folder
        faults = ["slow=9"] if len(keys) > 1 else []
        folder.write_json("run.json", {"id": "made-up-run", "request": {"inject": faults}})
        await run.wait_until(lambda: run.app.context.feed.state.run.status == "cancelled")
        await run.press("F")
        await run.wait_for_texts("1 failed and 1 cancelled", "All (y)", "Only failed (o)")
        await run.press(keys[0])
        if len(keys) > 1:
            await run.wait_for_texts("Run the failed case", "Without faults (w)")
            await run.press(keys[1])
        expected = [] if args is None else [("--failed", folder.id, *args)]
        await run.wait_until(lambda: not run.app.screen.is_modal)
        await run.wait_until(lambda: starts == expected)


async def test_failed_cases_run_again_without_the_faults(open_run):
    starts = []
    events = [
        *make.make_started_run(make.describe_case("warp", 2), hosts=HOSTS[:2]),
        make.case_judged("warp", "failed", f"{FAULT_FOUND}: slow"),
        make.run_end("failed", 1),
    ]
    async with open_run(WIDE, events) as run:
        vars(run.app.context).update(start_run=lambda arguments, cwd, **_: starts.append(arguments))
        folder = run.app.context.feed.folder
        folder.write_json("run.json", {"id": "made-up-run", "request": {"inject": ["slow=9"]}})
        await run.wait_until(lambda: run.app.context.feed.state.run.status == "failed")
        await run.press("F")
        await run.wait_for_texts("Without faults (w)")
        await run.press("w")
        await run.wait_until(lambda: starts == [("--failed", "made-up-run", "--without-faults")])
