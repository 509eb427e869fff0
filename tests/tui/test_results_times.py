"""The charts of times, the marks and the details on the Results page."""

import json
import re
import shutil
from dataclasses import replace

import pytest
from textual.app import App

from spbench.record.planted_faults import add_found_fault
from spbench.record.runs.marks import MarksFormat, RunMark
from spbench.report.comparison.rows import case_rows
from spbench.report.distribution import make_distribution
from spbench.report.series import build_run_series
from spbench.tui.results.case_times import LoadedTimes, show_compared_times
from spbench.tui.results.cases_view import RecordedCaseRows
from spbench.tui.results.library import RunLibrary
from spbench.tui.results.plot_series import describe_only_run
from spbench.tui.results.run_rows import RunRows, name_starts
from spbench.tui.results.times_chart import TimesChart
from spbench.tui.results.views import View
from spbench.tui.widgets.plot import Plot
from spbench.tui.widgets.table_columns import TableCell
from support.sample_events import (
    case_judged,
    describe_case,
    job_end,
    make_started_run,
    record_run,
    run_end,
)
from support.sample_runs import make_case, make_run
from support.tui.app_driver import SIZES, read_screen, wait_until
from support.tui.results_page import (
    MEDIUM_SIZE,
    find_line,
    open_results,
    read_widget,
    record_synthetic_run,
    wait_for_comparison,
    wait_for_run,
)


def draw(distributions, width=60, height=18, **options):
    chart = TimesChart(**options)
    chart.update(distributions, "b takes 2.00x the time of a: worse")
    return ["".join(text for text, _ in line) for line in chart.draw(width, height)]


def render(chart, width=60, height=18):
    return "\n".join("".join(text for text, _ in line) for line in chart.draw(width, height))


def make_single(samples):
    """Return the distribution of times that are evenly spread from 1 to 2 ms."""
    times = [1.0 + index / samples for index in range(samples)]
    return [make_distribution("", times, None)]


def make_pair():
    a = make_distribution("a", [1.0, 1.1, 1.2, 1.3], None)
    b = make_distribution("b", [2.0, 2.1, 2.2, 2.3], None)
    return [a, b]


@pytest.mark.parametrize(("ascii_only", "glyphs"), [(False, "█⣿━═┃║"), (True, "#o=~|!")])
def test_runs_differ_by_signs_and_not_by_colour_only(ascii_only, glyphs):
    lines = draw(make_pair(), ascii=ascii_only)
    assert all(glyph in "".join(lines[1:-4]) for glyph in glyphs)
    assert f"{glyphs[0]} a  {glyphs[1]} b" in lines[0]


def test_both_runs_have_the_same_axis_and_the_ratio_in_words():
    lines = draw(make_pair())
    quartiles_a = next(line for line in lines if line.startswith("a "))
    quartiles_b = next(line for line in lines if line.startswith("b "))
    assert quartiles_a.rindex("─") < quartiles_b.index("┄")
    assert lines[-1].rstrip() == "b takes 2.00x the time of a: worse"
    assert "iterations by time in ms" in lines[0]
    assert max(map(len, lines)) <= 60


def test_bars_of_both_runs_have_the_same_height_for_an_iteration():
    a = make_distribution("a", [1.0, 1.0, 1.0, 1.0, 2.0], None)
    b = make_distribution("b", [1.2, 1.4, 1.6, 1.8], None)
    lines = draw([a, b], width=70, ascii=True)
    assert "up to 4 a bar" in lines[0]
    assert len([line for line in lines if line.startswith("  ") and "#" in line]) == 5
    assert len([line for line in lines if line.startswith("  ") and "o" in line]) == 1


@pytest.mark.parametrize(("samples", "bars"), [(20, 8), (400, 40)])
def test_number_of_bars_follows_that_of_iterations(samples, bars):
    chart = TimesChart()
    chart.update(make_single(samples))
    assert chart._count_bins(80) == bars
    line = chart.draw(82, 12)[-4]
    assert len({text.strip() for text, _ in line[1:]}) == 1
    assert len(line) == 1 + bars
    assert all(len(text) == 80 // bars for text, _ in line[1:])


def test_long_texts_of_the_chart_are_wrapped():
    chart = TimesChart()
    chart.update([], message="the times of this run cannot be read")
    assert " ".join(render(chart, 20, 4).split()) == "the times of this run cannot be read"
    chart.update(make_pair())
    assert "…" not in render(chart, 40)


@pytest.mark.parametrize("height", range(1, 40))
def test_chart_of_any_height_has_the_ratio(height):
    lines = draw(make_pair(), width=70, height=height)
    assert len(lines) <= height
    assert len(lines) <= 32, "bars are not higher on a very large screen"
    if height > 4:
        assert "b takes 2.00x" in lines[-1]


def test_times_are_cached_for_the_last_runs_only(home):
    library = RunLibrary(home)
    runs = library.summaries()
    times = [library.load_times(run.folder)["made[width=1,mode=a]"] for run in runs]
    assert [list(values) for values in times] == [[1.02, 1.02], [2.0, 2.0], [1.0, 1.0]]
    library.max_cached_times = 1
    library.load(runs[1].folder)
    assert list(library.load_times(runs[0].folder)["made[width=4,mode=b]"]) == [4.08, 4.08]


@pytest.mark.parametrize("size", [*SIZES, MEDIUM_SIZE])
async def test_times_of_both_runs_are_on_one_chart(tmp_path, home, size):
    app = open_results(tmp_path)
    async with app.run_test(size=size) as pilot:
        page = await wait_for_run(pilot)
        await pilot.press("end", "space", "up", "c")
        await wait_for_comparison(pilot, "20010101", "20010102")
        if size[1] >= 40:
            await wait_until(pilot, lambda: "b takes 2.00x the time of a" in read_screen(app))
        await pilot.press("v")
        assert page._view == "times"
        await wait_until(pilot, lambda: "a: median 1.00 ms" in read_screen(app))
        await wait_until(pilot, lambda: "b: median 2.00 ms" in read_screen(app))
        await wait_until(pilot, lambda: "b takes 2.00x the time of a" in read_screen(app))
        await wait_until(pilot, lambda: "mode=a] (case 1 of 6, n: next)" in read_screen(app))
        await pilot.press("n")
        await wait_until(pilot, lambda: "b: median 4.00 ms" in read_screen(app))
        assert "mode=a] (case 2 of 6, n: next)" in read_screen(app)


async def test_case_chosen_in_the_comparison_is_chosen_in_all_views(tmp_path, home):
    app = open_results(tmp_path)
    async with app.run_test(size=MEDIUM_SIZE) as pilot:
        page = await wait_for_run(pilot)
        await pilot.press("end", "space", "up", "c")
        await wait_for_comparison(pilot, "20010101", "20010102")
        await pilot.press("tab", "down", "down")
        await wait_until(
            pilot, lambda: page._views.cases.table.cursor_key == "made[width=4,mode=a]"
        )
        await wait_until(pilot, lambda: "b: median 8.00 ms" in read_screen(app))


async def test_fault_of_another_case_is_no_mark_of_a_run(tmp_path, home):
    for day, case in ((2, "made[width=1,mode=a]"), (3, "other")):
        run = home / "runs" / f"2001010{day}-083000-made-up" / "run.json"
        request = {"request": {"inject": [f"slow@{case}"]}}
        run.write_text(json.dumps(json.loads(run.read_text()) | request))
    app = open_results(tmp_path)
    async with app.run_test(size=(200, 60)) as pilot:
        page = await wait_for_run(pilot)
        case = page._views.cases.selected_case()
        assert case is not None
        assert case.id == "made[width=1,mode=a]"
        await pilot.press("m")
        await wait_until(pilot, lambda: "(without 1 marked" in read_widget(app, "#plot-summary"))
        spots = page._views.plot.chart._points
        assert [spot.point.is_apart for spot in spots] == [False, True, False]
        assert "2001-01-03 1.02 ms !" not in read_widget(app, "#plot-summary")


def test_point_says_that_its_fault_was_found():
    part = make_case("x", status="failed", reason=add_found_fault("check sum failed", "slow"))
    run = make_run(part)
    series = build_run_series([run], "x", "time_ms")
    marks = {run.summary.id: [RunMark.FAULT, RunMark.OTHER_MACHINE]}
    assert " fault found ≠ other machine (" in describe_only_run(series, 0.0, marks)


def test_case_of_a_slow_link_has_its_sign():
    finding = "the link of ranks 0 and 1 takes 3.00x the time of the median link in links (1.0 us)"
    run = replace(make_run(make_case("links"), make_case("other")), findings=(finding,))
    rows = RecordedCaseRows(run)
    statuses = [rows.cells(case)[0] for case in ("links", "other")]
    assert statuses == [TableCell("✓ passed ▲", "slow"), TableCell("✓ passed", "passed")]


async def test_run_without_an_earlier_one_has_its_times_only(tmp_path, home):
    app = open_results(tmp_path)
    async with app.run_test(size=MEDIUM_SIZE) as pilot:
        await wait_for_run(pilot)
        await pilot.press("end", "v", "v")
        await wait_until(pilot, lambda: find_line(app, "│ median 1.00 ms, quartiles"))


@pytest.mark.parametrize("size", [*SIZES, MEDIUM_SIZE])
async def test_list_marks_runs_with_words(tmp_path, home, size):
    for day, changes in (
        (1, {"request": {"inject": ["slow"]}}),
        (2, {"fingerprint": {"id": "x", "hosts": ["node02"]}}),
        (3, {"fingerprint": {"id": "y", "hosts": ["node01"]}}),
    ):
        run = home / "runs" / f"2001010{day}-083000-made-up" / "run.json"
        run.write_text(json.dumps(json.loads(run.read_text()) | changes))
    app = open_results(tmp_path)
    async with app.run_test(size=size) as pilot:
        page = await wait_for_run(pilot)
        is_wide = size[0] > MEDIUM_SIZE[0]
        fault = "! fault" if is_wide else "!"
        mark = "≠ other machine" if is_wide else "≠"
        await wait_until(pilot, lambda: fault in find_line(app, "2001-01-01"))
        await wait_until(pilot, lambda: mark in find_line(app, "2001-01-02"))
        assert "status" in find_line(app, " started ")
        if page._pane._rows.marks_format is MarksFormat.SIGNS:
            assert size == MEDIUM_SIZE
            assert "─ ! fault  ≠ other machine ─" in read_screen(app)
        await pilot.press("slash")
        app.focused.value = "mark:fault"
        await wait_until(pilot, lambda: [run.id[7] for run in page._pane.shown] == ["1"])


async def test_marked_runs_are_neither_best_nor_worst(tmp_path, home):
    run = home / "runs" / "20010102-083000-made-up" / "run.json"
    run.write_text(json.dumps(json.loads(run.read_text()) | {"request": {"inject": ["slow"]}}))
    app = open_results(tmp_path)
    async with app.run_test(size=(200, 60)) as pilot:
        page = await wait_for_run(pilot)
        await pilot.press("m")
        await wait_until(pilot, lambda: "worst 1.02 ms (2001-01-03)" in read_screen(app))
        await wait_until(pilot, lambda: "2001-01-02 2.00 ms ! fault" in read_screen(app))
        assert "(without 1 marked or unfinished run)" in read_widget(app, "#plot-summary")
        assert "◦ not comparable" in read_screen(app)
        assert find_line(app, "2001-01-02 !"), "the axis has the sign"
        chart = page._views.plot.chart
        assert chart.size.height == 40
        assert [spot.point.is_apart for spot in chart._points] == [False, True, False]
        assert chart._scales[1].high < 2.0, "the marked run does not widen the scale"


async def test_runs_with_an_unfinished_case_are_neither_best_nor_worst(tmp_path, home):
    log = home / "runs" / "20010102-083000-made-up" / "events.jsonl"
    events = [json.loads(line) for line in log.read_text().splitlines()]
    for event in events:
        if event["event"] == "case_judged":
            event["status"] = "cancelled"
    log.write_text("".join(f"{json.dumps(event)}\n" for event in events))
    app = open_results(tmp_path)
    async with app.run_test(size=(200, 60)) as pilot:
        page = await wait_for_run(pilot)
        await pilot.press("m")
        await wait_until(pilot, lambda: "worst 1.02 ms (2001-01-03)" in read_screen(app))
        chart = page._views.plot.chart
        assert [spot.point.is_apart for spot in chart._points] == [False, True, False]


async def test_plot_over_runs_names_a_newest_run_without_times(tmp_path, home):
    log = home / "runs" / "20010103-083000-made-up" / "events.jsonl"
    events = [json.loads(line) for line in log.read_text().splitlines()]
    measured = ("samples", "metric")
    log_events = [event for event in events if event["event"] not in measured]
    log.write_text("".join(f"{json.dumps(event)}\n" for event in log_events))
    app = open_results(tmp_path)
    async with app.run_test(size=MEDIUM_SIZE) as pilot:
        page = await wait_for_run(pilot)
        await pilot.press("tab", "down", "m")
        title = (
            "time (m: 1 of 3) of made[width=2,mode=a] (case 2 of 6, n: next)\n"
            "Not measured in 2001-01-03 failed"
        )
        await wait_until(pilot, lambda: read_widget(app, "#plot-title") == title)
        await wait_until(pilot, lambda: page._views.plot.chart.count_stops() == 2)


async def test_deleted_run_is_reported_and_unmarked(tmp_path, home):
    app = open_results(tmp_path)
    async with app.run_test(size=MEDIUM_SIZE) as pilot:
        page = await wait_for_run(pilot)
        page.poll_seconds = 0.05
        page._library._loaded.clear()
        await pilot.press("end", "space", "up", "c")
        await wait_for_comparison(pilot, "20010101", "20010102")
        shutil.rmtree(home / "runs" / "20010101-083000-made-up")
        await wait_until(pilot, lambda: page._pane.marked == ())
        await wait_until(pilot, lambda: "No earlier run of made-up; mark two" in read_screen(app))


async def test_marked_run_is_compared_with_an_earlier_one(tmp_path, home):
    app = open_results(tmp_path)
    async with app.run_test(size=MEDIUM_SIZE) as pilot:
        await wait_for_run(pilot)
        await pilot.press("space", "c")
        await wait_for_comparison(pilot, "20010102", "20010103")


async def test_two_marked_runs_are_compared_wherever_the_cursor_is(tmp_path, home):
    app = open_results(tmp_path)
    async with app.run_test(size=MEDIUM_SIZE) as pilot:
        page = await wait_for_run(pilot)
        await pilot.press("space", "end", "space", "c")
        await wait_for_comparison(pilot, "20010101", "20010103")
        assert " a 2001-01-01" in read_screen(app)
        assert " b 2001-01-03" in read_screen(app)
        await pilot.press("up")
        await wait_until(pilot, lambda: page._pane.selected_run().id.startswith("20010102"))
        await pilot.press("space")  # the third mark replaces that of run a
        await wait_for_comparison(pilot, "20010102", "20010103")
        await pilot.press("space")
        await wait_until(pilot, lambda: [run[:8] for run in page._pane.marked] == ["20010103"])


async def test_advises_a_second_mark_for_the_marked_run(tmp_path, home):
    app = open_results(tmp_path)
    async with app.run_test(size=MEDIUM_SIZE) as pilot:
        await wait_for_run(pilot)
        await pilot.press("end", "space", "c")
        await wait_until(pilot, lambda: "mark another run with Space" in read_screen(app))


async def test_details_of_a_run_use_a_large_screen(tmp_path, home):
    app = open_results(tmp_path)
    async with app.run_test(size=(200, 60)) as pilot:
        await wait_for_run(pilot)
        await wait_until(pilot, lambda: "versions    Open MPI 5.0" in read_screen(app))
        await wait_until(pilot, lambda: "command     spbench run x.yaml" in read_screen(app))
        await wait_until(
            pilot, lambda: "failed      made[width=2,mode=a]: check" in read_screen(app)
        )
        await wait_until(pilot, lambda: "median 1.02 ms, quartiles" in read_screen(app))


class NarrowingApp(App[None]):
    def compose(self):
        yield TimesChart()


async def test_cursor_follows_the_last_bar_of_a_narrower_chart():
    app = NarrowingApp()
    async with app.run_test(size=(120, 20)) as pilot:
        chart = app.query_one(TimesChart)
        chart.update(make_single(400))
        chart.move_to(10_000)
        await pilot.resize_terminal(40, 20)
        await wait_until(pilot, lambda: chart.cursor == chart.count_stops() - 1)
        assert " to " in read_screen(app)


async def test_run_that_shares_no_case_with_earlier_ones_is_explained(tmp_path, home):
    record_unrelated_run(home)
    app = open_results(tmp_path)
    async with app.run_test(size=MEDIUM_SIZE) as pilot:
        await wait_for_run(pilot)
        await pilot.press("c")
        await wait_until(pilot, lambda: "No earlier run of made-up has a case" in read_screen(app))


def record_unrelated_run(home):
    """Record the newest run, which has no case of the others."""
    folder = record_run(home, [*make_started_run(describe_case("alone")), run_end("passed", 0)])
    summary = folder.read_json("run.json")
    folder.write_json("run.json", summary | {"verdict": "passed", "finished": 2000.0})


async def test_run_a_of_the_page_gives_way_to_one_with_common_cases(tmp_path, home):
    record_unrelated_run(home)
    app = open_results(tmp_path)
    async with app.run_test(size=MEDIUM_SIZE) as pilot:
        page = await wait_for_run(pilot)
        oldest = page._pane.shown[-1].id
        page._pane.compare_run(page._pane.shown[1].id, oldest)  # as after R
        await pilot.press("c")
        await wait_for_comparison(pilot, "20010101", "20010103")
        await pilot.press("home")
        await wait_until(pilot, lambda: "No earlier run of made-up has a case" in read_screen(app))
        assert page._pane.marked == ()
        await pilot.press("down")
        await wait_for_comparison(pilot, "20010102", "20010103")


@pytest.mark.parametrize("size", SIZES)
async def test_runs_without_a_common_case_leave_the_cases(tmp_path, home, size):
    record_unrelated_run(home)
    app = open_results(tmp_path)
    async with app.run_test(size=size) as pilot:
        page = await wait_for_run(pilot)
        await pilot.press("end", "space", "home", "c")
        await wait_until(pilot, lambda: "No case is in run a too, 20010101" in read_screen(app))
        assert page._views.cases.display
        assert len(page._pane.marked) == 1
        await pilot.press("down")
        await wait_for_comparison(pilot, "20010101", "20010103")
        assert page._views.compare.display
        assert "No case is in run a" not in read_screen(app)


async def test_change_of_the_metrics_keeps_case_and_metric(tmp_path, home):
    app = open_results(tmp_path)
    async with app.run_test(size=MEDIUM_SIZE) as pilot:
        page = await wait_for_run(pilot)
        await pilot.press("end", "space", "up", "c")
        await wait_for_comparison(pilot, "20010101", "20010102")
        table = page._views.compare.table
        await pilot.press("tab", "down", "A", "down")
        await wait_until(pilot, lambda: table.cursor_key == ("made[width=2,mode=a]", "warps"))
        await pilot.press("A")
        await wait_until(pilot, lambda: table.cursor_key == ("made[width=2,mode=a]", "time_ms"))
        await pilot.press("A")
        await wait_until(pilot, lambda: table.cursor_key == ("made[width=2,mode=a]", "warps"))
        shown = page._views.compare.comparison
        page._reload()
        await wait_until(pilot, lambda: page._views.compare.comparison is not shown)
        assert table.cursor_key == ("made[width=2,mode=a]", "warps")


def test_chart_has_the_readable_run_and_the_reason_of_the_other(home):
    library = RunLibrary(home)
    b, a = (library.load(summary.folder) for summary in library.summaries()[:2])
    row = case_rows(library.compare(a, b))[0]
    times = LoadedTimes(library.load_times(b.summary.folder))
    chart = TimesChart()
    show_compared_times(chart, row, (None, times))
    assert "reading the times…" in render(chart)
    show_compared_times(chart, row, (LoadedTimes({}, "run x: deleted"), times))
    assert "b: median 2.04 ms" in render(chart)
    assert "a: run x: deleted" in render(chart)


def test_runs_of_the_same_minute_have_different_names():
    starts = {"1-aaaa": 30.0, "2-bbbb": 31.0, "3-cccc": 31.0, "4-dddd": 90.0, "5-eeee": None}
    assert list(name_starts(starts, 100.0).values()) == [
        "01-01 00:00:30",
        "01-01 00:00 bbbb",
        "01-01 00:00 cccc",
        "01-01 00:01:30",
        "unknown",
    ]


def test_days_without_equal_minutes_have_no_seconds():
    starts = {"1-aaaa": 30.0, "2-bbbb": 31.0, "3-cccc": 86430.0}
    names = name_starts(starts, 90000.0)
    assert list(names.values()) == ["01-01 00:00:30", "01-01 00:00:31", "01-02 00:00"]


def test_list_tells_equal_rows_apart(home):
    summaries = RunLibrary(home).summaries()
    runs = [replace(run, id=f"{run.id}-{run.id[:8]}", started=60.0) for run in summaries]
    rows = RunRows(lambda run: None)
    rows.show(runs, 100.0)
    assert len({rows.cells(run.id)[1] for run in runs}) == len(runs)


async def test_plot_has_the_marks_of_all_runs(tmp_path, home):
    for day, machine in ((1, "old"), (2, "old"), (3, "new")):
        run = home / "runs" / f"200101{day:02}-083000-made-up" / "run.json"
        fingerprint = {"id": machine, "hosts": [machine], "processors": [machine], "cores": [8]}
        run.write_text(json.dumps(json.loads(run.read_text()) | {"fingerprint": fingerprint}))
    app = open_results(tmp_path)
    async with app.run_test(size=(200, 60)) as pilot:
        page = await wait_for_run(pilot)
        await pilot.press("slash")
        app.focused.value = "status:passed"
        await wait_until(pilot, lambda: [run.id[7] for run in page._pane.shown] == ["2", "1"])
        page._show(View.RUNS)
        await wait_until(pilot, lambda: "2 runs" in read_widget(app, "#plot-summary"))
        assert "≠ other machine" in read_widget(app, "#plot-summary")


async def test_single_run_of_a_case_names_the_key_that_adds_one(tmp_path):
    home = tmp_path / "home"
    record_synthetic_run(home, 4, 12.5, launches=1)
    app = open_results(tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        page = await wait_for_run(pilot)
        plot = page._views.plot
        page._show(View.RUNS)
        await wait_until(
            pilot, lambda: "R runs it again" in str(plot.query_one("#plot-summary").content)
        )
        assert not plot.chart.display


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_values_of_runs_are_a_table_without_broken_entries(tmp_path, home, size):
    for day in range(4, 16):
        record_synthetic_run(home, day, 12.5, launches=1)
    app = open_results(tmp_path)
    async with app.run_test(size=size) as pilot:
        page = await wait_for_run(pilot)
        await pilot.press("m")
        await wait_until(pilot, lambda: page._views.plot.chart.count_stops() == 15)
        _, *rows = read_widget(app, "#plot-summary").splitlines()
        entries = [entry for row in rows for entry in re.split(" {3,}", row)]
        assert entries == [f"2001-01-{day:02} 12.5 ms" for day in range(15, 3, -1)]
        assert max(map(len, rows)) < page._views.plot.size.width
        assert rows[0] in read_screen(app)


def test_chart_counts_the_iterations_beyond_its_axis():
    times = [1.0 + index / 100 for index in range(50)]
    chart = TimesChart()
    distribution = make_distribution("", [*times, 900.0], None)
    assert distribution is not None
    chart.update([distribution])
    assert "1 beyond the axis, up to 900 ms" in render(chart)


def test_empty_marks_are_not_underlined(home):
    runs = RunLibrary(home).summaries()
    rows = RunRows(lambda run: None)
    rows.show(runs, 100.0, {runs[0].id: [RunMark.FAULT]})
    marks = [rows.cells(run.id)[4] for run in runs]
    assert [(cell.text, cell.style) for cell in marks[:2]] == [("! fault", "slow"), ("", "")]


def find_run_cells(app, text):
    """Return the first line with a text without the panes at the right of the runs."""
    return find_line(app, text).partition("││")[0]


async def test_run_without_another_failure_has_found_its_fault(tmp_path, home):
    failure = "check sum failed"
    fault = add_found_fault(failure, "wrong-sum")
    for day, reasons in ((4, [fault]), (5, [fault, failure])):
        cases = [describe_case(f"case{number}") for number in range(len(reasons))]
        events = [event for event in make_started_run(*cases) if event["event"] != "case_start"]
        events += [
            case_judged(case["id"], "failed", reason)
            for case, reason in zip(cases, reasons, strict=True)
        ]
        record_run(
            home,
            [*events, job_end(), run_end("failed", 1)],
            verdict="failed",
            request={"inject": ["wrong-sum"]},
            suite=f"day{day}",
            finished=2000.0,
        )
    app = open_results(tmp_path)
    async with app.run_test(size=(160, 48)) as pilot:
        await wait_for_run(pilot)
        await pilot.press("down")
        await wait_for_run(pilot)
        await wait_until(pilot, lambda: "! fault found" in find_line(app, " day4 "))
        await wait_until(pilot, lambda: find_run_cells(app, " day4 ").count("! fault") == 1)
        assert re.search("✗ failed +! ", find_line(app, " day5 "))
        await wait_until(pilot, lambda: "✗ failed" in find_line(app, " day5 "))


async def test_large_screen_plots_the_case_over_runs(tmp_path, home):
    app = open_results(tmp_path)
    async with app.run_test(size=(200, 60)) as pilot:
        page = await wait_for_run(pilot)
        plot = page.query_one("#case-history", Plot)
        await wait_until(pilot, lambda: plot.has_class("visible"))
        assert [placed.point.y for placed in plot._points] == [1.0, 2.0, 1.02]
        await pilot.press("n")
        await wait_until(pilot, lambda: plot._points[0].point.y == 2.0)
        await pilot.resize_terminal(120, 40)
        await wait_until(pilot, lambda: not plot.has_class("visible"))


@pytest.mark.parametrize("size", [(160, 48), (200, 60)])
async def test_list_of_runs_is_as_wide_as_its_columns(tmp_path, home, size):
    app = open_results(tmp_path)
    async with app.run_test(size=size) as pilot:
        page = await wait_for_run(pilot)
        await wait_until(pilot, lambda: "login" in find_line(app, "▸   2001-01-03"))
        assert "»" not in find_line(app, " started ")
        await pilot.resize_terminal(80, 24)
        await wait_until(pilot, lambda: page._pane.size.width > 70)


def test_notes_on_cut_bars_have_their_own_lines_if_they_are_long():
    times = [1.0 + 0.001 * number for number in range(200)]
    pair = [make_distribution(name, [*times, 900.0], None) for name in "ab"]
    lines = draw(pair, 50)
    assert sum("1 beyond the axis, up to 900 ms" in line for line in lines) == 2
    assert sum("beyond" in line for line in draw(pair, 90)) == 1
