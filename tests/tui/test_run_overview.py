"""The overview of a run on the Run page: hosts by case and the previous run."""

import pytest
from textual.app import App
from textual.geometry import Size

from spbench.record.outliers.host_slowness import find_host_slowness
from spbench.record.stragglers import MIN_BLOCKS
from spbench.report.comparison.compare import compare
from spbench.report.comparison.rows import case_rows
from spbench.report.previous_times import list_previous_times
from spbench.tui.run.case_rows import CaseRow
from spbench.tui.run.panels import Panel, list_panels
from spbench.tui.run.panes.overview import HostMap, PreviousRows
from spbench.tui.run.wide_layout import (
    MIN_FINDINGS_PANE_LINES,
    MIN_PARTS_LINES,
    fit_strip,
    share_left,
)
from spbench.tui.widgets.rank_strip import RankStrip
from spbench_core.events.statuses import CaseStatus
from support import sample_events as make
from support.sample_runs import make_case, make_run
from support.tui.app_driver import read_screen

SIZES = ((200, 60), (120, 40), (80, 24))


class StripApp(App):
    """An application with a strip of ranks only."""

    def compose(self):
        yield RankStrip()


@pytest.mark.parametrize(
    ("free_rows", "is_full", "lines"), [(2, True, 3), (0, True, 2), (2, False, 2)]
)
async def test_long_text_on_ranks_takes_a_free_row_of_a_full_screen(free_rows, is_full, lines):
    async with StripApp().run_test(size=(40, 10)) as pilot:
        strip = pilot.app.query_one(RankStrip)
        strip.update([1.0, 1.0], (), None, "the case is too short to tell " * 4)
        assert fit_strip(strip, 4, free_rows, is_short=False, is_full=is_full) == 2
        assert strip.styles.height.value == lines


class MapApp(App):
    """An application with a host map only."""

    def compose(self):
        yield HostMap()


async def draw_map(hosts, slowness, case, size, keys=(), slow_hosts=None):
    app = MapApp()
    async with app.run_test(size=size) as pilot:
        app.query_one(HostMap).show(hosts, slowness, case, slow_hosts)
        await pilot.press(*keys)
        return read_screen(app).splitlines()


@pytest.mark.parametrize("count", [1, 4])
async def test_few_hosts_have_a_column_and_a_ratio_for_each_case(count):
    hosts = [f"node{number}" for number in range(1, count + 1)]
    ratios = dict.fromkeys(hosts, 1.0) | {hosts[-1]: 2.47}
    lines = await draw_map(hosts, {"a": ratios, "links": {}}, "a", (60, 10))
    assert lines[0].split() == hosts
    assert lines[1].split()[1:] == ["1.00", "░"] * (count - 1) + ["2.47", "█"]
    assert "▓ slow" in lines[2]
    assert "links" not in "".join(lines)


@pytest.mark.parametrize(("width", "is_whole"), [(100, True), (50, False)])
async def test_names_of_cases_take_the_free_width(width, is_whole):
    case = "small[slice_method=horizontal,parts=4]"
    lines = await draw_map(["x", "y"], {case: {"x": 1.0, "y": 1.1}}, case, (width, 10))
    assert (case in lines[1]) is is_whole
    assert "1.10" in lines[1]


@pytest.mark.parametrize(("count", "keys"), [(2, ["home", "right"]), (20, ["home", "right"])])
async def test_host_that_was_slow_too_briefly_is_not_drawn_as_slow(count, keys):
    hosts = [f"n{number}" for number in range(count)]
    ratios = dict.fromkeys(hosts, 1.0) | {"n1": 1.35}
    for slow_hosts, mark, text in (
        (["n1"], "▓", "n1 in a: 1.35x the time of the median rank"),
        ([], "▒", "n1 in a: 1.35x as long as the median rank, too briefly"),
    ):
        args = ({"a": ratios}, "a", (80, 10), keys, {"a": slow_hosts})
        lines = await draw_map(hosts, *args)
        assert mark in lines[1]
        assert any(text in line for line in lines)


async def test_legend_has_the_colours_of_the_cells():
    app = MapApp()
    async with app.run_test(size=(60, 10)):
        chart = app.query_one(HostMap)
        chart.show(["x", "y"], {"a": {"x": 1.0, "y": 2.47}}, "a")
        cells = {segment.text.strip()[-1:]: segment.style for segment in chart.render_line(1)}
        legend = {segment.text.strip(): segment.style for segment in chart.render_line(2)}
    assert [legend[glyph].color for glyph in "░█"] == [cells[glyph].color for glyph in "░█"]


async def test_many_hosts_have_one_cell_each():
    hosts = [f"node{number:03}" for number in range(512)]
    ratios = dict.fromkeys(hosts, 1.0) | {"node300": 1.5}
    lines = await draw_map(hosts, {"a": ratios}, "a", (118, 24), ["home"])
    cells = "".join("".join(line.split()[1:]) for line in lines[1:-1])
    assert cells.count("▓") == 1
    assert sum(map(cells.count, "░▓")) == 512
    assert "node000 in a: 1.00x the time of the median rank" in "".join(lines)


@pytest.mark.parametrize("samples", [MIN_BLOCKS - 1, MIN_BLOCKS])
def test_slowness_of_a_host_is_that_of_its_slowest_rank(samples):
    times = [make.rank_event("samples", rank, values=[1.0] * samples) for rank in range(3)]
    started = make.make_started_run(make.describe_case("a", 3), hosts=("x", "x", "y"))
    case = make.build_state([*started, *times]).cases["a"]
    expected = {"x": 2.0} if samples == MIN_BLOCKS else {}
    assert find_host_slowness(case, {0: 1.0, 1: 2.0}) == expected


def test_other_work_is_not_compared_with_the_previous_run():
    run = make_run(
        make_case("a", {"time_ms": 4.0}, np=2),
        make_case("b", {"time_ms": 4.0}, np=4),
        make_case("c", {"time_ms": 4.0}, np=2, params={"halo_len": 2}),
    )
    work = {"benchmark": run.cases["a"].benchmark, "params": {"halo_len": 1}}
    cases = [make.describe_case(name, 2, **work) for name in "abc"]
    state = make.build_state([make.run_start(*cases)])
    identities = [case.identity for case in state.cases.values()]
    times = list_previous_times(run, identities)
    assert {case: time.time_ms for case, time in times.items()} == {"a": 4.0}


@pytest.mark.parametrize("size", SIZES)
def test_each_size_offers_the_overview(size):
    offered = {name for panel in list_panels(Size(*size)) for name in panel.value}
    is_full = size == (200, 60)
    assert ("lower-host-map-pane" in offered) is not is_full
    assert ("lower-previous-pane" in offered) is not is_full
    assert Panel.LOGS in list_panels(Size(*size))


def test_times_of_unfinished_and_disturbed_cases_are_marked():
    previous_run = make_run(
        make_case("a", {"time_ms": 4.0}, status="timeout"),
        make_case("b", {"time_ms": 4.0}, noisy="other work used the cores"),
        make_case("c", {"time_ms": 4.0}),
    )
    work = {"benchmark": "made.up", "params": {"halo_len": 1}}
    cases = [make.describe_case(name, 2, **work) for name in "abc"]
    state = make.build_state([make.run_start(*cases)])
    times = list_previous_times(previous_run, [case.identity for case in state.cases.values()])
    current = {
        name: CaseRow(CaseStatus.RUNNING, name, 2, 2.0, True, None, (0, 0)) for name in "abc"
    }
    rows = PreviousRows(times, current)
    cells = {name: rows.cells(name) for name in "abc"}
    assert [cells[name][1].text for name in "abc"] == ["…4.00 ms", "~4.00 ms", "4.00 ms"]
    assert [cells[name][2] for name in "abc"] == ["…2.00 ms"] * 3


@pytest.mark.parametrize("status", [CaseStatus.CANCELLED, CaseStatus.TIMEOUT])
def test_cancelled_case_is_not_compared_with_the_previous_run(status):
    previous_run = make_run(make_case("a", {"time_ms": 4.0}))
    work = {"benchmark": "made.up", "params": {"halo_len": 1}}
    state = make.build_state([make.run_start(make.describe_case("a", 2, **work))])
    times = list_previous_times(previous_run, [case.identity for case in state.cases.values()])
    row = CaseRow(status, "a", 2, 2.0, True, None, (0, 0))
    cells = PreviousRows(times, {"a": row}).cells("a")
    assert cells[2:] == ["…2.00 ms", ""]


async def test_hosts_without_a_value_have_no_column():
    lines = await draw_map(["n1", "n2", "n3"], {"a": {"n1": 1.0, "n2": 1.1}}, "a", (60, 10))
    assert lines[0].split() == ["n1", "n2"]


@pytest.mark.parametrize("free_lines", range(10, 40))
def test_parts_have_rows_and_findings_stay_readable(free_lines):
    heights = share_left(free_lines, parts=6)
    assert heights.parts == 0 or heights.parts >= MIN_PARTS_LINES
    assert (heights.findings or free_lines - heights.parts) >= MIN_FINDINGS_PANE_LINES


def test_case_that_was_cut_short_has_no_ratio_in_a_comparison():
    a = make_run(make_case("a", {"time_ms": 4.0}))
    b = make_run(make_case("a", {"time_ms": 2.0}, status="cancelled"))
    [row] = case_rows(compare(a, b))
    assert (row.ratio, row.interval, row.cut_short) == ("", "", (False, True))
