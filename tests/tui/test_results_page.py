"""The Results page, driven by keys and mouse, over runs of a synthetic benchmark."""

import json
import math
import os
import re
import socket
import threading
from dataclasses import replace

import pytest

from spbench.engine import background
from spbench.record.findings import collect_findings
from spbench.record.planted_faults import FaultOutcome
from spbench.record.runs.folder import RunFolder
from spbench.record.runs.history import list_summaries, update_known_runs
from spbench.record.runs.playback import find_demo_run
from spbench.report.export import export_text
from spbench.report.recorded import load_run
from spbench.tui.advice import name_keys
from spbench.tui.dialogs import Confirm
from spbench.tui.results import library as library_module
from spbench.tui.results.bindings import DEMO_STAYS
from spbench.tui.results.case_screen import CaseScreen
from spbench.tui.results.export import ExportDialog
from spbench.tui.results.library import RunLibrary
from spbench.tui.results.plot_series import explain_no_sweep
from spbench.tui.results.run_rows import RunRows
from spbench.tui.results.views import View
from spbench_core.events.statuses import RunStatus
from support.sample_events import (
    build_state,
    case_judged,
    describe_case,
    job_end,
    make_started_run,
    rank_event,
    record_run,
    run_end,
)
from support.tui.app_driver import SIZES, post_keys, read_screen, wait_until
from support.tui.results_page import (
    MEDIUM_SIZE,
    WIDTHS,
    describe_swept_case,
    find_line,
    list_case_events,
    open_results,
    read_widget,
    record_synthetic_run,
    shows_selected_run,
    wait_for_comparison,
    wait_for_run,
)
from support.tui.suites_page import list_messages


@pytest.fixture
def fake_running(monkeypatch):
    """Take runs with "going" in their ids for running ones."""
    monkeypatch.setattr(RunFolder, "is_alive", lambda folder: "going" in folder.id)
    monkeypatch.setattr(background, "find_running", lambda home: [])


@pytest.mark.parametrize("size", SIZES)
async def test_shows_every_view(tmp_path, home, size):
    app = open_results(tmp_path)
    async with app.run_test(size=size) as pilot:
        page = await wait_for_run(pilot)
        assert [run.id[:8] for run in page._pane.shown] == ["20010103", "20010102", "20010101"]
        await wait_until(
            pilot, lambda: "✗ failed, 6 cases, 5 passed in 1 min 05 s on login" in read_screen(app)
        )
        await wait_until(pilot, lambda: "5/6" in find_line(app, "2001-01-03"))
        await wait_until(pilot, lambda: "✗ failed" in find_line(app, "2001-01-03"))
        await wait_until(pilot, lambda: "✓ passed" in find_line(app, "2001-01-02"))
        await pilot.press("tab", "down")
        await wait_until(
            pilot, lambda: "check sum failed on rank 1" in read_widget(app, "#case-remarks")
        )
        await pilot.press("enter")
        await wait_until(pilot, lambda: isinstance(app.screen, CaseScreen))
        await wait_until(pilot, lambda: "✗ failed  made.up on 2 ranks" in read_screen(app))
        await pilot.press("end")
        await wait_until(pilot, lambda: "mpirun -n 2" in read_screen(app))
        await pilot.press("escape", "shift+tab", "end", "space", "up", "c")
        await wait_for_comparison(pilot, "20010101", "20010102")
        await wait_until(pilot, lambda: "2.00x" in find_line(app, "? not judged "))
        await wait_until(pilot, lambda: "0 of 6 cases judged, 6 not judged." in read_screen(app))
        await wait_until(pilot, lambda: " a 2001-01-01" in read_screen(app))
        chart = page._views.plot.chart
        await pilot.press("m")
        await wait_until(pilot, lambda: chart.count_stops() == 3)
        plot_text = read_widget(app, "#plot-summary")
        assert (
            "3 runs, lower is better: newest 2.04 ms failed (2001-01-03), best 2.00 ms" in plot_text
        )
        await pilot.press("X")
        await wait_until(pilot, lambda: chart.count_stops() == 12)  # also of the marked run
        await wait_until(pilot, lambda: "of made over width (X: 1 of 2)" in read_screen(app))


@pytest.mark.parametrize("size", SIZES)
async def test_comparison_has_one_row_per_case(tmp_path, home, size):
    app = open_results(tmp_path)
    async with app.run_test(size=size) as pilot:
        page = await wait_for_run(pilot)
        await pilot.press("end", "space", "up", "c")
        await wait_for_comparison(pilot, "20010101", "20010102")
        await wait_until(pilot, lambda: find_line(app, "? not judged "))
        assert "outcome" in find_line(app, "b/a")
        assert len(page._views.compare.rows.keys()) == 6
        assert "»" not in find_line(app, "b/a")
        await pilot.press("A")
        await wait_until(pilot, lambda: len(page._views.compare.rows.keys()) > 6)
        await wait_until(pilot, lambda: " time " in find_line(app, "? not judged "))
        await pilot.press("A")
        await wait_until(pilot, lambda: len(page._views.compare.rows.keys()) == 6)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_narrow_table_keeps_full_titles_without_ranks(tmp_path, home, size):
    app = open_results(tmp_path)
    async with app.run_test(size=size) as pilot:
        await wait_for_run(pilot)
        titles = "time reference efficiency checks"
        await wait_until(pilot, lambda: titles in " ".join(read_screen(app).split()))
        cells = "1.02 ms 510 us 50 % 2/2"
        await wait_until(pilot, lambda: cells in " ".join(read_screen(app).split()))


async def test_reason_takes_the_spare_width_of_the_table(tmp_path, home):
    app = open_results(tmp_path)
    async with app.run_test(size=(160, 48)) as pilot:
        await wait_for_run(pilot)
        await wait_until(pilot, lambda: "check sum failed" in find_line(app, "✗ failed made"))


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_comparison_shows_full_ids_and_reasons(tmp_path, home, size):
    app = open_results(tmp_path)
    async with app.run_test(size=size) as pilot:
        page = await wait_for_run(pilot)
        await pilot.press("end", "space", "up", "c")
        await wait_for_comparison(pilot, "20010101", "20010102")
        await wait_until(pilot, lambda: find_line(app, "? not judged "))
        assert "…" not in read_screen(app).partition("outcome")[2]
        reason = "too few launches (1 in a, 1 in b, 5 per side"
        assert read_widget(app, "#remarks").count(reason) == 1
        advice = "Both sides are short: R runs both again with 5 launches of each case"
        assert advice in read_widget(app, "#remarks")
        await wait_until(pilot, lambda: "R Run both again" in read_screen(app))
        await wait_until(pilot, lambda: "launches (1 in a, 1 in b" in read_screen(app))
        notes = page.query_one("#notes")
        await pilot.press("tab", "tab")
        if page._views.compare.has_class("-with-chart"):
            await pilot.press("tab")
        assert app.focused is notes
        if size[1] == 24:
            await wait_until(pilot, lambda: notes.size.height > 3)
        await pilot.press("end")
        await wait_until(pilot, lambda: "beyond" in read_screen(app))


async def test_few_rows_leave_lines_to_the_notes(tmp_path):
    home = tmp_path / "home"
    case = describe_swept_case(1, "a")
    for name in ("first", "second"):
        events = [event for event in make_started_run(case) if event["event"] != "case_start"]
        events += [*list_case_events(case, 1.0, False), job_end(), run_end("passed", 0)]
        folder = record_run(home, events, verdict="passed", finished=1010.0, suite="small")
        folder.path.rename(folder.path.with_name(f"20010101-083000-{name}"))
    app = open_results(tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        page = await wait_for_run(pilot)
        await pilot.press("c")
        await wait_until(pilot, lambda: find_line(app, "? not judged "))
        await wait_until(pilot, lambda: page.query_one("#notes").size.height > 3)


async def test_r_runs_both_sides_again_and_c_goes_back(tmp_path, home, monkeypatch):
    app = open_results(tmp_path)
    starts = []
    days = iter((4, 5))

    def start(*args, **_):
        starts.append(args)
        folder = record_synthetic_run(home, next(days), 2.0, launches=5)
        app.context.watch_run(folder, show=False)

    async with app.run_test(size=(120, 40)) as pilot:
        monkeypatch.setattr(app.context, "start_run", start)
        page = await wait_for_run(pilot)
        await pilot.press("end", "space", "up", "c")
        await wait_for_comparison(pilot, "20010101", "20010102")
        await pilot.press("R")
        await wait_until(pilot, lambda: isinstance(app.screen, Confirm))
        question = "Start run a (20010101-083000-made-up), and then run b (20010102-083000-made-up)"
        await wait_until(pilot, lambda: question in " ".join(app.screen._question.split()))
        await pilot.press("y")
        await wait_until(pilot, lambda: len(starts) == 2)
        assert [args[0][-2:] for args in starts] == [("--set", "repeat=5")] * 2
        await wait_until(pilot, lambda: app.context.compared_side is not None)
        assert app.context.compared_side.startswith("20010104")
        app.context.feed.compared_side = app.context.compared_side
        app.context.run_to_compare = app.context.feed.folder.id
        page.refresh_page()
        await wait_for_comparison(pilot, "20010104", "20010105")
        await wait_until(pilot, lambda: "6 of 6 cases judged" in read_widget(app, "#remarks"))


async def test_second_side_is_not_run_if_the_first_was_cancelled(tmp_path, home, monkeypatch):
    app = open_results(tmp_path)
    starts = []

    def start(*args, **_):
        starts.append(args)
        folder = record_synthetic_run(home, 4, 2.0)
        folder.write_json("run.json", folder.read_json("run.json") | {"verdict": "cancelled"})
        app.context.watch_run(folder, show=False)

    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        monkeypatch.setattr(app.context, "start_run", start)
        await wait_for_run(pilot)
        await pilot.press("c")
        await wait_for_comparison(pilot, "20010102", "20010103")
        await pilot.press("R")
        await wait_until(pilot, lambda: isinstance(app.screen, Confirm))
        await pilot.press("y")
        text = "20010103-083000-made-up was not run again"
        await wait_until(pilot, lambda: any(text in message for message in list_messages(app)))
        assert len(starts) == 1


async def test_b_that_is_run_again_keeps_its_a(tmp_path, home, monkeypatch):
    record_synthetic_run(home, 4, 1.0, launches=5)
    record_synthetic_run(home, 5, 1.0)
    app = open_results(tmp_path)
    starts = []
    async with app.run_test(size=(120, 40)) as pilot:
        monkeypatch.setattr(app.context, "start_run", lambda *args, **_: starts.append(args))
        page = await wait_for_run(pilot)
        await pilot.press("c")
        await wait_for_comparison(pilot, "20010104", "20010105")
        await run_again(pilot, starts, "b 20010105")
        record_synthetic_run(home, 6, 1.0, launches=5)
        page._poll_now()
        await wait_for_comparison(pilot, "20010104", "20010106")
        await wait_until(pilot, lambda: "6 of 6 cases judged" in read_widget(app, "#remarks"))


async def test_r_runs_a_again_and_the_newer_run_is_b(tmp_path, home, monkeypatch):
    record_synthetic_run(home, 4, 2.0, launches=5)
    app = open_results(tmp_path)
    starts = []
    async with app.run_test(size=(120, 40)) as pilot:
        monkeypatch.setattr(app.context, "start_run", lambda *args, **_: starts.append(args))
        page = await wait_for_run(pilot)
        await pilot.press("c")
        await wait_for_comparison(pilot, "20010103", "20010104")
        await wait_until(pilot, lambda: list_sides(app) == ["b 2001-01-04", "a 2001-01-03"])
        await wait_until(pilot, lambda: "R Run a again" in read_screen(app))
        await run_again(pilot, starts, "a 20010103")
        record_synthetic_run(home, 5, 1.0, launches=5)
        page._poll_now()
        await wait_for_comparison(pilot, "20010104", "20010105")
        await wait_until(pilot, lambda: "6 of 6 cases judged" in read_widget(app, "#remarks"))
        origin = "b: 2001-01-03 measured again with 5 launches (2001-01-05)"
        assert read_widget(app, "#compared-runs").splitlines()[-1] == origin
        assert "short" not in read_widget(app, "#remarks")
        assert list_sides(app) == ["b 2001-01-05", "a 2001-01-04"]
        await pilot.press("end")
        await wait_for_comparison(pilot, "20010101", "20010104")
        await wait_until(pilot, lambda: "R Run a again" in read_screen(app))


async def test_r_runs_b_again_if_both_sides_have_enough_launches(tmp_path, home, monkeypatch):
    for day in (4, 5):
        record_synthetic_run(home, day, 2.0, launches=5)
    app = open_results(tmp_path)
    starts = []
    async with app.run_test(size=(80, 24)) as pilot:
        monkeypatch.setattr(app.context, "start_run", lambda *args, **_: starts.append(args))
        page = await wait_for_run(pilot)
        await wait_until(pilot, lambda: "R Run again" in read_screen(app))
        await pilot.press("down", "space", "up", "space", "end", "c")
        await wait_for_comparison(pilot, "20010104", "20010105")
        await wait_until(pilot, lambda: "R Run b again" in read_screen(app))
        await pilot.press("R")  # without a question, as there is nothing to decide
        await wait_until(pilot, lambda: starts and page._pane._awaited)
        assert not isinstance(app.screen, Confirm)
        record_synthetic_run(home, 6, 2.0, launches=5)
        page._poll_now()
        await wait_for_comparison(pilot, "20010104", "20010106")


async def test_older_of_two_runs_is_a_wherever_mark_and_cursor_are(tmp_path, home):
    app = open_results(tmp_path)
    async with app.run_test(size=(120, 40)) as pilot:
        page = await wait_for_run(pilot)
        await pilot.press("space", "end")
        await wait_until(pilot, lambda: list_sides(app) == ["b 2001-01-03", "a 2001-01-01"])
        await pilot.press("c")
        await wait_for_comparison(pilot, "20010101", "20010103")
        await pilot.press("up")
        await wait_for_comparison(pilot, "20010102", "20010103")
        await wait_until(pilot, lambda: list_sides(app) == ["b 2001-01-03", "a 2001-01-02"])
        app.context.run_to_compare = page._pane.shown[1].id  # like c on the Run page
        page.refresh_page()
        await wait_for_comparison(pilot, "20010101", "20010102")
        await wait_until(pilot, lambda: list_sides(app) == ["b 2001-01-02", "a 2001-01-01"])
        await pilot.press("v", "v", "v", "v")
        await wait_until(pilot, lambda: list_sides(app) == [])


def list_sides(app):
    """Return the marks a and b with the start of their runs, from top to bottom."""
    return re.findall(r"\b[ab] 2001-01-\d\d", read_screen(app))


async def run_again(pilot, starts, day):
    """Start the run of a day again by R, with its side in a comparison."""
    await pilot.press("R")
    await wait_until(pilot, lambda: isinstance(pilot.app.screen, Confirm))
    *side, date = day.split()
    question = f"Start run {side[0]} ({date}" if side else f"Start run {date}"
    await wait_until(pilot, lambda: question in read_screen(pilot.app))
    await wait_until(pilot, lambda: getattr(pilot.app.focused, "id", None) == "yes")
    await pilot.press("enter")
    await wait_until(pilot, lambda: starts)
    await wait_until(pilot, lambda: pilot.app.screen._pane._awaited)


async def test_single_run_is_run_again_to_have_two(tmp_path, home, monkeypatch):
    record_synthetic_run(home, 4, 1.0, suite="other")
    app = open_results(tmp_path)
    starts = []
    async with app.run_test(size=MEDIUM_SIZE) as pilot:
        monkeypatch.setattr(app.context, "start_run", lambda *args, **_: starts.append(args))
        await wait_for_run(pilot)
        await pilot.press("c")
        await wait_until(
            pilot, lambda: read_widget(app, "#compared-runs").endswith("R runs other again.")
        )
        await run_again(pilot, starts, "20010104")
        assert starts[0][0][-2:] == ("--set", "repeat=5")


@pytest.mark.parametrize(
    ("launches", "answer", "has_more"), [(1, "a", False), (1, "y", True), (5, "", False)]
)
async def test_r_asks_only_if_a_run_has_few_launches(
    tmp_path, home, monkeypatch, launches, answer, has_more
):
    record_synthetic_run(home, 4, 1.0, launches=launches)
    app = open_results(tmp_path)
    starts = []
    async with app.run_test(size=MEDIUM_SIZE) as pilot:
        monkeypatch.setattr(app.context, "start_run", lambda *args, **_: starts.append(args))
        await wait_for_run(pilot)
        await pilot.press("R")
        if answer:
            await wait_until(pilot, lambda: isinstance(app.screen, Confirm))
            await wait_until(pilot, lambda: "As it was (a)" in read_screen(app))
            await pilot.press(answer)
        await wait_until(pilot, lambda: starts)
        assert not isinstance(app.screen, Confirm)
        assert (starts[0][0][-2:] == ("--set", "repeat=5")) == has_more


async def test_comparison_names_why_it_has_an_unclean_run(tmp_path, home):
    fault = "slow@made[width=1,mode=a]"
    for day in (1, 2):
        run = home / "runs" / f"200101{day:02}-083000-made-up" / "run.json"
        run.write_text(json.dumps(json.loads(run.read_text()) | {"request": {"inject": [fault]}}))
    app = open_results(tmp_path)
    async with app.run_test(size=MEDIUM_SIZE) as pilot:
        await wait_for_run(pilot)
        await pilot.press("c")
        await wait_for_comparison(pilot, "20010102", "20010103")
        remark = f"warning: no clean earlier run of made-up: a has the planted fault {fault}"
        await wait_until(pilot, lambda: remark in read_widget(app, "#compared-runs"))
        assert read_widget(app, "#compared-runs").count("warning") == 1


async def test_large_ratio_that_is_not_judged_is_named(tmp_path, home):
    app = open_results(tmp_path)
    async with app.run_test(size=MEDIUM_SIZE) as pilot:
        await wait_for_run(pilot)
        await pilot.press("end", "space", "up", "c")
        await wait_for_comparison(pilot, "20010101", "20010102")
        remark = "about 2.00x slower, not judged"
        await wait_until(pilot, lambda: remark in read_widget(app, "#remarks"))


async def test_comparison_warns_of_a_planted_fault(tmp_path, home):
    fault = "slow@made[width=1,mode=a]"
    run = home / "runs" / "20010101-083000-made-up" / "run.json"
    run.write_text(json.dumps(json.loads(run.read_text()) | {"request": {"inject": [fault]}}))
    app = open_results(tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_for_run(pilot)
        await pilot.press("end", "space", "up", "c")
        await wait_for_comparison(pilot, "20010101", "20010102")
        warning = "warning: run a was made with the planted fault slow (case made[width=1,mode=a])"
        await wait_until(pilot, lambda: warning in read_widget(app, "#compared-runs"))
        await wait_until(pilot, lambda: "warning: run a was made with" in read_screen(app))
        await wait_until(pilot, lambda: read_screen(app).count("? not judged ") >= 2)


async def test_details_take_their_lines_after_the_terminal_grows(tmp_path, home):
    app = open_results(tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        page = await wait_for_run(pilot)
        await pilot.press("c")
        await wait_for_comparison(pilot, "20010102", "20010103")
        await pilot.resize_terminal(200, 60)
        details = page.query_one("#details")
        await wait_until(pilot, lambda: len(read_widget(app, "#details").splitlines()) > 2)
        await wait_until(pilot, lambda: details.size.height > 2, deadline=3)
        assert find_line(app, "command")


async def test_page_without_runs_names_the_searched_folder(tmp_path):
    app = open_results(tmp_path)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await wait_until(pilot, lambda: "no run under" in read_screen(app))
        await pilot.press("space", "o", "p", "e", "y", "c", "m", "X", "W")
        await wait_until(pilot, lambda: "no run is running" in read_screen(app))
        assert app.current_mode == "results"


async def test_list_follows_runs_from_start_to_end(tmp_path, home, fake_running, monkeypatch):
    app = open_results(tmp_path)
    async with app.run_test(size=MEDIUM_SIZE) as pilot:
        page = await wait_for_run(pilot)
        page.poll_seconds = 0.05
        await pilot.press("down")
        started = record_synthetic_run(home, 4, 3.0, suite="going", ends=False)
        lines = started.events.read_bytes().splitlines(keepends=True)
        started.events.write_bytes(b"".join(lines[:12]))
        await wait_until(pilot, lambda: "… running" in find_line(app, "2001-01-04"))
        assert page._pane.selected_run().id.startswith("20010102"), "the cursor stays on its run"
        await pilot.press("home")
        await wait_until(pilot, lambda: "… running, 6 cases, 0 passed" in read_screen(app))
        started.events.write_bytes(b"".join(lines))
        await wait_until(pilot, lambda: "… running, 6 cases, 6 passed" in read_screen(app))
        started.write_json("run.json", started.read_json("run.json") | {"verdict": "passed"})
        await wait_until(pilot, lambda: "✓ passed" in find_line(app, "2001-01-04"))


async def test_cursor_on_the_newest_run_follows_new_runs(tmp_path, home):
    app = open_results(tmp_path)
    async with app.run_test(size=MEDIUM_SIZE) as pilot:
        page = await wait_for_run(pilot)
        page.poll_seconds = 0.05
        newer = record_synthetic_run(home, 4, 3.0)
        await wait_until(pilot, lambda: page._pane.selected_run().id == newer.id)
        await pilot.press("s")
        assert page._pane.table.sorted_by[0] is not None
        record_synthetic_run(home, 5, 3.0)
        await wait_until(pilot, lambda: len(page._pane.shown) == 5)
        assert page._pane.selected_run().id == newer.id, "a sorted list keeps its run"


async def test_cursor_goes_to_a_new_run_that_is_watched(tmp_path, home):
    app = open_results(tmp_path)
    async with app.run_test(size=MEDIUM_SIZE) as pilot:
        page = await wait_for_run(pilot)
        await pilot.press("end")
        oldest = page._pane.selected_run().id
        page.poll_seconds = 0.05
        record_synthetic_run(home, 4, 3.0)
        await wait_until(pilot, lambda: len(page._pane.shown) == 4)
        assert page._pane.selected_run().id == oldest
        page.poll_seconds = math.inf
        await wait_until(pilot, lambda: page._poll_worker.is_finished)
        watched = record_synthetic_run(home, 5, 3.0)
        app.context.watch_run(watched, show=False)
        page.poll_seconds = 0.05
        await wait_until(pilot, lambda: page._pane.selected_run().id == watched.id)


async def test_slow_read_of_runs_is_not_started_twice(tmp_path, home, monkeypatch):
    reads = []
    go_on = threading.Event()
    read = update_known_runs

    def read_slowly(home, summaries, **keep):
        reads.append(summaries)
        go_on.wait(10)
        return read(home, summaries, **keep)

    monkeypatch.setattr(library_module, "update_known_runs", read_slowly)
    app = open_results(tmp_path)
    async with app.run_test(size=MEDIUM_SIZE) as pilot:
        await wait_until(pilot, lambda: reads)
        app.screen.poll_seconds = 0.01
        await pilot.pause(0.3)
        assert len(reads) == 1
        go_on.set()
        page = await wait_for_run(pilot)
        assert len(page._pane.shown) == 3


async def test_filter_selects_runs_and_reports_errors(tmp_path, home):
    record_synthetic_run(home, 5, 1.0, suite="other")
    app = open_results(tmp_path)
    async with app.run_test(size=MEDIUM_SIZE) as pilot:
        page = await wait_for_run(pilot)
        await pilot.press("slash")
        app.focused.value = "suite:made verdict:faile"
        await wait_until(pilot, lambda: "unknown status 'faile'" in read_widget(app, "#message"))
        assert len(page._pane.shown) == 4, "until it is right, the last filter stays"
        await pilot.press("d")
        await wait_until(pilot, lambda: len(page._pane.shown) == 1)
        await wait_until(pilot, lambda: "1 of 4" in read_screen(app))
        app.focused.value = "none"
        await wait_until(pilot, lambda: "fits none of the 4 runs" in read_widget(app, "#message"))
        await wait_until(pilot, lambda: "no run is chosen" in read_screen(app))
        await pilot.press("enter")
        assert app.focused is page._pane.table
        await pilot.press("slash", "escape")
        await wait_until(pilot, lambda: len(page._pane.shown) == 4)
        assert read_widget(app, "#message") == ""
        assert app.focused is page._pane.table


async def test_keys_typed_right_after_the_filter_key_reach_it(tmp_path, home):
    app = open_results(tmp_path)
    async with app.run_test(size=MEDIUM_SIZE) as pilot:
        page = await wait_for_run(pilot)
        post_keys(app, "/verdict:failed")
        await wait_until(pilot, lambda: len(page._pane.shown) == 1)
        assert app.current_mode == "results"


async def test_shown_runs_have_passed_counts_before_a_visit(tmp_path, home):
    for day in (1, 2, 3):
        folder = RunLibrary(home).summaries()[day - 1].folder
        folder.write_text("report.json", export_text(load_run(folder), "json"))
    app = open_results(tmp_path)
    async with app.run_test(size=(200, 60)) as pilot:
        await wait_for_run(pilot)
        await wait_until(pilot, lambda: "6/6" in find_line(app, " 2001-01-01"))
        await wait_until(pilot, lambda: "5/6" in find_line(app, " 2001-01-03"))
        assert "1 min 05 s" in find_line(app, " 2001-01-01")
        assert "login" in find_line(app, " 2001-01-01").split("││")[0]
        assert "took" in find_line(app, " started ")


async def test_sign_marks_the_selected_format(tmp_path, home):
    app = open_results(tmp_path)
    async with app.run_test(size=MEDIUM_SIZE) as pilot:
        await wait_for_run(pilot)
        await open_export(pilot)
        await wait_until(
            pilot, lambda: "●" in find_line(app, " HTML,") and "○" in find_line(app, " JSON,")
        )
        app.focused.value = "x.json"
        await wait_until(
            pilot, lambda: "○" in find_line(app, " HTML,") and "●" in find_line(app, " JSON,")
        )


async def test_case_screen_shows_all_details(tmp_path, home):
    app = open_results(tmp_path)
    async with app.run_test(size=(200, 60)) as pilot:
        page = await wait_for_run(pilot)
        cases = page.query_one("#cases")
        await wait_until(pilot, lambda: cases in page.focus_chain)
        cases.focus()
        await wait_until(pilot, lambda: app.focused is cases)
        await pilot.press("down", "enter")
        await wait_until(pilot, lambda: isinstance(app.screen, CaseScreen))
        await wait_until(pilot, lambda: "one process alone" in read_screen(app))
        figures = find_line(app, "lower").split()
        assert figures[figures.index("time") + 1 :][:12] == ["2", *["2.04", "ms"] * 5, "lower"]
        await wait_until(pilot, lambda: "1.02 ms" in find_line(app, "one process alone"))
        await wait_until(pilot, lambda: "✗ failed" in find_line(app, "sum  "))
        await wait_until(pilot, lambda: "max 5.00 ms" in find_line(app, "time p50"))
        await wait_until(pilot, lambda: "width" in read_screen(app))
        await wait_until(pilot, lambda: "Launched by Open MPI" in read_screen(app))


async def test_case_screen_names_metrics_on_a_narrow_terminal(tmp_path, home):
    app = open_results(tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_for_run(pilot)
        await pilot.press("tab", "enter")
        await wait_until(pilot, lambda: isinstance(app.screen, CaseScreen))
        await wait_until(pilot, lambda: "time" in find_line(app, "1.02 ms"))
        metrics = read_screen(app).partition("Metrics")[2].partition("References")[0]
        assert "…" not in metrics


async def test_comparison_keeps_rows_in_a_tall_narrow_terminal(tmp_path, home):
    app = open_results(tmp_path)
    async with app.run_test(size=(80, 40)) as pilot:
        await wait_for_run(pilot)
        await pilot.press("end", "space", "up", "c")
        await wait_for_comparison(pilot, "20010101", "20010102")
        await wait_until(pilot, lambda: read_screen(app).count("? not judged ") >= 3)


async def test_case_screen_opens_without_reading_files(tmp_path, home):
    app = open_results(tmp_path)
    async with app.run_test(size=(200, 60)) as pilot:
        page = await wait_for_run(pilot)
        # Tab goes to a pane that has no position before it goes to others.
        await wait_until(pilot, lambda: page.query_one("#case-history").region)
        await pilot.press("tab", "down")
        await wait_until(
            pilot, lambda: "check sum failed on rank 1" in read_widget(app, "#case-remarks")
        )
        await wait_until(pilot, lambda: shows_selected_run(page))
        page._views.cases.run.summary.folder.events.unlink()
        await pilot.press("enter")
        await wait_until(pilot, lambda: isinstance(app.screen, CaseScreen))
        await wait_until(pilot, lambda: "max 5.00 ms" in find_line(app, "time p50"))
        await wait_until(pilot, lambda: "Launched by Open MPI" in read_screen(app))


async def test_demo_run_is_listed_once_it_was_played(tmp_path, home):
    demo = find_demo_run()
    files = [*demo.path.iterdir(), *(home / "runs").rglob("*")]
    app = open_results(tmp_path)
    async with app.run_test(size=MEDIUM_SIZE, notifications=True) as pilot:
        page = await wait_for_run(pilot)
        assert "demo" not in read_screen(app)
        app.context.replay_run(demo, None)
        app.context.show_page("results")
        page._poll_now()
        await wait_until(pilot, lambda: "7/9" in find_line(app, "demo"))
        await pilot.press("home")
        await wait_until(pilot, lambda: shows_selected_run(page))
        assert page._pane.selected_run().folder == demo
        await wait_until(pilot, lambda: "stencil" in read_screen(app))
        await pilot.press("t", "B", "d", "F", "R")
        await wait_until(pilot, lambda: DEMO_STAYS in list_messages(app))
        assert app.screen is page
        await pilot.press("c")
        await wait_until(pilot, lambda: "The demo has only one run" in read_screen(app))
    assert files == [*demo.path.iterdir(), *(home / "runs").rglob("*")]


@pytest.mark.long
async def test_compares_with_the_previous_run_by_default(tmp_path, home):
    record_synthetic_run(home, 4, 1.0, suite="other")
    record_synthetic_run(home, 5, 1.0)
    app = open_results(tmp_path)
    async with app.run_test(size=MEDIUM_SIZE) as pilot:
        page = await wait_for_run(pilot)
        await pilot.press("space")
        assert page._pane.marked == (page._pane.selected_run().id,)
        await pilot.press("space", "c")
        assert page._pane.marked == ()
        await wait_for_comparison(pilot, "20010103", "20010105")
        reason = "Not judged, no valid result (check sum failed in a): made[width=2,mode=a]."
        assert reason in " ".join(read_widget(app, "#remarks").split())
        await pilot.press("tab", "down", "enter")
        await wait_until(pilot, lambda: isinstance(app.screen, CaseScreen))
        assert app.screen._case.id == "made[width=2,mode=a]"
        await pilot.press("escape", "shift+tab", "end")
        await wait_until(pilot, lambda: "No earlier run of made-up; mark" in read_screen(app))


async def test_compares_with_no_run_of_another_suite(tmp_path, home):
    record_synthetic_run(home, 4, 1.0, suite="other")
    app = open_results(tmp_path)
    async with app.run_test(size=MEDIUM_SIZE) as pilot:
        await wait_for_run(pilot)
        await pilot.press("c")
        await wait_until(pilot, lambda: "No earlier run of other; mark two" in read_screen(app))


@pytest.mark.long
async def test_plots_follow_metric_parameter_case_and_filter(tmp_path, home):
    record_synthetic_run(home, 4, 9.0, suite="other")
    app = open_results(tmp_path)
    async with app.run_test(size=MEDIUM_SIZE) as pilot:
        page = await wait_for_run(pilot)
        chart = page._views.plot.chart

        def points():
            return [(spot.series, spot.point.x, spot.point.y) for spot in chart._points]

        await pilot.press("down", "m")
        await wait_until(pilot, lambda: [y for _, _, y in points()] == [1.0, 2.0, 1.02])
        await wait_until(
            pilot,
            lambda: (
                "(m: 1 of 3) of made[width=1,mode=a] (case 1 of 6, n: next)" in read_screen(app)
            ),
        )
        await pilot.press("n", "m")
        await wait_until(pilot, lambda: [y for _, _, y in points()] == [20.0, 40.0, 20.4])
        await wait_until(
            pilot,
            lambda: (
                "(m: 2 of 3) of made[width=2,mode=a] (case 2 of 6, n: next)" in read_screen(app)
            ),
        )
        await pilot.press("N", "slash")
        app.focused.value = "since:2001-01-02"
        await wait_until(pilot, lambda: [y for _, _, y in points()] == [20.0, 10.2])
        await pilot.press("escape", "X", "m", "m")
        await wait_until(pilot, lambda: "time (m: 1 of 3) of made over width" in read_screen(app))
        await wait_until(pilot, lambda: points()[:2] == [(0, 1.0, 1.02), (0, 2.0, 2.04)])
        await wait_until(
            pilot,
            lambda: "mode=b: 1 1.02 ms, 2 2.04 ms, 4 4.08 ms" in read_widget(app, "#plot-summary"),
        )
        await pilot.press("X")
        await wait_until(pilot, lambda: "over mode (X: 2 of 2)" in read_screen(app))
        assert {x for _, x, _ in points()} == {"a", "b"}
        await pilot.press("tab", "right", "right")
        await wait_until(pilot, lambda: "mode b, time in ms 1.02 (" in read_screen(app))


async def test_marked_run_is_plotted_over_the_parameter_too(tmp_path, home):
    app = open_results(tmp_path)
    async with app.run_test(size=MEDIUM_SIZE) as pilot:
        page = await wait_for_run(pilot)
        await pilot.press("end", "space", "home", "X")
        chart = page._views.plot.chart
        await wait_until(pilot, lambda: "● a mode=a" in read_screen(app))
        assert chart.count_stops() == 12
        assert "b mode=b" in read_screen(app)
        assert "vertical lines: minimum to p95" in read_screen(app)


async def test_run_without_a_sweep_has_its_cases_instead_of_a_chart(tmp_path, home):
    single_case = [event for case in (describe_case("alone"),) for event in make_started_run(case)]
    record_run(home, [*single_case, job_end(), run_end("passed", 0)], finished=2000.0)
    app = open_results(tmp_path)
    async with app.run_test(size=MEDIUM_SIZE) as pilot:
        page = await wait_for_run(pilot)
        await pilot.press("end", "X")
        await wait_until(pilot, lambda: "of made over width" in read_screen(app))
        await pilot.press("home")
        await wait_until(pilot, lambda: "The suite sweeps no parameter" in read_screen(app))
        assert page._view is View.PARAMETER
        await pilot.press("end")
        await wait_until(pilot, lambda: "of made over width" in read_screen(app))


async def test_small_screen_has_the_rows_of_cases_and_the_way_to_the_chart(tmp_path, home):
    app = open_results(tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        page = await wait_for_run(pilot)
        await pilot.press("end")
        await wait_until(pilot, lambda: page._views.cases.run.summary.id.startswith("20010101"))
        hint = "made[width=1,mode=a], press v twice for the chart of its times"
        await wait_until(pilot, lambda: hint in read_screen(app))
        assert "20010101" not in read_widget(app, "#run-summary")
        assert len(page._views.cases.table.visible_keys) == 6
        await pilot.press("v", "v")
        assert page._view is View.TIMES


@pytest.mark.parametrize(
    ("size", "texts"),
    [
        ((120, 40), ("profile…t50", " ! ", "6/6")),
        ((160, 48), ("profile-resnet50", "! fault", "6/6", "1 min 05 s")),
        ((200, 60), ("profile-resnet50", "! fault", "6/6", "1 min 05 s", "login")),
    ],
)
async def test_passed_cases_are_visible_next_to_marks_and_long_suites(tmp_path, home, size, texts):
    run = record_synthetic_run(home, 4, 1.0, suite="profile-resnet50").path / "run.json"
    run.write_text(json.dumps(json.loads(run.read_text()) | {"request": {"inject": ["slow"]}}))
    app = open_results(tmp_path)
    async with app.run_test(size=size) as pilot:
        await wait_for_run(pilot)
        await wait_until(pilot, lambda: "6/6" in find_line(app, "▸"))
        for text in texts:
            assert text in find_line(app, "▸").split("││")[0]


def test_runs_of_today_have_no_date(home):
    rows = RunRows(lambda run: None)
    summaries = RunLibrary(home).summaries()
    rows.show(summaries, summaries[0].started + 60)
    assert [rows.cells(run.id)[1] for run in summaries] == ["08:30", "01-02 08:30", "01-01 08:30"]


def test_row_asks_only_for_its_own_status(home):
    summaries = RunLibrary(home).summaries()
    requests = []

    def describe_status(run):
        requests.append(run.id)
        return run.status

    rows = RunRows(lambda run: None, describe_status)
    rows.show(summaries, 0.0)
    assert not rows.have_marks()
    requests.clear()
    rows.cells(summaries[0].id)
    assert set(requests) == {summaries[0].id}


async def test_next_case_after_the_last_is_the_first(tmp_path, home):
    app = open_results(tmp_path)
    async with app.run_test(size=MEDIUM_SIZE) as pilot:
        page = await wait_for_run(pilot)
        table = page._views.cases.table
        first = table.cursor_key
        await pilot.press("N")
        await wait_until(pilot, lambda: table.cursor_key == table.matching_keys[-1])
        await pilot.press("n")
        await wait_until(pilot, lambda: table.cursor_key == first)


def test_case_without_sweep_names_one_that_has(home):
    run = load_run(list_summaries(home)[-1].folder)
    first = next(iter(run.cases.values()))
    single = first.model_copy(update={"id": "single", "name": "single", "params": {}})
    run = replace(run, cases={"single": single, **run.cases})
    assert explain_no_sweep(run, "single").endswith("other cases, such as those of made")


async def test_reports_runs_that_cannot_be_plotted_or_read(tmp_path):
    home = tmp_path / "home"
    damaged = record_synthetic_run(home, 1, 1.0)
    damaged.events.write_text("{}\n")
    events = [
        *make_started_run(describe_case(metrics=[])),
        case_judged(status="error"),
        run_end("error", 4),
    ]
    record_run(home, events, verdict="error")
    app = open_results(tmp_path)
    async with app.run_test(size=MEDIUM_SIZE) as pilot:
        page = await wait_for_run(pilot)
        await pilot.press("X")
        await wait_until(pilot, lambda: "The suite sweeps no parameter" in read_screen(app))
        for view in ("cases", "compare", "times", "over runs"):
            await pilot.press("v")
            assert page._view == view
        await pilot.press("end")
        await wait_until(pilot, lambda: "is no event of a run" in read_widget(app, "#plot-title"))
        await pilot.click("ViewTab:first-of-type")
        await wait_until(pilot, lambda: page._view == "cases")
        await wait_until(pilot, lambda: "is no event of a run" in read_widget(app, "#run-summary"))


async def test_shows_why_a_run_with_a_huge_file_cannot_be_read(tmp_path):
    home = tmp_path / "home"
    for number, name in ((1, "report.json"), (2, "run.json")):
        folder = record_synthetic_run(home, number, 1.0)
        (folder.path / name).touch()
        os.truncate(folder.path / name, 40 * 10**9)
    app = open_results(tmp_path)
    async with app.run_test(size=MEDIUM_SIZE) as pilot:
        await wait_until(pilot, lambda: app.screen.query("#run-summary"))
        await wait_until(pilot, lambda: "run.json has 40.0 GB" in read_widget(app, "#run-summary"))
        assert "unreadable" in read_screen(app)
        await pilot.press("down")
        await wait_until(
            pilot, lambda: "report.json has 40.0 GB" in read_widget(app, "#run-summary")
        )


# Actions on a run


async def test_run_opens_on_the_run_page(tmp_path, home):
    app = open_results(tmp_path)
    async with app.run_test(size=MEDIUM_SIZE) as pilot:
        await wait_for_run(pilot)
        await pilot.press("down", "o")
        await wait_until(pilot, lambda: app.current_mode == "run")
        assert app.context.feed.folder.id.startswith("20010102")
        await wait_until(pilot, lambda: app.context.feed.status == "passed")
        await pilot.press("3", "down", "enter")
        await wait_until(pilot, lambda: app.context.feed.folder.id.startswith("20010101"))


async def test_attaches_to_running_and_replays_ended_runs(
    tmp_path, home, fake_running, monkeypatch
):
    watched_ids = []
    replays = []
    for day in (4, 5):
        record_synthetic_run(home, day, 1.0, suite="going", ends=False)
    app = open_results(tmp_path)
    monkeypatch.setattr(
        app.context, "replay_run", lambda folder, speed: replays.append((folder.id, speed))
    )
    monkeypatch.setattr(app.context, "watch_run", lambda folder: watched_ids.append(folder.id[:8]))
    async with app.run_test(size=MEDIUM_SIZE, notifications=True) as pilot:
        await wait_for_run(pilot)
        await pilot.press("end", "W")
        text = (
            "the selected run has ended; this is 20010105-083000-going, the newest that is running"
        )
        await wait_until(pilot, lambda: text in list_messages(app))
        await pilot.press("p", "y", "home", "down", "W")
        assert watched_ids == ["20010105", "20010104"]
        assert replays == [("20010101-083000-made-up", 1.0)]
        assert app.clipboard == "20010101-083000-made-up"
        await pilot.press("p")
        await wait_until(pilot, lambda: "is still running" in read_screen(app))
        assert len(replays) == 1


async def open_export(pilot):
    await pilot.press("e")
    await wait_until(pilot, lambda: isinstance(pilot.app.screen, ExportDialog))


@pytest.mark.long
async def test_export_format_follows_the_suffix(tmp_path, home):
    app = open_results(tmp_path)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        page = await wait_for_run(pilot)
        await open_export(pilot)
        await pilot.press("escape")
        await wait_until(pilot, lambda: app.screen is page)
        await open_export(pilot)
        await pilot.press("enter")
        page_file = tmp_path / "20010103-083000-made-up.html"
        await wait_until(pilot, page_file.exists)
        assert page_file.read_text().startswith("<!doctype html>")
        await open_export(pilot)
        await pilot.press("down", "enter")
        csv_file = tmp_path / "20010103-083000-made-up.csv"
        await wait_until(pilot, csv_file.exists)
        assert csv_file.read_text().startswith("run,suite,started")
        await open_export(pilot)
        app.focused.value = f"{tmp_path}/mine.json"
        await pilot.press("enter")
        await wait_until(pilot, (tmp_path / "mine.json").exists)
        assert json.loads((tmp_path / "mine.json").read_text())["schema"] == "spbench.report/1"
        await open_export(pilot)
        app.focused.value = f"{csv_file}/x.csv"
        await pilot.press("enter")
        await wait_until(pilot, lambda: "cannot write" in read_screen(app))
        names = {path.name for path in tmp_path.glob("*.*")}
        assert names == {page_file.name, csv_file.name, "mine.json"}


async def test_export_dialog_reports_an_unknown_home_directory(tmp_path, home):
    app = open_results(tmp_path)
    async with app.run_test(size=MEDIUM_SIZE) as pilot:
        await wait_for_run(pilot)
        await open_export(pilot)
        app.focused.value = "~no-such-user/run.csv"
        await pilot.press("enter")
        await wait_until(pilot, lambda: app._notifications)
        messages = [notification.message for notification in app._notifications]
        assert messages == ["~no-such-user/run.csv: unknown home directory"]
        assert isinstance(app.screen, ExportDialog)


@pytest.mark.long
async def test_replacing_an_existing_file_asks(tmp_path, home):
    path = tmp_path / "20010102-083000-made-up--20010103-083000-made-up.md"
    path.write_text("mine")
    app = open_results(tmp_path)
    async with app.run_test(size=MEDIUM_SIZE) as pilot:
        page = await wait_for_run(pilot)
        await pilot.press("c")
        await wait_for_comparison(pilot, "20010102", "20010103")
        for answer in "ny":
            assert path.read_text() == "mine"
            await open_export(pilot)
            await pilot.press("down", "down", "enter")
            await wait_until(pilot, lambda: isinstance(app.screen, Confirm))
            await pilot.press(answer)
            await wait_until(pilot, lambda: app.screen is page)
        await wait_until(pilot, lambda: r"| made\[width=1,mode=a\] | time |" in path.read_text())


async def test_readonly_exports_nothing(tmp_path, home):
    app = open_results(tmp_path, readonly=True)
    async with app.run_test(size=MEDIUM_SIZE) as pilot:
        page = await wait_for_run(pilot)
        await pilot.press("e")
        await pilot.pause()
        assert app.screen is page
        assert "Export" not in read_screen(app)
        await wait_until(pilot, lambda: "readonly" in read_screen(app))


async def test_only_the_last_selected_run_is_shown(tmp_path, home, monkeypatch):
    release = threading.Event()
    loads = []
    load = RunLibrary.load

    def load_slowly(library, folder):
        loads.append(folder.id[:8])
        if folder.id.startswith("20010102"):
            release.wait(10)
        return load(library, folder)

    app = open_results(tmp_path)
    async with app.run_test(size=MEDIUM_SIZE) as pilot:
        page = await wait_for_run(pilot)
        page.load_delay_seconds = 0.0
        monkeypatch.setattr(RunLibrary, "load", load_slowly)
        await pilot.press("down")
        await wait_until(pilot, lambda: loads == ["20010102"])
        await pilot.press("down")
        await wait_until(pilot, lambda: shows_selected_run(page))
        release.set()
        await pilot.pause(0.05)
        assert page._views.cases.run.summary.id.startswith("20010101")


# The library


def test_run_is_read_again_only_after_a_change(home, monkeypatch):
    reads = []
    load = load_run

    def read(folder):
        reads.append(folder.id)
        return load(folder)

    monkeypatch.setattr(library_module, "load_run", read)
    library = RunLibrary(home)
    folder = library.summaries()[0].folder
    run = library.load(folder)
    assert library.load(folder) is run
    assert run.cases["made[width=1,mode=a]"].samples == {}
    folder.write_json("report.json", {})
    assert library.load(folder) is not run
    assert len(reads) == 2
    assert library.count_passed(folder.id) == (5, 6)
    assert library.count_passed("unknown") is None
    folder.write_json("run.json", folder.read_json("run.json") | {"verdict": "cancelled"})
    assert library.summaries()[0].status == "cancelled"


def test_summary_of_the_demo_run_agrees_with_its_cases(tmp_path):
    library = RunLibrary(tmp_path)
    library.show_demo()
    (summary,) = library.summaries()
    assert library.describe_status(summary) == load_run(summary.folder).summary.status_text
    assert summary.status_text == FaultOutcome.FOUND


def test_killed_run_is_read_once_by_one_thread(home, monkeypatch):
    reads = []
    load = load_run

    def read(folder):
        reads.append(folder.id)
        never_set.wait(0.2)
        return load(folder)

    never_set = threading.Event()
    monkeypatch.setattr(library_module, "load_run", read)
    library = RunLibrary(home)
    folder = record_synthetic_run(home, 4, 1.0, ends=False)
    ended_console = {"pid": 2**30, "host": socket.gethostname(), "started": 1.0}
    folder.write_json("run.json", folder.read_json("run.json") | {"console": ended_console})
    threads = [threading.Thread(target=library.load, args=(folder,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert reads == [folder.id]
    assert library.load(folder).summary.status == RunStatus.UNFINISHED


def test_library_limits_its_cached_runs(home):
    library = RunLibrary(home, max_cached_runs=2)
    for summary in library.summaries():
        library.load(summary.folder)
    counts = [library.count_passed(run.id) for run in library.summaries()]
    assert counts == [None, (6, 6), (6, 6)]


def test_runs_are_sorted_by_their_number_of_failed_cases(home):
    runs = RunLibrary(home).summaries()
    counts = dict(zip((run.id for run in runs), [(10, 10), (9, 10), (2, 4)], strict=True))
    rows = RunRows(counts.get)
    rows.show(runs, 1e9)
    keys = sorted(rows.keys(), key=lambda key: rows.sort_value(key, "cases"))
    assert [rows.cells(key)[4] for key in keys] == ["2/4", "9/10", "10/10"]


def test_readonly_console_writes_no_index(home):
    assert len(RunLibrary(home, readonly=True).summaries()) == 3
    assert not (home / "index.sqlite").exists()
    assert len(RunLibrary(home).summaries()) == 3
    assert (home / "index.sqlite").exists()


def test_list_takes_counts_from_run_json(home):
    folder = record_synthetic_run(home, 4, 1.0)
    folder.write_json("run.json", folder.read_json("run.json") | {"counts": {"passed": 3, "x": 1}})
    folder.report.write_bytes(b" " * (2 << 20))
    library = RunLibrary(home)
    library.summaries()
    assert library.count_passed(folder.id) == (3, 4)


async def test_shows_each_finding_once_and_reasons_per_case(tmp_path):
    slow = {"rank": 1, "host": "node01", "ratio": 3.0, "seconds": 6.0, "since": 1e9, "cause": True}
    case = describe_swept_case(1, "a") | {"measures": "rank"}
    events = [
        *make_started_run(case),
        *(
            rank_event("case_end", rank, case=case["id"], disturbed={"stolen": 0.5})
            for rank in (0, 1)
        ),
        case_judged(case["id"], "failed", "no tile", stragglers=[slow]),
    ]
    findings = collect_findings(build_state(events))
    assert len(findings) == 2
    record_run(tmp_path / "home", [*events, job_end(), run_end("failed", 1, findings=findings)])
    app = open_results(tmp_path)
    async with app.run_test(size=MEDIUM_SIZE) as pilot:
        await wait_for_run(pilot)
        for finding in findings:
            assert read_widget(app, "#run-summary").count(name_keys(finding)) == 1
        # The end of the last finding: no text is cut off.
        await wait_until(
            pilot, lambda: "on a dedicated machine" in " ".join(read_screen(app).split())
        )
        remarks = read_widget(app, "#case-remarks")
        assert case["id"] in remarks
        assert remarks.count("no tile") == 1
        assert not any(name_keys(finding) in remarks for finding in findings)
        await pilot.press("tab", "enter")
        await wait_until(pilot, lambda: isinstance(app.screen, CaseScreen))
        await wait_until(pilot, lambda: "rank 1 on node01 takes 3.00x the time" in read_screen(app))
        assert "≈ noisy: the hypervisor of node01 gave 50 %" in read_screen(app)


async def test_small_screen_marks_the_cut_of_a_summary(tmp_path):
    findings = ["rank 1 of node01 is slow in " + ", ".join(f"case{i}" for i in range(100))]
    events = [*make_started_run(describe_swept_case(1, "a")), job_end()]
    record_run(tmp_path / "home", [*events, run_end("failed", 1, findings=findings)])
    app = open_results(tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_for_run(pilot)
        await wait_until(pilot, lambda: "rank 1 of node01 is slow" in read_screen(app))
        summary = read_widget(app, "#run-summary")
        assert summary.endswith("… (o: all)")
        assert app.screen.query_one("#run-summary").size.height == len(summary.splitlines())


async def test_small_screen_shows_cases_before_the_summary(tmp_path):
    findings = ["rank 1 of node01 is slow in " + ", ".join(f"case{i}" for i in range(100))]
    cases = [describe_swept_case(width, "a") for width in WIDTHS]
    events = [*make_started_run(*cases), job_end(), run_end("failed", 1, findings=findings)]
    record_run(tmp_path / "home", events)
    app = open_results(tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        page = await wait_for_run(pilot)
        await wait_until(pilot, lambda: "(o: all)" in read_widget(app, "#run-summary"))
        table = page._views.cases.table
        await wait_until(pilot, lambda: table.size.height >= 1 + len(cases))
