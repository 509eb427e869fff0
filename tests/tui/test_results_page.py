"""The Results page, driven by keys and by the mouse, over runs of a made-up benchmark."""

import json
import os
import socket
import threading

import pytest

from spbench.engine import background
from spbench.record.findings import collect_findings
from spbench.record.runs.folder import RunFolder
from spbench.record.runs.history import update_known_runs
from spbench.report.export import export_text
from spbench.report.recorded import load_run
from spbench.tui.dialogs import Confirm
from spbench.tui.results import library as library_module
from spbench.tui.results import page as page_module
from spbench.tui.results.case_screen import CaseScreen
from spbench.tui.results.export import ExportDialog
from spbench.tui.results.library import RunLibrary, find_previous_run
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
from support.tui.driving import SIZES, in_one_write, shown, until
from support.tui.results_page import (
    MIDDLE,
    a_run,
    case_of,
    compared,
    opened,
    ready,
    row_of,
    settled,
    words_of,
)


@pytest.fixture
def going(monkeypatch):
    """Take the runs whose ids have this in them as going on; no question is asked about them."""
    monkeypatch.setattr(RunFolder, "is_alive", lambda folder: "going" in folder.id)
    monkeypatch.setattr(background, "find_running", lambda home: [])


@pytest.mark.parametrize("size", SIZES)
async def test_a_walk_through_every_view(tmp_path, home, size):
    app = opened(tmp_path)
    async with app.run_test(size=size) as pilot:
        page = await ready(pilot)
        assert [run.id[:8] for run in page._pane.shown] == ["20010103", "20010102", "20010101"]
        await until(
            pilot, lambda: "✗ failed, 6 cases, 5 passed in 1 min 05 s on login" in shown(app)
        )
        await until(pilot, lambda: "5/6" in row_of(app, "2001-01-03"))
        await until(pilot, lambda: "✗ failed" in row_of(app, "2001-01-03"))
        await until(pilot, lambda: "✓ passed" in row_of(app, "2001-01-02"))
        await pilot.press("tab", "down")
        await until(pilot, lambda: "check sum failed on rank 1" in words_of(app, "#case-words"))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, CaseScreen))
        await until(pilot, lambda: "✗ failed  made.up on 2 ranks" in shown(app))
        await pilot.press("end")
        await until(pilot, lambda: "mpirun -n 2" in shown(app))
        await pilot.press("escape", "shift+tab", "end", "space", "up", "c")
        await compared(pilot, "20010101", "20010102")
        await until(pilot, lambda: "2.00x" in row_of(app, "? not judged "))
        await until(pilot, lambda: "0 of 6 cases judged, 6 not judged." in shown(app))
        await until(pilot, lambda: " a 2001-01-01" in shown(app))
        chart = page._views.plot.chart
        await pilot.press("m")
        await until(pilot, lambda: chart.count_stops() == 3)
        words = words_of(app, "#plot-words")
        assert "3 runs, lower is better: newest 2.04 ms failed (2001-01-03), best 2.00 ms" in words
        await pilot.press("p")
        await until(pilot, lambda: chart.count_stops() == 6)
        await until(pilot, lambda: "of made over width (p: 1 of 2)" in shown(app))


@pytest.mark.parametrize("size", SIZES)
async def test_a_comparison_has_one_row_for_each_case_and_uncut_outcomes(tmp_path, home, size):
    app = opened(tmp_path)
    async with app.run_test(size=size) as pilot:
        page = await ready(pilot)
        await pilot.press("end", "space", "up", "c")
        await compared(pilot, "20010101", "20010102")
        await until(pilot, lambda: row_of(app, "? not judged "))
        assert "outcome" in row_of(app, "b/a")
        assert len(page._views.compare.rows.keys()) == 6
        assert "»" not in row_of(app, "b/a")
        await pilot.press("A")
        await until(pilot, lambda: len(page._views.compare.rows.keys()) > 6)
        await until(pilot, lambda: " time " in row_of(app, "? not judged "))
        await pilot.press("A")
        await until(pilot, lambda: len(page._views.compare.rows.keys()) == 6)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_short_rows_keep_all_columns_but_ranks_and_no_title_is_cut(tmp_path, home, size):
    app = opened(tmp_path)
    async with app.run_test(size=size) as pilot:
        await ready(pilot)
        await until(pilot, lambda: "time reference efficiency checks" in shown(app))
        await until(pilot, lambda: "1.02 ms    510 us       50 %    2/2" in shown(app))


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_a_comparison_shows_whole_ids_and_why_a_case_is_not_judged(tmp_path, home, size):
    app = opened(tmp_path)
    async with app.run_test(size=size) as pilot:
        page = await ready(pilot)
        await pilot.press("end", "space", "up", "c")
        await compared(pilot, "20010101", "20010102")
        await until(pilot, lambda: row_of(app, "? not judged "))
        assert "…" not in shown(app).partition("outcome")[2]
        reason = "time of made[width=1,mode=a]: too few launches (1 in a, 1 in b, 5 per side"
        assert reason in words_of(app, "#remarks")
        await until(pilot, lambda: "too few launches" in shown(app))
        await pilot.press("tab", "tab")
        notes = page.query_one("#notes")
        assert app.focused is notes
        if size[1] == 24:
            await until(pilot, lambda: notes.size.height > 3)
        await pilot.press("end")
        await until(pilot, lambda: "only if its ratio is beyond" in shown(app))


async def test_a_comparison_warns_of_a_planted_fault(tmp_path, home):
    fault = "slow@made[width=1,mode=a]"
    run = home / "runs" / "20010101-083000-made-up" / "run.json"
    run.write_text(json.dumps(json.loads(run.read_text()) | {"request": {"inject": [fault]}}))
    app = opened(tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        await pilot.press("end", "space", "up", "c")
        await compared(pilot, "20010101", "20010102")
        warning = "warning: run a was made with the planted fault slow (case made[width=1,mode=a])"
        await until(pilot, lambda: warning in words_of(app, "#both"))
        await until(pilot, lambda: "warning: run a was made with" in shown(app))
        await until(pilot, lambda: shown(app).count("? not judged ") >= 2)


async def test_without_runs_the_page_says_where_it_looked(tmp_path):
    app = opened(tmp_path)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await until(pilot, lambda: "no run under" in shown(app))
        await pilot.press("space", "o", "r", "e", "y", "c", "m", "p", "a")
        await until(pilot, lambda: "no run is running" in shown(app))
        assert app.current_mode == "results"


async def test_runs_that_begin_go_on_and_end_show_up_by_themselves(
    tmp_path, home, going, monkeypatch
):
    monkeypatch.setattr(page_module, "POLL_INTERVAL", 0.05)
    app = opened(tmp_path)
    async with app.run_test(size=MIDDLE) as pilot:
        page = await ready(pilot)
        new = a_run(home, 4, 3.0, suite="going", ends=False)
        lines = new.events.read_bytes().splitlines(keepends=True)
        new.events.write_bytes(b"".join(lines[:12]))
        await until(pilot, lambda: "… running" in row_of(app, "2001-01-04"))
        assert page._pane.selected_run().id.startswith("20010103"), "the cursor stays on its run"
        await pilot.press("home")
        await until(pilot, lambda: "… running, 6 cases, 0 passed" in shown(app))
        new.events.write_bytes(b"".join(lines))
        await until(pilot, lambda: "… running, 6 cases, 6 passed" in shown(app))
        new.write_json("run.json", new.read_json("run.json") | {"verdict": "passed"})
        await until(pilot, lambda: "✓ passed" in row_of(app, "2001-01-04"))


async def test_a_look_that_takes_long_is_not_begun_again_beside_itself(tmp_path, home, monkeypatch):
    monkeypatch.setattr(page_module, "POLL_INTERVAL", 0.01)
    begun = []
    go_on = threading.Event()
    read = update_known_runs

    def slowly(home, known, **keep):
        begun.append(known)
        go_on.wait(10)
        return read(home, known, **keep)

    monkeypatch.setattr(library_module, "update_known_runs", slowly)
    app = opened(tmp_path)
    async with app.run_test(size=MIDDLE) as pilot:
        await until(pilot, lambda: begun)
        await pilot.pause(0.3)
        assert len(begun) == 1
        go_on.set()
        page = await ready(pilot)
        assert len(page._pane.shown) == 3


async def test_a_filter_selects_and_a_wrong_one_is_told(tmp_path, home):
    a_run(home, 5, 1.0, suite="other")
    app = opened(tmp_path)
    async with app.run_test(size=MIDDLE) as pilot:
        page = await ready(pilot)
        await pilot.press("slash")
        app.focused.value = "suite:made verdict:faile"
        await until(pilot, lambda: "no verdict is called 'faile'" in words_of(app, "#message"))
        assert len(page._pane.shown) == 4, "until it is right, the last filter stays"
        await pilot.press("d")
        await until(pilot, lambda: len(page._pane.shown) == 1)
        await until(pilot, lambda: "1 of 4" in shown(app))
        app.focused.value = "none"
        await until(pilot, lambda: "fits none of the 4 runs" in words_of(app, "#message"))
        await until(pilot, lambda: "no run is chosen" in shown(app))
        await pilot.press("enter")
        assert app.focused is page._pane.table
        await pilot.press("slash", "escape")
        await until(pilot, lambda: len(page._pane.shown) == 4)
        assert words_of(app, "#message") == ""
        assert app.focused is page._pane.table


async def test_keys_that_come_right_behind_the_filters_reach_it(tmp_path, home):
    app = opened(tmp_path)
    async with app.run_test(size=MIDDLE) as pilot:
        page = await ready(pilot)
        in_one_write(app, "/verdict:failed")
        await until(pilot, lambda: len(page._pane.shown) == 1)
        assert app.current_mode == "results"


async def test_runs_in_view_tell_how_many_passed_before_they_are_visited(tmp_path, home):
    for day in (1, 2, 3):
        folder = RunLibrary(home).summaries()[day - 1].folder
        folder.write_text("report.json", export_text(load_run(folder), "json"))
    app = opened(tmp_path)
    async with app.run_test(size=(200, 60)) as pilot:
        await ready(pilot)
        await until(pilot, lambda: "6/6" in row_of(app, " 2001-01-01"))
        await until(pilot, lambda: "5/6" in row_of(app, " 2001-01-03"))
        assert "1 min 05 s" in row_of(app, " 2001-01-01")
        assert "login" in row_of(app, " 2001-01-01").split("││")[0]
        assert "took" in row_of(app, "started UTC")


async def test_the_chosen_format_is_told_by_a_sign(tmp_path, home):
    app = opened(tmp_path)
    async with app.run_test(size=MIDDLE) as pilot:
        await ready(pilot)
        await asked_for_export(pilot)
        await until(pilot, lambda: "●" in row_of(app, " HTML,") and "○" in row_of(app, " JSON,"))
        app.focused.value = "x.json"
        await until(pilot, lambda: "○" in row_of(app, " HTML,") and "●" in row_of(app, " JSON,"))


async def test_a_case_tells_percentiles_references_checks_and_expectations(tmp_path, home):
    app = opened(tmp_path)
    async with app.run_test(size=(200, 60)) as pilot:
        await ready(pilot)
        await pilot.press("tab", "down", "enter")
        await until(pilot, lambda: isinstance(app.screen, CaseScreen))
        await until(pilot, lambda: "one process alone" in shown(app))
        figures = row_of(app, "lower").split()
        assert figures[figures.index("time") + 1 :][:12] == ["2", *["2.04", "ms"] * 5, "lower"]
        await until(pilot, lambda: "1.02 ms" in row_of(app, "one process alone"))
        await until(pilot, lambda: "✗ failed" in row_of(app, "sum  "))
        await until(pilot, lambda: "max 5.00 ms" in row_of(app, "time p50"))
        await until(pilot, lambda: "width" in shown(app))
        await until(pilot, lambda: "Launched by Open MPI" in shown(app))


async def test_a_case_opens_from_what_was_loaded_and_reads_no_file(tmp_path, home):
    app = opened(tmp_path)
    async with app.run_test(size=(200, 60)) as pilot:
        page = await ready(pilot)
        await pilot.press("tab", "down")
        await until(pilot, lambda: "check sum failed on rank 1" in words_of(app, "#case-words"))
        await until(pilot, lambda: settled(page))
        page._views.cases.run.summary.folder.events.unlink()
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, CaseScreen))
        await until(pilot, lambda: "max 5.00 ms" in row_of(app, "time p50"))
        await until(pilot, lambda: "Launched by Open MPI" in shown(app))


@pytest.mark.long
async def test_without_a_mark_the_run_before_of_the_same_suite_is_a(tmp_path, home):
    a_run(home, 4, 1.0, suite="other")
    a_run(home, 5, 1.0)
    app = opened(tmp_path)
    async with app.run_test(size=MIDDLE) as pilot:
        page = await ready(pilot)
        await pilot.press("space")
        assert page._pane.marked == page._pane.selected_run().id
        await pilot.press("space", "c")
        assert page._pane.marked is None
        await compared(pilot, "20010103", "20010105")
        reason = "Not judged, no valid result (check sum failed in a): made[width=2,mode=a]."
        assert reason in " ".join(words_of(app, "#remarks").split())
        await pilot.press("tab", "down", "enter")
        await until(pilot, lambda: isinstance(app.screen, CaseScreen))
        assert app.screen._case.id == "made[width=2,mode=a]"
        await pilot.press("escape", "shift+tab", "end")
        await until(pilot, lambda: "Nothing to compare with" in shown(app))


@pytest.mark.long
async def test_plots_follow_metric_parameter_case_and_filter(tmp_path, home):
    a_run(home, 4, 9.0, suite="other")
    app = opened(tmp_path)
    async with app.run_test(size=MIDDLE) as pilot:
        page = await ready(pilot)
        chart = page._views.plot.chart

        def points():
            return [(spot.series, spot.point.x, spot.point.y) for spot in chart._points]

        await pilot.press("down", "m")
        await until(pilot, lambda: [y for _, _, y in points()] == [1.0, 2.0, 1.02])
        await until(pilot, lambda: "time (m: 1 of 3) of made[width=1,mode=a]" in shown(app))
        await pilot.press("n", "m")
        await until(pilot, lambda: [y for _, _, y in points()] == [20.0, 40.0, 20.4])
        await until(pilot, lambda: "warps (m: 2 of 3) of made[width=2,mode=a]" in shown(app))
        await pilot.press("N", "slash")
        app.focused.value = "since:2001-01-02"
        await until(pilot, lambda: [y for _, _, y in points()] == [20.0, 10.2])
        await pilot.press("escape", "p", "m", "m")
        await until(pilot, lambda: "time (m: 1 of 3) of made over width" in shown(app))
        await until(pilot, lambda: points()[:2] == [(0, 1.0, 1.02), (0, 2.0, 2.04)])
        await until(
            pilot, lambda: "mode=b: 1 1.02 ms, 2 2.04 ms, 4 4.08 ms" in words_of(app, "#plot-words")
        )
        await pilot.press("p")
        await until(pilot, lambda: "over mode (p: 2 of 2)" in shown(app))
        assert {x for _, x, _ in points()} == {"a", "b"}
        await pilot.press("tab", "right", "right")
        await until(pilot, lambda: "mode b, time in ms 1.02 (" in shown(app))


async def test_what_cannot_be_plotted_or_read_is_told(tmp_path):
    home = tmp_path / "home"
    broken = a_run(home, 1, 1.0)
    broken.events.write_text("{}\n")
    empty = [
        *make_started_run(describe_case(metrics=[])),
        case_judged(status="error"),
        run_end("error", 4),
    ]
    record_run(home, empty, verdict="error")
    app = opened(tmp_path)
    async with app.run_test(size=MIDDLE) as pilot:
        page = await ready(pilot)
        await pilot.press("p")
        await until(pilot, lambda: "a measured nothing" in shown(app))
        for view in ("cases", "compare", "over runs"):
            await pilot.press("v")
            assert page._view == view
        await pilot.press("end")
        await until(pilot, lambda: "is no event of a run" in words_of(app, "#plotted"))
        await pilot.click("ViewTab:first-of-type")
        await until(pilot, lambda: page._view == "cases")
        await until(pilot, lambda: "is no event of a run" in words_of(app, "#run-words"))


async def test_shows_why_a_run_with_a_huge_file_cannot_be_read(tmp_path):
    home = tmp_path / "home"
    for number, name in ((1, "report.json"), (2, "run.json")):
        folder = a_run(home, number, 1.0)
        (folder.path / name).touch()
        os.truncate(folder.path / name, 40 * 10**9)
    app = opened(tmp_path)
    async with app.run_test(size=MIDDLE) as pilot:
        await until(pilot, lambda: app.screen.query("#run-words"))
        await until(pilot, lambda: "run.json has 40.0 GB" in words_of(app, "#run-words"))
        assert "unreadable" in shown(app)
        await pilot.press("down")
        await until(pilot, lambda: "report.json has 40.0 GB" in words_of(app, "#run-words"))


# What is done with a run


async def test_a_run_opens_on_the_run_page(tmp_path, home):
    app = opened(tmp_path)
    async with app.run_test(size=MIDDLE) as pilot:
        await ready(pilot)
        await pilot.press("down", "o")
        await until(pilot, lambda: app.current_mode == "run")
        assert app.context.feed.folder.id.startswith("20010102")
        await until(pilot, lambda: app.context.feed.status == "passed")
        await pilot.press("3", "down", "enter")
        await until(pilot, lambda: app.context.feed.folder.id.startswith("20010101"))


async def test_attaching_takes_a_run_that_goes_on_and_replay_one_that_has_ended(
    tmp_path, home, going, monkeypatch
):
    watched = []
    played = []
    for day in (4, 5):
        a_run(home, day, 1.0, suite="going", ends=False)
    app = opened(tmp_path)
    monkeypatch.setattr(
        app.context, "replay_run", lambda folder, speed: played.append((folder.id, speed))
    )
    monkeypatch.setattr(app.context, "watch_run", lambda folder: watched.append(folder.id[:8]))
    async with app.run_test(size=MIDDLE, notifications=True) as pilot:
        await ready(pilot)
        await pilot.press("end", "a", "r", "y", "home", "down", "a")
        assert watched == ["20010105", "20010104"]
        assert played == [("20010101-083000-made-up", 1.0)]
        assert app.clipboard == "20010101-083000-made-up"
        await pilot.press("r")
        await until(pilot, lambda: "is still running" in shown(app))
        assert len(played) == 1


async def asked_for_export(pilot):
    await pilot.press("e")
    await until(pilot, lambda: isinstance(pilot.app.screen, ExportDialog))


@pytest.mark.long
async def test_a_run_is_exported_in_the_format_of_the_ending(tmp_path, home):
    app = opened(tmp_path)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        page = await ready(pilot)
        await asked_for_export(pilot)
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is page)
        await asked_for_export(pilot)
        await pilot.press("enter")
        page_file = tmp_path / "20010103-083000-made-up.html"
        await until(pilot, page_file.exists)
        assert page_file.read_text().startswith("<!doctype html>")
        await asked_for_export(pilot)
        await pilot.press("shift+tab", "down", "enter", "tab", "enter")
        written = tmp_path / "20010103-083000-made-up.csv"
        await until(pilot, written.exists)
        assert written.read_text().startswith("run,suite,started")
        await asked_for_export(pilot)
        app.focused.value = f"{tmp_path}/mine.json"
        await pilot.press("enter")
        await until(pilot, (tmp_path / "mine.json").exists)
        assert json.loads((tmp_path / "mine.json").read_text())["schema"] == "spbench.report/1"
        await asked_for_export(pilot)
        app.focused.value = f"{written}/x.csv"
        await pilot.press("enter")
        await until(pilot, lambda: "cannot write" in shown(app))
        names = {path.name for path in tmp_path.glob("*.*")}
        assert names == {page_file.name, written.name, "mine.json"}


@pytest.mark.long
async def test_a_file_that_is_there_is_replaced_only_after_a_yes(tmp_path, home):
    there = tmp_path / "20010102-083000-made-up--20010103-083000-made-up.md"
    there.write_text("mine")
    app = opened(tmp_path)
    async with app.run_test(size=MIDDLE) as pilot:
        page = await ready(pilot)
        await pilot.press("c")
        await compared(pilot, "20010102", "20010103")
        for answer in "ny":
            assert there.read_text() == "mine"
            await asked_for_export(pilot)
            await pilot.press("shift+tab", "down", "down", "enter", "tab", "enter")
            await until(pilot, lambda: isinstance(app.screen, Confirm))
            await pilot.press(answer)
            await until(pilot, lambda: app.screen is page)
        await until(pilot, lambda: r"| made\[width=1,mode=a\] | time |" in there.read_text())


async def test_readonly_exports_nothing(tmp_path, home):
    app = opened(tmp_path, readonly=True)
    async with app.run_test(size=MIDDLE) as pilot:
        page = await ready(pilot)
        await pilot.press("e")
        await pilot.pause()
        assert app.screen is page
        assert "Export" not in shown(app)
        await until(pilot, lambda: "readonly" in shown(app))


async def test_of_runs_passed_by_only_the_last_is_shown(tmp_path, home, monkeypatch):
    monkeypatch.setattr(page_module, "_LOAD_DELAY", 0.0)
    held = threading.Event()
    loads = []
    load = RunLibrary.load

    def slowly(library, folder):
        loads.append(folder.id[:8])
        if folder.id.startswith("20010102"):
            held.wait(10)
        return load(library, folder)

    app = opened(tmp_path)
    async with app.run_test(size=MIDDLE) as pilot:
        page = await ready(pilot)
        monkeypatch.setattr(RunLibrary, "load", slowly)
        await pilot.press("down")
        await until(pilot, lambda: loads == ["20010102"])
        await pilot.press("down")
        await until(pilot, lambda: settled(page))
        held.set()
        await pilot.pause(0.05)
        assert page._views.cases.run.summary.id.startswith("20010101")


# The library


def test_a_run_is_read_again_only_when_it_has_changed(home, monkeypatch):
    reads = []
    load = load_run

    def read(folder):
        reads.append(folder.id)
        return load(folder)

    monkeypatch.setattr(library_module, "load_run", read)
    library = RunLibrary(home)
    folder = library.summaries()[0].folder
    first = library.load(folder)
    assert library.load(folder) is first
    assert first.cases["made[width=1,mode=a]"].samples == {}
    folder.write_json("report.json", {})
    assert library.load(folder) is not first
    assert len(reads) == 2
    assert library.format_passed(folder.id) == "5/6"
    assert library.format_passed("unknown") == ""
    folder.write_json("run.json", folder.read_json("run.json") | {"verdict": "cancelled"})
    assert library.summaries()[0].verdict == "cancelled"


def test_a_run_that_was_killed_is_read_once_and_by_one_thread(home, monkeypatch):
    reads = []
    load = load_run

    def read(folder):
        reads.append(folder.id)
        held.wait(0.2)
        return load(folder)

    held = threading.Event()
    monkeypatch.setattr(library_module, "load_run", read)
    library = RunLibrary(home)
    folder = a_run(home, 4, 1.0, ends=False)
    dead = {"pid": 2**30, "host": socket.gethostname(), "started": 1.0}
    folder.write_json("run.json", folder.read_json("run.json") | {"console": dead})
    threads = [threading.Thread(target=library.load, args=(folder,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert reads == [folder.id]
    assert library.load(folder).summary.verdict == RunStatus.UNFINISHED


def test_the_library_keeps_no_more_than_its_share(home, monkeypatch):
    monkeypatch.setattr(library_module, "MAX_CACHED_RUNS", 2)
    library = RunLibrary(home)
    for summary in library.summaries():
        library.load(summary.folder)
    kept = [library.format_passed(run.id) for run in library.summaries()]
    assert kept == ["", "6/6", "6/6"]


def test_the_run_before_is_of_the_same_suite(home):
    a_run(home, 4, 1.0, suite="other")
    runs = RunLibrary(home).summaries()
    assert find_previous_run(runs, runs[0]) is None
    assert find_previous_run(runs, runs[1]) is runs[2]
    assert find_previous_run(runs, runs[3]) is None


def test_a_readonly_console_writes_no_index(home):
    assert len(RunLibrary(home, readonly=True).summaries()) == 3
    assert not (home / "index.sqlite").exists()
    assert len(RunLibrary(home).summaries()) == 3
    assert (home / "index.sqlite").exists()


def test_counts_of_run_json_stand_in_the_list_however_large_the_report_is(home):
    folder = a_run(home, 4, 1.0)
    folder.write_json("run.json", folder.read_json("run.json") | {"counts": {"passed": 3, "x": 1}})
    folder.report.write_bytes(b" " * (2 << 20))
    library = RunLibrary(home)
    library.summaries()
    assert library.format_passed(folder.id) == "3/4"


async def test_findings_are_all_shown_once_and_a_case_has_its_own_reasons(tmp_path):
    slow = {"rank": 1, "host": "node01", "ratio": 3.0, "seconds": 6.0, "since": 1e9, "cause": True}
    case = case_of(1, "a") | {"measures": "rank"}
    events = [
        *make_started_run(case),
        *(
            rank_event("case_end", rank, case=case["id"], disturbed={"stolen": 0.5})
            for rank in (0, 1)
        ),
        case_judged(case["id"], "failed", "no tile", stragglers=[slow]),
    ]
    found = collect_findings(build_state(events))
    assert len(found) == 2
    record_run(tmp_path / "home", [*events, job_end(), run_end("failed", 1, findings=found)])
    app = opened(tmp_path)
    async with app.run_test(size=MIDDLE) as pilot:
        await ready(pilot)
        for sentence in found:
            assert words_of(app, "#run-words").count(sentence) == 1
        # The last words of the last one: none is cut off.
        await until(pilot, lambda: "on a dedicated machine" in " ".join(shown(app).split()))
        assert words_of(app, "#case-words") == f"{case['id']}\nno tile"
        await pilot.press("tab", "enter")
        await until(pilot, lambda: isinstance(app.screen, CaseScreen))
        await until(pilot, lambda: "rank 1 on node01 is 3.00x as slow" in shown(app))
        assert "≈ noisy: the hypervisor of node01 gave 50 %" in shown(app)
