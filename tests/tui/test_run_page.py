"""The Run page over made-up runs: as they run, as they ended, and played again."""

import asyncio
import json
import os
import re
import socket
import time
from contextlib import asynccontextmanager

import pytest

from spbench.engine import background
from spbench.errors import UsageError
from spbench.record.findings import collect_findings
from spbench.record.messages.stragglers import describe_lags, find_lags
from spbench.record.runs.folder import RunFolder
from spbench.tui.dialogs import Confirm
from spbench.tui.feed import BATCH_BYTES, REPLAY_SPEEDS, LiveSource, ReplaySource
from spbench.tui.run.body import Body
from spbench.tui.run.details import DetailsScreen
from spbench.tui.run.headline import Headline
from spbench.tui.run.presenter import RunPresenter
from spbench.tui.widgets.histogram import HistogramChart
from spbench.tui.widgets.line_table import LineTable
from spbench.tui.widgets.rank_strip import RankStrip
from spbench.tui.widgets.timeline import TimeLine
from support import sample_events as make
from support.tui.driving import SIZES, console, in_one_write, shown, until

NARROW = (80, 24)
MIDDLE = (120, 40)
WIDE = (200, 60)
WARPS = make.describe_metric("warps", "1/s", "higher", "min")
SLOWEST = "time of the slowest rank, each iteration"
SMALLEST = "warps, smallest of all ranks, each iteration"
"""Titles of the charts of all ranks."""
HOSTS = ("node01", "node01", "node02", "node03")


class Script(LiveSource):
    """A run that goes on: its events come when a test says so."""

    def __init__(self, folder, events):
        super().__init__(folder)
        self._batches = asyncio.Queue()
        self.say(*events)

    def say(self, *events):
        self._batches.put_nowait(list(events))

    def end(self):
        self._batches.put_nowait(None)

    async def batches(self):
        while (events := await self._batches.get()) is not None:
            yield events


def made_up(case="warp", **changes):
    """A case of a benchmark that nobody has ever heard of."""
    np = changes.pop("np", len(HOSTS))
    return make.describe_case(
        case,
        np,
        benchmark="warp.drive",
        metrics=[make.TIME, WARPS],
        checks=["sum"],
        **{"places": [{"shard": rank} for rank in range(np)], **changes},
    )


def samples(times, case="warp", **fields):
    """A batch of times of each rank, in ms."""
    return [
        make.rank_event("samples", rank, case=case, values=values, **fields)
        for rank, values in enumerate(times)
    ]


def going_on():
    """Four ranks, of which the last is slow, in the first of two cases."""
    times = [[2.0, 2.1], [2.0, 2.2], [2.1, 2.0], [6.0, 6.2]]
    progress = [
        make.rank_event("progress", rank, case="warp", phase="timing", done=2, total=8)
        for rank in range(4)
    ]
    limit = {"metric": "time_ms.p50", "op": "max", "limit": 5.0}
    cases = made_up(expect=[limit]), made_up("next")
    return [*make.make_started_run(*cases, hosts=HOSTS), *progress, *samples(times)]


def sums(case="warp", failed=(2,)):
    """The check of each rank, in which some have failed."""
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


def warps(case="warp"):
    return [
        make.rank_event("samples", rank, case=case, metric="warps", values=[9.0 + rank] * 2)
        for rank in range(4)
    ]


def ended_case(case="warp", status="failed", reason="check sum failed", **fields):
    ends = [make.rank_event("case_end", rank, case=case) for rank in range(4)]
    return [*ends, make.case_judged(case, status, reason, **fields)]


class Watching:
    """The console that watches a run; its page and what is on it."""

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
        """The cells of a rank that the table shows."""
        cells = self.table("ranks")._order.rows.cells(rank)
        return [cell if isinstance(cell, str) else cell.text for cell in cells]

    def title(self, pane):
        return self.page.query_one(f"#{pane}-pane")._border_title.plain

    async def press(self, *keys):
        for key in keys:
            self.app.simulate_key(key)
            await self.pilot.pause()

    async def asked(self, key, answer):
        """Press a key that asks a question, and answer it."""
        await self.press(key)
        await self.until(lambda: isinstance(self.app.screen, Confirm))
        await self.press(answer)
        await self.until(lambda: not isinstance(self.app.screen, Confirm))

    async def until(self, condition):
        await until(self.pilot, condition)

    async def sees(self, *words):
        await self.until(lambda: all(word in shown(self.app) for word in words))

    async def copied(self):
        """What the shown screen copies."""
        self.app.copy_to_clipboard("")
        await self.press("y")
        await self.until(lambda: self.app.clipboard)
        return self.app.clipboard

    async def focus(self, name):
        self.page.query_one(f"#{name}").focus()
        await self.pilot.pause()


def startable(folder, where):
    """Give a run a suite, so that it can be make.started again."""
    (where / "a.yaml").touch()
    folder.path.mkdir(parents=True)
    folder.write_json("run.json", {"file": "a.yaml", "cwd": str(where)})


@pytest.fixture
def opened(tmp_path):
    """Open the console at a size, on a run of these events."""

    @asynccontextmanager
    async def open_it(size, events, source=None, **asked):
        app = console(tmp_path, page="run", **asked)
        async with app.run_test(size=size, notifications=True) as pilot:
            folder = RunFolder(tmp_path / "home" / "runs" / "made-up-run")
            startable(folder, tmp_path)
            source = source or Script(folder, events)
            app.context.watch_run(folder, source)
            await until(
                pilot, lambda: [line for line in app.screen.query(Headline) if line.display]
            )
            yield Watching(app, pilot, source)

    return open_it


@pytest.mark.parametrize("size", SIZES)
async def test_without_a_run_it_says_how_to_come_to_one(tmp_path, size):
    app = console(tmp_path, page="run")
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: "No run is watched" in shown(app))
        assert "compose a suite" in shown(app)
        for key in ("space", "slash", "x", "r", "n", "y", "l", "v", "p", "plus", "escape", "z"):
            await pilot.press(key)
        assert app.screen.NAME == "run"


@pytest.mark.parametrize("size", SIZES)
async def test_a_run_that_has_passed(opened, size):
    async with opened(size, make.make_complete_run()) as run:
        await run.sees("made-up", "✓ passed", "1/1 passed", "tile", "0,1", "2/2", "3.96")
        assert "openmpi, Open MPI 5.0" in shown(run.app)
        await run.sees("All alike.")


@pytest.mark.parametrize("size", [NARROW, WIDE])
async def test_a_benchmark_never_seen_before_shows_as_it_runs(opened, size):
    async with opened(size, [*going_on(), *sums(failed=())]) as run:
        await run.sees("… running", "· waiting", "25%", "node03", "slow", "4/4", "✓ passed")
        assert run.title("ranks") == "ranks of warp"
        assert run.table("cases").cursor_key == "warp"
        strip = run.page.query_one(RankStrip)
        await run.until(lambda: strip._ratios and strip._ratios[3] > 2.8)
        if size != NARROW:
            await run.sees("shard", SLOWEST)
            assert run.row(3)[2] == "3"
            await run.press("w")
        run.source.say(*warps())
        await run.press("m" if size != NARROW else "v")
        await run.until(lambda: size == NARROW or run.title("time-line") == f"{SMALLEST}, in 1/s")


async def test_a_slow_rank_is_named_with_how_long(opened):
    async with opened(WIDE, make.make_started_run(made_up(), hosts=HOSTS)) as run:
        for second in range(8):
            batch = samples([[2.0], [2.0], [2.0], [4.0]], time=1000.0 + second)
            run.source.say(*batch)
            await run.until(lambda: run.source._batches.empty())
            await run.pilot.pause(0.02)
        await run.sees("▲ slow rank 3 on node03 is 2.00x as slow as")
        await run.focus("words")
        await run.press("y")
        assert "rank 3 on node03 is 2.00x as slow as the median rank in warp" in run.app.clipboard


SLOW = {"rank": 3, "host": "node03", "ratio": 3.0, "seconds": 6.0, "since": 1e9, "cause": True}


def noisy_end(case="warp"):
    """A case in which the hypervisor took half of the time, and rank 3 was slow."""
    ends = [
        make.rank_event("case_end", rank, case=case, disturbed={"stolen": 0.5}) for rank in range(4)
    ]
    return [*ends, make.case_judged(case, "passed", stragglers=[SLOW])]


def pane_text(app):
    """The findings as they are copied: the terminal wraps them."""
    return "\n".join(word.line for word in app.screen.presenter.findings)


async def test_findings_are_said_once_and_alike_while_a_run_goes_on_and_at_its_end(opened):
    events = [*going_on(), *noisy_end()]
    cases = make.build_state(events).cases
    [slow] = describe_lags(find_lags(cases["warp"], cases["warp"].verdict.stragglers))
    async with opened(WIDE, events) as run:
        await run.sees("▲ slow rank 3 on node03 is 3.00x as slow", "≈ noisy the hypervisor of")
        while_running = pane_text(run.app)
        assert while_running.count(slow) == while_running.count("rank 3") == 1
        assert while_running.count("hypervisor") == while_running.count("≈ noisy") == 1
        run.source.say(*(make.rank_event("case_start", rank, case="next") for rank in range(4)))
        run.source.say(*noisy_end("next"))
        await run.until(lambda: "in both cases" in pane_text(run.app))
        assert pane_text(run.app).count("hypervisor") == pane_text(run.app).count("rank 3") == 1
        found = collect_findings(run.app.context.feed.state)
        run.source.say(make.run_end("passed", 0, findings=[*found, "case x is flaky"]))
        run.source.end()
        await run.until(lambda: run.app.context.feed.ended)
        await run.until(lambda: "• case x is flaky" in pane_text(run.app))
        told = pane_text(run.app)
        assert all(told.count(finding) == 1 for finding in found)
        assert told.count("hypervisor") == told.count("rank 3") == 1
        assert "▲ slow rank 3 on node03 is up to 3.00x as slow" in told


@pytest.mark.parametrize("size", [NARROW, WIDE])
async def test_ranks_that_share_cores_are_told_once_and_do_not_hide_the_phase(opened, size):
    events = [
        event | {"oversubscribed": True} if event["event"] == "job_start" else event
        for event in going_on()
        if event["event"] != "ready"
    ]
    async with opened(size, events) as run:
        await run.sees("timing 25 %", "≈ noisy 4 ranks share fewer cores")
        assert shown(run.app).count("share") == 1


async def test_cases_that_failed_for_the_same_reason_are_named_together(opened):
    failed = ended_case(reason="no tile"), ended_case("next", reason="no tile")
    async with opened(WIDE, [*going_on(), *failed[0], *failed[1]]) as run:
        await run.until(lambda: "✗ failed warp and next: no tile" in pane_text(run.app))
        assert pane_text(run.app).count("no tile") == 1


async def test_a_run_of_an_older_version_has_its_own_findings_once(opened):
    old = "Slow: rank 3 on node03, 3.0x the median of ranks with the same work in warp."
    events = [*going_on(), *ended_case(stragglers=[SLOW])]
    async with opened(WIDE, [*events, make.run_end("failed", 1, findings=[old])]) as run:
        run.source.end()
        await run.until(lambda: run.app.context.feed.ended)
        await run.until(lambda: f"• {old}" in pane_text(run.app))
        assert pane_text(run.app).count("rank 3") == 1


async def test_planted_faults_are_named_as_such(opened):
    cases = made_up(inject="slow=2"), made_up("next", inject="bad-sum")
    async with opened(WIDE, make.make_started_run(*cases, hosts=HOSTS)) as run:
        note = "• planted faults: slow=2 in warp; bad-sum in next"
        await run.until(lambda: note in pane_text(run.app))


def ended_run():
    """A passed case and one that failed, in a run that has ended."""
    passed = ended_case(status="passed", reason=None, stragglers=[SLOW])
    return [*going_on(), *passed, *ended_case("next"), make.run_end("failed", 1)]


async def test_the_end_of_a_run_shows_its_first_failed_case_and_the_findings(opened):
    async with opened((120, 40), going_on()) as run:
        await run.until(lambda: run.page.query_one(Body).panel == "charts")
        run.source.say(*ended_run()[len(going_on()) :])
        await run.until(lambda: run.page.query_one(Body).shows_findings)
        await run.until(lambda: run.table("cases").cursor_key == "next")
        assert run.title("ranks").startswith("ranks of next")
        # Once: what the reader chooses after it stays.
        await run.press("v")
        await run.until(lambda: not run.page.query_one(Body).shows_findings)


async def test_a_wide_and_short_screen_has_charts_next_to_its_findings(opened):
    async with opened((160, 30), ended_run()) as run:
        await run.sees("✗ failed next: check sum failed")
        await run.until(lambda: run.page.query_one(Body).panel == "charts")


async def test_the_end_of_a_run_leaves_what_the_reader_chose(opened):
    async with opened((120, 40), going_on()) as run:
        await run.press("v", "v")
        await run.focus("cases")
        await run.press("down", "up")
        chosen = run.table("cases").cursor_key
        panel = run.page.query_one(Body).panel
        run.source.say(*ended_run()[len(going_on()) :])
        await run.sees("✗ failed")
        assert run.page.query_one(Body).panel == panel
        assert run.table("cases").cursor_key == chosen


async def test_while_paused_the_ranks_stand_still_and_the_counters_go_on(opened):
    async with opened(WIDE, going_on()) as run:
        await run.sees("6.10", "0/2 cases")
        await run.press("space")
        await run.sees("PAUSED")
        drawn = run.page.query_one(HistogramChart)._counts
        later = make.rank_event("heartbeat", 0, time=1011.0)
        run.source.say(*samples([[50.0] * 9] * 4), *sums(), *ended_case(), later)
        await run.sees("1/2 cases", "✗ failed", "11 s")
        assert run.row(3)[7] == "6.10 ms"
        assert run.page.query_one(HistogramChart)._counts == drawn
        await run.press("down")
        await run.until(lambda: run.title("histogram") == "time of rank 1, each iteration")
        await run.press("escape", "space")
        await run.until(lambda: run.row(3)[7] == "50.0 ms")
        await run.until(lambda: sum(run.page.query_one(HistogramChart)._counts) == 11)
        await run.until(lambda: "PAUSED" not in shown(run.app))


async def test_pauses_and_sorts_ranks_with_own_times(opened):
    waits = make.describe_metric("wait_ms", "ms", part_of="time_ms", waits=True)
    case = {**made_up(), "metrics": [make.TIME, waits]}
    events = make.make_started_run(case, hosts=HOSTS)
    events += samples([[9.0], [9.0], [9.0], [9.0]])
    events += samples([[8.0], [5.0], [7.0], [6.0]], metric="wait_ms")
    async with opened(WIDE, events) as run:
        table = run.table("ranks")
        await run.until(lambda: "active" in [column.key for column in table.columns])
        await run.until(lambda: "4.00 ms" in run.row(1))
        table.sort_by("active")
        await run.until(lambda: run.ranks == [0, 2, 3, 1])
        await run.press("space")
        await run.sees("PAUSED")
        table.sort_by("active", reverse=True)
        assert run.ranks == [1, 3, 2, 0]


async def test_keys_that_come_right_behind_the_filters_reach_it(opened):
    async with opened(WIDE, going_on()) as run:
        await run.until(lambda: run.ranks == [0, 1, 2, 3])
        in_one_write(run.app, "/e01 no/")
        await run.until(lambda: run.page.query_one("#filter Input").value == "e01 no/")
        assert "PAUSED" not in shown(run.app)


async def test_the_filter_shows_ranks_that_match_and_escape_shows_all(opened):
    async with opened(WIDE, going_on()) as run:
        await run.until(lambda: run.ranks == [0, 1, 2, 3])
        await run.press("slash", *"e01")
        await run.until(lambda: run.ranks == [0, 1])
        await run.until(lambda: "2 of 4 match 'e01'" in run.title("ranks"))
        await run.press("enter", "down")
        await run.until(lambda: run.table("ranks").has_focus and run.table("ranks").cursor_key == 1)
        await run.press("slash", *[*["backspace"] * 3, *"slow"])
        await run.until(lambda: run.ranks == [3])
        await run.press("escape")
        await run.until(lambda: run.ranks == [0, 1, 2, 3])
        assert run.table("ranks").has_focus
        assert not run.page.query_one("#filter").display


@pytest.mark.long
async def test_the_key_for_the_slowest_looks_at_the_order_that_there_is(opened, tmp_path):
    async with opened(WIDE, going_on()) as run:
        await run.until(lambda: len(run.ranks) == 4)
        await run.press("o")
        await run.until(lambda: run.ranks[0] == 3)
        await run.press(*["s"] * 20)
        run.table("ranks").sort_by("host")
        await run.press("o")
        await run.until(lambda: run.ranks[0] == 3)
        folder = RunFolder(tmp_path / "home" / "runs" / "other")
        run.app.context.watch_run(folder, Script(folder, going_on()))
        await run.until(lambda: run.page.shown_feed is run.app.context.feed)
        await run.until(lambda: run.ranks == [3, 1, 2, 0] or run.ranks[:1] == [3])
        await run.press("o")
        await run.until(lambda: run.ranks == [0, 1, 2, 3])


async def test_ranks_are_sorted_by_slowness_and_by_key_and_a_row_is_copied(opened):
    async with opened(WIDE, [*going_on(), *sums(failed=())]) as run:
        await run.until(lambda: len(run.ranks) == 4)
        await run.press("n")
        await run.sees("no rank has failed")
        await run.press("end", "y")
        told = "rank 3 on node03, shard 3, timing 2/8, 2 iterations, last 6.20 ms, median 6.10 ms"
        assert run.app.clipboard.startswith(told)
        assert "skew 2.98x, checks passed" in run.app.clipboard
        await run.press("o")
        await run.until(lambda: run.ranks[0] == 3)
        await run.press("o")
        await run.until(lambda: run.ranks == [0, 1, 2, 3])
        await run.press("s", "s")
        await run.until(lambda: run.table("ranks")._order.sort == "host")
        await run.press("S")
        await run.until(lambda: run.ranks[0] == 3)
        for column in ("p95", "last", "iterations", "check"):
            run.table("ranks").sort_by(column, reverse=True)
            await run.until(lambda: sorted(run.ranks) == [0, 1, 2, 3])
        run.table("ranks").sort_by("p95", reverse=True)
        await run.until(lambda: run.ranks[0] == 3)


@pytest.mark.parametrize("size", SIZES)
async def test_a_failed_check_is_named_with_its_largest_error_and_where(opened, size):
    async with opened(size, [*going_on(), *sums()]) as run:
        await run.sees("check sum failed on rank 2 on node02", "largest error", "✗ failed")
        await run.sees("largest error", "0.25", "(tolerance", "0.001): row 7")
        await run.press("n")
        await run.until(lambda: run.table("ranks").cursor_key == 2)
        await run.press("n")
        await run.until(lambda: run.table("ranks").cursor_key == 2)
        strip = run.page.query_one(RankStrip)
        await run.until(lambda: strip._failed == {2} and strip._selected == 2)


@pytest.mark.parametrize("size", SIZES)
async def test_a_judged_case_shows_the_ranks_it_has_left_and_f_follows_again(opened, size):
    second = [make.rank_event("case_start", rank, case="next") for rank in range(4)]
    times = samples([[30.0], [31.0], [32.0], [33.0]], "next")
    async with opened(size, [*going_on(), *sums(), *ended_case(), *second, *times]) as run:
        await run.until(lambda: run.table("cases").cursor_key == "next")
        await run.sees("31.0")
        await run.focus("cases")
        await run.press("up")
        await run.until(lambda: run.title("ranks") == "ranks of warp")
        await run.sees("done", "2.05", "✗ failed")
        assert "31.0 " not in shown(run.app).replace("…31.0", "")
        assert run.table("cases").cursor_key == "warp"
        await run.press("f")
        await run.until(lambda: run.title("ranks") == "ranks of next")
        assert run.table("cases").cursor_key == "next"


async def test_a_running_case_has_the_time_that_it_will_have_when_it_is_judged(opened):
    limit = make.rank_event(
        "metric", 0, case="warp", name="time_ms", value=1.25, measured_by="one alone"
    )
    async with opened(WIDE, going_on()) as run:
        await run.sees("…6.10 ms")
        await run.until(lambda: run.table("cases").cursor_key == "warp")
        run.source.say(limit, *sums(failed=()), *ended_case(status="passed", reason=None))
        await run.sees("6.10 ms", "1.25 ms", "20 %", "✓ passed", "4/4")
        run.source.say(*(make.rank_event("case_start", rank, case="next") for rank in range(4)))
        await run.until(lambda: run.title("ranks") == "ranks of next")
        await run.until(lambda: run.table("cases").cursor_key == "next")
        await run.until(lambda: run.page.query_one(HistogramChart)._counts == ())


async def test_all_is_shown_at_last_where_ticks_come_far_apart(opened, monkeypatch):
    async with opened(WIDE, going_on()) as run:
        await run.sees("6.10", "0/2 cases", "… running")
        presenter = run.page.presenter
        seen = run.page.presenter._version
        histogram = run.page.query_one(HistogramChart)
        drawn = histogram._counts
        clock = []
        monkeypatch.setattr("spbench.tui.run.presenter.monotonic", lambda: clock[-1])
        presenter.tick = lambda: None

        def tick(now):
            clock.append(now)
            RunPresenter.tick(presenter)

        tick(1e9)
        run.source.say(*samples([[50.0] * 9] * 4), *sums(), *ended_case())
        await run.until(lambda: presenter.selection.feed.version > seen)
        tick(1e9 + 0.01)
        tick(1e9 + 60.0)
        assert histogram._counts != drawn
        await run.sees("✗ failed")


async def test_a_reference_that_was_beaten_is_explained_once_below_the_cases(opened):
    reference = make.rank_event(
        "metric", 0, case="warp", name="time_ms", value=9.15, measured_by="one alone"
    )
    end = ended_case(status="passed", reason=None)
    async with opened(WIDE, [*going_on(), reference, *sums(failed=()), *end]) as run:
        await run.sees("9.15 ms", "150 %", "above 100 %: faster than its reference")
        assert shown(run.app).count("above 100 %") == 1


@pytest.mark.long
async def test_charts_are_of_the_chosen_rank_and_metric_or_of_all(opened):
    async with opened(WIDE, [*going_on(), *warps()]) as run:
        await run.until(lambda: run.title("histogram") == SLOWEST)
        line = run.page.query_one(TimeLine)
        await run.until(lambda: line._values == [6.0, 6.2])
        await run.press("down", "down")
        await run.until(lambda: run.title("histogram") == "time of rank 2, each iteration")
        await run.until(lambda: line._values == [2.1, 2.0])
        await run.press("m")
        await run.until(lambda: run.title("time-line") == "warps of rank 2, each iteration, in 1/s")
        await run.until(
            lambda: (line._values, line._unit, line._better) == ([11, 11], "1/s", "higher")
        )
        await run.press("escape")
        await run.until(lambda: run.title("histogram") == SMALLEST)
        await run.until(lambda: line._values == [9.0, 9.0])
        await run.press("m")
        await run.until(lambda: run.title("histogram") == SLOWEST)
        await run.sees("limit 5.00 ms")
        await run.focus("strip")
        await run.press("end")
        await run.until(lambda: run.table("ranks").cursor_key == 3)
        await run.until(lambda: run.title("histogram") == "time of rank 3, each iteration")


@pytest.mark.parametrize("size", SIZES)
async def test_places_have_columns_of_their_own_and_are_sorted_by_number(opened, size):
    cases = made_up(places=[{"lane": f"0,{10 - rank}", "depth": 0} for rank in range(4)])
    other = made_up("next", places=[])
    async with opened(size, make.make_started_run(cases, other, hosts=HOSTS)) as run:
        await run.until(lambda: run.row(0)[2:4] == ["0,10", "0"])
        table = run.table("ranks")
        await run.sees("lane", "0,10")
        assert ("depth" in shown(run.app)) == (size != NARROW)
        table.sort_by("coordinate.lane")
        await run.until(lambda: run.ranks == [3, 2, 1, 0])
        run.source.say(*(make.rank_event("case_start", rank, case="next") for rank in range(4)))
        await run.until(lambda: run.ranks == [0, 1, 2, 3])
        assert table.sorted_by == (None, False)
        assert "lane" not in shown(run.app)
        assert len(run.row(0)) == len(table.columns)


@pytest.mark.parametrize("size", SIZES)
async def test_details_show_where_a_step_went(opened, size):
    async with opened(size, make.make_phases_run()) as run:
        await run.until(lambda: run.row(2)[3:5] == ["2+0", "2,0"])
        await run.focus("cases")
        await run.press("enter")
        await run.sees("spin 60 %, send 10 %, idle 20 %, packing and sending 10 %", "all ranks  ")
        await run.sees("rank 2 stage 2+0 tile 2,0", "s spin  e send  i idle  · packing and sending")
        await run.sees("ssss 60 %")
        await run.press("y")
        assert "mean step: spin 60 %" in run.app.clipboard
        await run.press("escape")
        await run.focus("ranks")
        await run.press("end", "enter")
        await run.sees("replica 0, stage 2, tile 2,0", "stage 0", "idle 30 %", "ss 60 %")
        assert "rank 1 " not in shown(run.app.screen)


def said(count):
    return [
        make.rank_event(
            "log", number % 4, level="info", message=f"said {number}", time=1000.0 + number
        )
        for number in range(count)
    ]


@pytest.mark.parametrize("size", SIZES)
async def test_logs_of_a_rank_or_of_all_take_the_place_of_the_charts(opened, size):
    async with opened(size, [*going_on(), *said(101)]) as run:
        await run.until(lambda: len(run.ranks) == 4)
        await run.press("l")
        await run.sees("said 99", "said 100")
        await run.press("down")
        await run.until(lambda: "said 97" in shown(run.app) and "said 100" not in shown(run.app))
        assert "said 98" not in shown(run.app)
        await run.press("escape")
        await run.sees("said 100")
        await run.press("l")
        await run.until(lambda: "said 100" not in shown(run.app))


async def test_logs_scroll_and_stay_where_they_are_read(opened):
    async with opened(WIDE, [*going_on(), *said(101)]) as run:
        await run.until(lambda: len(run.ranks) == 4)
        await run.press("l")
        await run.sees("said 100")
        await run.focus("logs")
        await run.press("up", "up")
        await run.until(lambda: "said 99" not in shown(run.app) and "said 98" in shown(run.app))
        run.source.say(make.rank_event("log", 0, level="error", message="said 101\nand more"))
        await run.until(lambda: run.app.context.feed.log_count == 102)
        await run.press("down")
        await run.until(lambda: "said 99" in shown(run.app) and "said 100" not in shown(run.app))
        await run.press("pageup")
        await run.until(lambda: "said 99" not in shown(run.app))
        await run.press("end")
        await run.sees("said 101", "and more")
        await run.press("pageup", "pagedown")
        await run.sees("said 101")


async def test_wide_letters_of_logs_are_all_shown(opened):
    told = make.rank_event("log", 0, level="info", message="漢字" * 200 + "end")
    async with opened(MIDDLE, [*going_on(), told]) as run:
        await run.until(lambda: len(run.ranks) == 4)
        await run.press("l")
        await run.sees("end")
        assert shown(run.app).count("漢") == 200


@pytest.mark.long
async def test_at_a_small_size_a_key_goes_through_panels_and_hidden_ones_are_not_drawn(
    opened, monkeypatch
):
    drawn = []
    panels = []
    for widget in (HistogramChart, TimeLine):
        monkeypatch.setattr(widget, "update", lambda self, *_: drawn.append(type(self)))
    async with opened(NARROW, [*going_on(), *sums(), *said(3)]) as run:
        await run.sees("check sum failed", "timing 2/8")
        await run.pilot.pause(0.6)
        assert drawn == []
        for _ in range(5):
            await run.press("v")
            panes = run.page.query("#lower > *")
            panels.append([pane.id for pane in panes if pane.is_on_screen])
            if panels[-1] == ["histogram-pane"]:
                await run.until(lambda: HistogramChart in drawn)
                assert TimeLine not in drawn
    shown_alone = ("histogram-pane", "time-line-pane", "host-loads-pane", "logs-pane")
    assert panels == [*([pane] for pane in shown_alone), []]


async def test_a_case_that_ended_in_an_error_shows_its_traceback(opened):
    traceback = "Traceback (most recent call last):\n" + "\n".join(
        f'  File "warp.py", line {line}, in drive [red]' for line in range(80)
    )
    error = {"status": "error", "error": {"traceback": traceback}}
    events = [
        *going_on(),
        *sums(failed=[1]),
        make.rank_event("case_end", 1, case="warp", **error),
        make.case_judged(
            "warp", "error", "rank 1 on node01: ValueError: no warp", traceback=traceback
        ),
    ]
    async with opened(WIDE, events) as run:
        await run.sees("✗ error", "rank 1 on node01: ValueError: no warp")
        await run.focus("cases")
        await run.press("enter")
        await run.until(lambda: isinstance(run.app.screen, DetailsScreen))
        await run.sees("warp.drive, 4 ranks", "Traceback (most recent", "line 1, in drive [red]")
        assert "line 79," not in shown(run.app)
        await run.press("end")
        await run.sees("line 79,")
        await run.press("y")
        assert "line 40, in drive" in run.app.clipboard
        await run.press("escape")
        await run.until(lambda: not isinstance(run.app.screen, DetailsScreen))
        await run.press("n")
        await run.until(lambda: run.table("ranks").cursor_key == 1)
        await run.press("enter")
        await run.until(lambda: isinstance(run.app.screen, DetailsScreen))
        await run.sees("node01, local rank 1", "0-1", "self,sm")
        await run.sees("sum, repeat 0: ✗ failed, largest error 0.250 (tolerance 0.00100): row 7")


@pytest.mark.long
async def test_several_jobs_each_with_its_own_ranks(opened):
    small = made_up("small", np=2)
    events = [
        make.run_start(made_up(), small),
        make.job_start("warp", np=4),
        *(make.rank_event("ready", rank, host=host) for rank, host in enumerate(HOSTS)),
        *(make.rank_event("case_start", rank, case="warp") for rank in range(4)),
        *samples([[2.0]] * 4),
        *ended_case(status="passed", reason=None),
        make.job_end(),
    ]
    async with opened(WIDE, events) as run:
        await run.until(lambda: run.ranks == [0, 1, 2, 3])
        crowded = make.job_start("small", np=2) | {"job": 2, "oversubscribed": True}
        run.source.say(crowded)
        await run.sees("job 2: 2 ranks", "2 ranks share fewer cores")
        run.source.say(*(make.rank_event("ready", rank, host="node09") for rank in range(2)))
        run.source.say(*(make.rank_event("case_start", rank, case="small") for rank in range(2)))
        await run.until(lambda: run.ranks == [0, 1])
        await run.sees("node09", "on 1 host")
        await run.until(lambda: run.table("cases").cursor_key == "small")
        await run.focus("cases")
        await run.press("home")
        await run.until(lambda: run.ranks == [0, 1, 2, 3])
        await run.sees("node03")


async def test_a_case_chosen_as_the_page_is_brought_up_to_date_stays_chosen(opened):
    async with opened(WIDE, going_on()) as run:
        await run.until(lambda: run.table("cases").cursor_key == "warp")
        await run.focus("cases")
        run.table("cases").action_last()
        run.page.presenter.update_all()  # before the page hears of the choice
        await run.sees("ranks of next")
        assert run.table("cases").cursor_key == "next"


async def test_the_run_before_tells_no_verdict_while_another_starts(opened):
    async with opened(WIDE, make.make_complete_run()) as run:
        await run.sees("made-up", "1/1 passed")
        run.app.context.starting_since = time.monotonic() - 7
        await run.sees("… starting a run", "it reads its suite and asks hosts what they have, ")
        [waited] = re.findall(r"what they have, (\d+) s", shown(run.app))
        assert int(waited) >= 7
        assert "1/1 passed" not in shown(run.app)
        run.app.context.starting_since = None
        await run.sees("1/1 passed")


@pytest.mark.parametrize("size", SIZES)
async def test_a_rank_that_raised_tells_its_error_and_the_jobs_output(opened, size, tmp_path):
    error = {"message": "ValueError: no such tile", "traceback": "Traceback\n  in halo.py\n"}
    events = [
        *going_on(),
        make.rank_event("case_end", 2, case="warp", status="error", error=error),
        make.case_judged(
            "warp", "error", "rank 2 on node02: no such tile", traceback="Trace\n  in halo.py"
        ),
        make.job_end("error"),
        make.run_end("error", 4),
    ]
    async with opened(size, events) as run:
        folder = RunFolder(tmp_path / "home" / "runs" / "made-up-run")
        (folder.job(1) / "stderr.log").write_text("MPI_ABORT was invoked\n")
        await run.sees("✗ error")
        await run.press("l")
        await run.sees("ValueError: no such tile", "in halo.py")
        for name, chosen in (("cases", "warp"), ("ranks", 2)):
            await run.focus(name)
            run.page.presenter.move_cursor(run.table(name), chosen)
            await run.press("enter")
            await run.until(lambda: isinstance(run.app.screen, DetailsScreen))
            copied = await run.copied()
            for words in ("no such tile", "in halo.py", "stderr.log)\nMPI_ABORT was invoked"):
                assert words in copied, name
            await run.press("escape")


async def test_cancelled_and_skipped_cases(opened):
    events = [
        *going_on(),
        make.case_judged("warp", "cancelled", "the run was cancelled"),
        make.case_judged("next", "skipped", "the run was cancelled before it"),
        make.job_end("cancelled"),
        make.run_end("cancelled", 130, errors=["interrupted by SIGINT"]),
    ]
    async with opened(WIDE, events) as run:
        await run.sees("- cancelled", "- skipped", "0/2 passed", "interrupted by SIGINT")
        await run.focus("cases")
        await run.press("down")
        await run.sees("no rank has begun here", "ranks of next")


@pytest.mark.long
async def test_a_run_whose_console_was_killed_is_unfinished(opened):
    async with opened(WIDE, going_on()) as run:
        await run.sees("… running", "Cancel")
        run.source.end()
        await run.sees("! unfinished", "its console was killed")
        await run.until(lambda: "Cancel" not in shown(run.app))
        await run.until(lambda: "made-up ! unfinished 0/2" in shown(run.app).splitlines()[0])
        await run.until(lambda: all(run.row(rank)[3] == "unfinished" for rank in range(4)))
        await run.until(lambda: "…" not in shown(run.app) and "waiting" not in shown(run.app))
        await run.focus("cases")
        await run.press("enter")
        await run.until(lambda: isinstance(run.app.screen, DetailsScreen))
        await run.sees("status", "! unfinished")
        assert "running" not in shown(run.app)


async def test_what_was_held_goes_on_when_the_run_ends(opened):
    async with opened(WIDE, going_on()) as run:
        await run.sees("6.10")
        await run.press("space")
        await run.sees("PAUSED")
        run.source.say(
            *samples([[50.0] * 9] * 4), *sums(), *ended_case(), make.run_end("failed", 1)
        )
        run.source.end()
        await run.sees("✗ failed", "check sum failed on rank 2")
        await run.until(lambda: "PAUSED" not in shown(run.app) and run.row(3)[7] == "50.0 ms")


async def test_the_headline_forgets_the_run_before(opened, tmp_path):
    async with opened(WIDE, going_on()) as run:
        await run.sees("4 ranks on 3 hosts")
        headline = run.page.query_one(Headline)
        headline._rate.value = 154.0
        headline._rate._events = 10**6
        events = make.make_started_run(made_up(), hosts=["node01"] * 4)
        folder = RunFolder(tmp_path / "home" / "runs" / "other")
        run.app.context.watch_run(folder, Script(folder, events))
        await run.sees("4 ranks on 1 host", " 0 events/s")


@pytest.mark.parametrize("size", SIZES)
async def test_cases_that_differ_in_what_is_swept_can_be_told_apart(opened, size):
    ids = [f"exchange[grid={grid},halo_len=3]" for grid in ("1x8", "2x4", "8x1")]
    async with opened(size, make.make_started_run(*map(made_up, ids), hosts=HOSTS)) as run:
        await run.sees("1x8", "2x4", "8x1")


async def test_a_run_of_another_host_is_followed_and_not_cancelled_from_here(opened, tmp_path):
    folder = make.record_run(tmp_path / "home", going_on(), console={"pid": 1, "host": "node09"})
    async with opened(WIDE, [], LiveSource(folder)) as run:
        await run.sees("… running on node09", "as far as its log shows")
        await run.until(lambda: "Cancel" not in shown(run.app))
        assert not run.app.context.feed.ended
        with folder.events.open("ab") as log:
            log.write(json.dumps({"job": 1, **make.rank_event("log")}).encode() + b"\n")
        await run.until(lambda: run.app.context.feed.log_count == 1)
        os.utime(folder.events, (1000.0, 1000.0))
        await run.sees("! unfinished", "nothing came from its console on node09")


async def test_a_killed_run_whose_first_line_is_longer_than_a_look_is_read_to_its_end(tmp_path):
    first, *others = going_on()
    console = {"pid": 2**30, "host": socket.gethostname(), "started": 1.0}
    long = first | {"description": "x" * (3 * BATCH_BYTES)}
    folder = make.record_run(tmp_path / "home", [long, *others], console=console)
    read = [event async for batch in LiveSource(folder).batches() for event in batch]
    assert [event["event"] for event in read] == [event["event"] for event in [first, *others]]


async def test_a_log_that_is_none_of_a_run_says_where(opened):
    async with opened(NARROW, [*going_on(), make.run_resumed("nowhere")]) as run:
        await run.sees("✗ error", "event 19 is none of a run")


async def test_names_from_outside_are_not_read_as_markup(opened):
    hosts = ("[red]a[/]", "[/b]")
    case = made_up("case[width=1,mode=[bold]]", np=2)
    log = make.rank_event("log", 0, level="error", message="[/x] \x1b[31m")
    times = samples([[1.0], [2.0]], case["id"])
    async with opened(WIDE, [*make.make_started_run(case, hosts=hosts), *times, log]) as run:
        await run.sees("[red]a[/]", "[/b]", "ranks of case[width=1,mode=[bold]]")
        await run.press("down", "l")
        await run.until(lambda: run.title("logs") == "logs of rank 1")
        await run.press("up")
        await run.sees("[/x] ?[31m")


def replayed(pause=0.05):
    """A run in which each rank gives its times one by one."""
    events = make.make_started_run(made_up(), hosts=HOSTS)
    for step in range(400):
        events += samples([[2.0]] * 4, time=1001.0 + step * pause)
    return [*events, *ended_case(status="passed", reason=None), make.job_end(), make.run_end()]


@pytest.mark.long
async def test_a_replay_is_stopped_and_played_faster_and_slower(opened):
    source = ReplaySource(replayed(), 1.0)
    async with opened(WIDE, [], source) as run:
        await run.sees("▶ 1x at")
        assert "Cancel" not in shown(run.app)
        await run.press("p")
        await run.until(lambda: "⏸ 1x" in shown(run.app) and not source.playing)
        await run.pilot.pause(0.25)
        before = source.played
        await run.pilot.pause(0.25)
        assert source.played == before
        await run.press("minus")
        await run.sees("⏸ 0.5x")
        await run.press(*["plus"] * 3)
        await run.sees("⏸ 5x")
        assert source.speed == 5.0
        await run.press("p")
        await run.until(lambda: source.played > before)
        await run.press(*["plus"] * len(REPLAY_SPEEDS))
        await run.sees("■ played", "✓ passed")
        assert source.speed is None


async def test_cancel_asks_and_lets_the_run_end_or_tells_why_not(opened, monkeypatch):
    cancelled = []
    monkeypatch.setattr(background, "cancel_run", cancelled.append)
    async with opened(MIDDLE, going_on()) as run:
        await run.sees("Cancel", "Rerun")
        bindings = [active.binding for active in run.page.active_bindings.values()]
        ours = [binding.id for binding in bindings if (binding.id or "").startswith("run.")]
        in_footer = [binding.id for binding in bindings if binding.show and binding.id in ours]
        assert len(in_footer) == 5
        await run.asked("x", answer="n")
        await run.asked("x", answer="escape")
        assert cancelled == []
        await run.asked("x", answer="y")
        await run.until(lambda: cancelled == [run.app.context.feed.folder])
        await run.sees("being cancelled")

        def refuse(folder):
            raise UsageError("the run goes on on node09; cancel it there")

        monkeypatch.setattr(background, "cancel_run", refuse)
        await run.asked("x", answer="y")
        await run.sees("cancel it there")


async def test_again_asks_and_starts_the_same_run_where_it_was_started(
    opened, monkeypatch, tmp_path
):
    asked = []
    begun = []

    def again(folder):
        asked.append(folder)
        return ("a.yaml",)

    monkeypatch.setattr(background, "build_rerun_args", again)
    monkeypatch.setattr(background, "find_start_folder", lambda folder: tmp_path)
    async with opened(WIDE, make.make_complete_run()) as run:
        monkeypatch.setattr(run.app.context, "start_run", lambda *words: begun.append(words))
        await run.sees("✓ passed")
        await run.asked("r", answer="n")
        assert asked == []
        await run.asked("r", answer="y")
        await run.until(lambda: begun == [(("a.yaml",), tmp_path)])
        assert asked == [run.app.context.feed.folder]


async def test_a_run_whose_suite_is_not_there_is_not_offered_again(opened, tmp_path):
    async with opened(WIDE, make.make_complete_run()) as run:
        await run.sees("✓ passed", "Rerun")
        (tmp_path / "a.yaml").unlink()
        run.app.context.watch_run(
            run.app.context.feed.folder,
            Script(run.app.context.feed.folder, make.make_complete_run()),
        )
        page = run.page
        feed = run.app.context.feed
        await run.until(lambda: page.shown_feed is feed and not page.can_rerun)
        await run.until(lambda: "Rerun" not in shown(run.app))
        await run.press("r")
        assert not isinstance(run.app.screen, Confirm)


async def test_readonly_neither_cancels_nor_starts(opened):
    async with opened(WIDE, going_on(), readonly=True) as run:
        await run.sees("Pause")
        await run.press("x", "r")
        await run.pilot.pause()
        assert not isinstance(run.app.screen, Confirm)
        assert "Cancel" not in shown(run.app)


@pytest.mark.parametrize("size", SIZES)
async def test_the_focused_pane_fills_the_page_and_gives_room_again(opened, size):
    async with opened(size, going_on()) as run:
        await run.until(lambda: run.table("ranks").size.height == 5)
        before = run.table("ranks").size
        await run.press("z")
        await run.until(lambda: run.table("ranks").size.width > before.width or size == NARROW)
        await run.until(lambda: run.table("ranks").size.height > size[1] - 8)
        assert "made-up" in shown(run.app)
        await run.press("z")
        await run.until(lambda: run.table("ranks").size == before)


@pytest.mark.long
async def test_the_panes_follow_the_size_of_the_terminal_and_then_another_run(opened, tmp_path):
    async with opened(WIDE, [*going_on(), *sums()]) as run:
        await run.sees("findings", "check sum failed")
        await run.pilot.resize_terminal(*NARROW)
        await run.until(lambda: not run.page.query_one("#words-pane").is_on_screen)
        await run.sees("check sum failed", "node03")
        await run.pilot.resize_terminal(*WIDE)
        await run.until(lambda: run.page.query_one("#words-pane").is_on_screen)
        await run.sees(SLOWEST)
        await run.press("slash", "n", "o")
        folder = RunFolder(tmp_path / "home" / "runs" / "other")
        run.app.context.watch_run(folder, Script(folder, make.make_complete_run()))
        await run.sees("✓ passed", "tile", "0,1")
        assert "warp" not in shown(run.app)
        assert not run.page.query_one("#filter").display


async def test_thousands_of_ranks_all_have_their_rows_and_the_slow_one_stands_out(opened):
    np = 2000
    hosts = [f"node{rank // 64:02d}" for rank in range(np)]
    times = [[2.0 + (rank % 7) / 100, 2.0] for rank in range(np)]
    times[1234] = [9.0, 9.0]
    async with opened(
        WIDE, [*make.make_started_run(made_up(np=np), hosts=hosts), *samples(times)]
    ) as run:
        await run.until(lambda: len(run.ranks) == np)
        await run.press("o")
        await run.until(lambda: run.ranks[0] == 1234)
        await run.sees("x slow", "worst: rank 1234, 4.")
        run.source.say(*ended_case(status="passed", reason=None))
        run.source.say(make.rank_event("case_start", 0, case="warp"))
        await run.sees("1/1 cases")


# What failed


@pytest.mark.parametrize(
    ("events", "words"),
    [
        (make.make_complete_run(), "a passed on every rank"),
        (going_on(), "no rank has failed so far in warp"),
        ([make.run_start(made_up())], "the case has not begun"),
    ],
    ids=["passed", "running", "waiting"],
)
async def test_it_says_why_there_is_no_failed_rank_to_go_to(opened, events, words):
    async with opened(WIDE, events) as run:
        await run.sees("made-up")
        await run.press("n")
        await run.until(lambda: any(words in note.message for note in run.app._notifications))


async def test_what_failed_is_run_again_once_the_run_has_ended(opened):
    started = []
    async with opened(WIDE, [*going_on(), *sums()]) as run:
        vars(run.app.context).update(start_run=lambda words, where: started.append(words))
        await run.sees("… running")
        await run.press("F")
        await run.until(
            lambda: any("still running" in note.message for note in run.app._notifications)
        )
        run.source.say(*ended_case(), make.run_end("failed", 1))
        await run.sees("✗ failed")
        await run.until(lambda: run.app.context.feed.state.run.verdict == "failed")
        await run.asked("F", "y")
        await run.until(lambda: started == [("--failed", "made-up-run")])


async def test_nothing_is_run_again_where_nothing_failed(opened):
    async with opened(WIDE, make.make_complete_run()) as run:
        vars(run.app.context).update(start_run=lambda words, where: pytest.fail("started"))
        await run.sees("✓ passed")
        await run.press("F")
        await run.until(
            lambda: any("no case of this run" in note.message for note in run.app._notifications)
        )
