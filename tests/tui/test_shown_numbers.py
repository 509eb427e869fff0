"""Numbers in tables and details: units, no exponents, and references by name."""

import re
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from spbench.cli.runs.case_columns import CaseCells
from spbench.launch.finding import FindingStatus
from spbench.launch.hosts.hosts import Host, Hosts
from spbench.launch.survey.facts import HostFacts
from spbench.record.messages.phases import describe_phase
from spbench.record.rank_rows import RankRow
from spbench.record.runs.folder import RunFolder
from spbench.record.runs.follow import RecordedEvents
from spbench.record.runs.playback import find_demo_run
from spbench.report.model import ExpectationPart, LimitPart
from spbench.report.recorded import load_run
from spbench.tui.feed import Feed, LiveSource, ReplaySource
from spbench.tui.hosts.host_rows import COLUMNS as HOST_COLUMNS
from spbench.tui.hosts.host_rows import HostRows
from spbench.tui.results.case_screen import _list_sections
from spbench.tui.results.cases_view import _COLUMNS as RECORDED_COLUMNS
from spbench.tui.results.cases_view import CasesView, RecordedCaseRows
from spbench.tui.run.case_ranks import RecordedRanks
from spbench.tui.run.case_rows import COLUMNS, CaseRow, RunCaseRows
from spbench.tui.run.details import _list_case_lines
from spbench.tui.run.page import RunPage
from spbench.tui.run.rank_cells import build_rank_cells, build_rank_columns, get_rank_sort_value
from spbench_core.catalog import BENCHMARKS
from spbench_core.events.statuses import CaseStatus, RankPhase, RankStatus
from support.sample_events import (
    build_state,
    case_judged,
    describe_case,
    describe_metric,
    make_started_run,
    rank_event,
)
from support.sample_runs import make_case, make_failed_check, make_metric, make_run

EXPONENT = re.compile(r"\d[eE][+-]?\d")
AMOUNT = re.compile(
    r"[~…]?(<0\.1|[\d,]+(\.\d+)?) (ps|ns|us|ms|s|min|h|%|[kMGTP]?B/s)|[\d.]+x( slow)?"
)
VALUES = [1e-9, 3.3e-7, 0.0123, 1.5, 999.7, 4.2e6, 1e12]


def list_texts(cells):
    return [cell if isinstance(cell, str) else cell.text for cell in cells]


def assert_amounts(cells):
    for cell in filter(None, cells):
        assert AMOUNT.fullmatch(cell), cell


@pytest.mark.parametrize("value", VALUES)
def test_case_and_rank_cells_have_units(value):
    row = CaseRow(CaseStatus.RUNNING, "a", 4, value, True, 2 * value, (12, 12))
    columns = [column.key for column in COLUMNS]
    cells = dict(zip(columns, list_texts(row.cells()), strict=True))
    assert_amounts([cells["time"], cells["reference"], cells["efficiency"]])
    assert cells["time"].startswith("…")
    assert cells["efficiency"] == "200 %"
    figures = (value, value, value, value, 1000 * value, value)
    rank = RankRow(0, "node01", {}, RankPhase.WORKING, "timing", 9, *figures, "passed", (value,))
    columns = [column.key for column in build_rank_columns(())]
    cells = dict(zip(columns, list_texts(build_rank_cells(rank, ())), strict=True))
    assert_amounts(cells[key] for key in ("last", "p50", "p95", "p99", "gb_s"))
    assert not EXPONENT.search(" ".join(cells.values()))


@pytest.mark.parametrize("value", VALUES)
def test_recorded_cases_have_units(value):
    part = make_case(
        "a",
        {
            "time_ms": make_metric(value),
            "rate_gb_s": make_metric(value, "GB/s"),
            "loss": make_metric(value, "1"),
        },
        limits={"time_ms": LimitPart(value=value, unit="ms", measured_by="copy")},
        checks=[make_failed_check("at 3").model_copy(update={"max_abs_error": 3.73e-9})],
        expectations=[
            ExpectationPart(metric="time_ms", op="max", limit=value, value=value, status="passed")
        ],
    )
    columns = [column.key for column in RECORDED_COLUMNS]
    cells = dict(zip(columns, list_texts(RecordedCaseRows(make_run(part)).cells("a")), strict=True))
    assert_amounts([cells["time"], cells["reference"], cells["efficiency"]])
    console = Console(width=300, record=True, file=StringIO())
    for title, content in _list_sections(part):
        console.print(title, content)
    text = console.export_text()
    assert "reference" in text
    assert " 3.73e-9 " in text
    assert not EXPONENT.search(text.replace("3.73e-9", ""))  # only small errors have an exponent
    assert "limit" not in text.lower()


def test_columns_and_help_say_reference_instead_of_limit():
    titles = [column.title for column in (*COLUMNS, *RECORDED_COLUMNS, *build_rank_columns(()))]
    text = " ".join([*titles, RunPage.HELP, CasesView.HELP]).lower()
    assert "limit" not in text
    assert "reference" in text


def make_case_above_reference(reference_ms=3.0):
    metrics = [describe_metric("time_ms", "ms"), describe_metric("exchange_ms", "ms")]
    case = describe_case(benchmark="halo.compute", metrics=metrics)
    reference = {"name": "time_ms", "value": reference_ms, "measured_by": "ping-pong"}
    events = [
        *make_started_run(case),
        *(rank_event("samples", rank, values=[2.0]) for rank in (0, 1)),
        rank_event("metric", 0, **reference),
        rank_event("metric", 0, name="exchange_ms", value=5.0),
        *(rank_event("check", rank, max_abs_error=1e-7, tolerance=2e-7) for rank in (0, 1)),
        *(rank_event("case_end", rank) for rank in (0, 1)),
        case_judged(),
    ]
    return build_state(events).cases["a"]


def test_details_explain_references_and_separate_metrics():
    lines = list(_list_case_lines(make_case_above_reference(), "passed", disturbed=True))
    assert (
        "reference",
        "time 3.00 ms, efficiency ~150 %; measured in the same job: ping-pong",
    ) in lines
    assert [text for _, text in lines if text.startswith("above 100 %")]
    assert ("measured separately", "exchange: not parts of the time") in lines


def test_details_have_set_parameters_in_words():
    params = BENCHMARKS["link.pingpong"].complete({"sizes": [8, 1024]}) | {"path": None}
    case = build_state(make_started_run(describe_case(benchmark="link.pingpong", params=params)))
    lines = dict(_list_case_lines(case.cases["a"], "passed", disturbed=False))
    assert "sizes 8, 1KiB; device cpu" in lines["parameters"]
    assert "None" not in lines["parameters"]
    assert "path" not in lines["parameters"]


def test_details_name_the_second_reference_by_its_metric():
    metrics = [describe_metric("time_ms", "ms"), describe_metric("bandwidth_gb_s", "GB/s")]
    references = [
        {"name": metric["name"], "value": 2.0, "measured_by": "copy"} for metric in metrics
    ]
    events = [
        *make_started_run(describe_case(metrics=metrics)),
        *(rank_event("samples", rank, values=[2.0]) for rank in (0, 1)),
        *(rank_event("metric", 0, **reference) for reference in references),
        *(rank_event("case_end", rank) for rank in (0, 1)),
        case_judged(),
    ]
    lines = dict(_list_case_lines(build_state(events).cases["a"], "passed", disturbed=False))
    assert lines["reference"].startswith("time 2.00 ms")
    assert lines["bandwidth reference"].startswith("2.00 GB/s")


def test_details_have_medians_for_each_message_size():
    metrics = [
        describe_metric("latency_us", "us"),
        describe_metric("bandwidth_gb_s", "GB/s", "higher"),
    ]
    link = {"source": 0, "target": 1, "host_a": "node01", "host_b": "node02"}
    values = [("latency_us", 8, 1.5), ("bandwidth_gb_s", 8, 0.005), ("latency_us", 1024, 2.5)]
    events = [
        *make_started_run(describe_case(metrics=metrics)),
        *(
            rank_event("metric", 0, name=name, value=value, labels={**link, "bytes": size})
            for name, size, value in values
        ),
        case_judged(),
    ]
    lines = dict(_list_case_lines(build_state(events).cases["a"], "passed", disturbed=False))
    assert lines["  8 B"] == "latency 1.50 us, bandwidth 5.00 MB/s"
    assert lines["  1 KiB"] == "latency 2.50 us"


def test_efficiency_far_above_100_percent_is_explained_by_its_reference():
    case = make_case_above_reference(reference_ms=9.0)
    texts = [text for _, text in _list_case_lines(case, "passed", disturbed=False)]
    assert "above 200 %: the reference is too slow to compare with" in texts
    assert not any("above 100 %" in text for text in texts)
    row = CaseCells(case, time=2.0, reference=9.0, disturbed=False, noisy=False)
    assert row.notes == {"efficiency", "far above"}


async def test_demo_shows_the_times_of_its_report():
    feed = Feed(find_demo_run(), ReplaySource(RecordedEvents(find_demo_run().events), None))
    rows = RunCaseRows(feed)
    live = {}
    async for events in feed.source.batches():
        for event in events:
            feed._apply(event)
            if event["event"] == "case_end":
                rows.update()
                live[event["case"]] = rows._rows[event["case"]].time
    rows.update()
    recorded = load_run(find_demo_run()).cases
    assert live == {name: part.metrics["time_ms"].value for name, part in recorded.items()}
    checks = {name: rows._rows[name].checks for name in recorded}
    assert checks == {name: part.check_counts for name, part in recorded.items()}


async def test_cases_keep_the_order_of_the_suite():
    feed = Feed(find_demo_run(), ReplaySource(RecordedEvents(find_demo_run().events), None))
    await feed.follow()
    rows = RunCaseRows(feed)
    cases = feed.state.cases
    feed.state.cases = dict(reversed(cases.items()))
    await rows.compute_times()
    feed.state.cases = cases
    rows.update()
    assert rows.keys() == list(cases)


def test_progress_of_a_case_is_that_of_its_phase_as_in_the_headline(tmp_path):
    folder = RunFolder(tmp_path)
    feed = Feed(folder, LiveSource(folder))
    rows = RunCaseRows(feed)
    for event in make_started_run(hosts=("node01",)):
        feed._apply(event)
    shown = []
    phases = (("warmup", 3), ("timing", 1), ("timing", 3), ("check", 1), ("timing", 4))
    for number, (phase, done) in enumerate(phases, 2):
        feed._apply(rank_event("progress", seq=number, phase=phase, done=done, total=4))
        rows.update()
        shown.append(rows.get("a").status_text)
        if done < 4:
            assert describe_phase(feed.state, feed.now).startswith(shown[-1])
    assert shown == ["warmup 75 %", "timing 25 %", "timing 75 %", "check 25 %", ""]


def make_rank_row():
    """Return a rank with an active time."""
    figures = (2.0, 2.0, 2.0, 2.0, 2.0, None)
    return RankRow(0, "node01", {}, RankPhase.DONE, "done", 9, *figures, "passed", active=0.5)


def test_skew_that_is_not_slow_is_not_marked_as_slow():
    index = [column.key for column in build_rank_columns(())].index("skew")
    texts = [
        list_texts(build_rank_cells(replace(make_rank_row(), skew=skew), (), is_slow=True))[index]
        for skew in (2.0, 1.07)
    ]
    assert texts == ["2.00x slow", "slow part"]


def test_sorts_ranks_by_every_column():
    columns = build_rank_columns((), with_active_time=True)
    values = {column.key: get_rank_sort_value(make_rank_row(), column.key) for column in columns}
    assert values["active"] == 0.5
    assert values["host"] == "node01"
    assert values["gb_s"] is None


def test_sorts_cases_by_every_column():
    row = CaseRow(CaseStatus.RUNNING, "a", 4, 1.0, True, 2.0, (11, 12))
    values = {column.key: row.sort_value(column.key) for column in COLUMNS}
    assert values["efficiency"] == 2.0
    assert values["checks"] == -1
    rows = RecordedCaseRows(make_run(make_case("a", {"time_ms": make_metric(3.0)})))
    values = {column.key: rows.sort_value("a", column.key) for column in RECORDED_COLUMNS}
    assert values["time"] == 3.0
    assert values["id"] == "a"


def test_sorts_hosts_by_every_column():
    facts = HostFacts("node01", FindingStatus.OK, cores=8, memory_gib=16.0)
    rows = HostRows({"node01": facts}, set())
    rows.show(Hosts((Host("node01", 4),), "hostfile"))
    values = {column.key: rows.sort_value("node01", column.key) for column in HOST_COLUMNS}
    assert (values["slots"], values["cores"], values["memory"]) == (4, 8, 16.0)


def test_active_times_have_a_column_if_waits_are_measured():
    rank = make_rank_row()
    keys = [column.key for column in build_rank_columns((), with_active_time=True)]
    assert keys[keys.index("p50") + 1] == "active"
    cells = dict(
        zip(keys, list_texts(build_rank_cells(rank, (), with_active_time=True)), strict=True)
    )
    assert (cells["p50"], cells["active"]) == ("2.00 ms", "500 us")
    assert "active" not in [column.key for column in build_rank_columns(())]


def test_reference_that_is_far_too_slow_has_no_percentage():
    row = CaseRow(CaseStatus.PASSED, "a", 4, 1.0, False, 5.8, (1, 1))
    efficiency = row.cells()[[column.key for column in COLUMNS].index("efficiency")]
    assert (efficiency.text, efficiency.style) == ("> 200 %", "muted")


@pytest.mark.parametrize("phase", [RankPhase.LOST, RankPhase.UNFINISHED])
def test_passed_checks_of_a_lost_rank_are_not_green(phase):
    index = [column.key for column in build_rank_columns(())].index("check")
    lost = build_rank_cells(replace(make_rank_row(), phase=phase, check="passed"), ())[index]
    done = build_rank_cells(replace(make_rank_row(), phase=RankPhase.DONE, check="passed"), ())[
        index
    ]
    assert (lost.text, lost.style) == (done.text, "muted")
    assert done.style == "passed"
    row = CaseRow(CaseStatus.ERROR, "a", 4, 1.0, False, 2.0, (4, 4))
    assert row.cells()[-1].style == "muted"


@pytest.mark.parametrize(
    ("repeat", "error", "text"),
    [
        (1, None, "died"),
        (3, None, "died, launch 2"),
        (3, {"message": "InjectedFaultError: raised on purpose", "traceback": ""}, "raised"),
    ],
)
def test_phase_of_a_broken_rank_says_how_it_ended(repeat, error, text):
    case = build_state(make_started_run(describe_case(repeat=repeat))).cases["a"]
    case.measured.ended = {(0, 0), (0, 1)} if repeat > 1 else set()
    case.measured.ranks[1].status = RankStatus.LOST
    case.measured.ranks[1].error = error
    ranks = RecordedRanks(case)
    ranks.update()
    assert ranks.row(1).activity == text
