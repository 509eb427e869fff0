"""Summaries, filters and recorded results of past runs."""

import json
import socket
from dataclasses import replace

import pytest

from spbench.errors import UsageError
from spbench.record.runs.folder import RunFolder, find_run
from spbench.record.runs.history import (
    RUN_STATUSES,
    list_summaries,
    read_summary_with_note,
)
from spbench.record.runs.selection import select_runs
from spbench.report.build import build_report
from spbench.report.recorded import load_run
from support.sample_events import (
    TIME,
    case_judged,
    describe_case,
    describe_metric,
    make_complete_run,
    make_links_run,
    make_started_run,
    rank_event,
    record_run,
    run_end,
    run_start,
)
from support.sample_runs import make_summary

CONSOLE = {"pid": 1, "host": "x", "started": 5.0}


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


def write_run(home, content, name="20260101-000000-a-0000"):
    path = home / "runs" / name
    path.mkdir(parents=True)
    text = content if isinstance(content, str) else json.dumps(content)
    (path / "run.json").write_text(text)
    return path


# Summaries


def test_summarizes_a_run(home):
    write_run(
        home,
        {
            "suite": "halo",
            "file": "suites/halo.yaml",
            "argv": ["run", "suites/halo.yaml"],
            "console": {"pid": 1, "host": "login", "started": 1000.25},
            "verdict": "failed",
            "exit_code": 1,
            "finished": 1003.5,
        },
    )
    [actual] = list_summaries(home)
    assert actual == make_summary(
        folder=actual.folder,
        id="20260101-000000-a-0000",
        suite="halo",
        file="suites/halo.yaml",
        argv=("run", "suites/halo.yaml"),
        started=1000.25,
        finished=1003.5,
        duration_s=3.25,
        status="failed",
        exit_code=1,
        host="login",
    )


def test_summary_reads_only_run_json(home):
    path = write_run(home, {"suite": "halo", "verdict": "passed"})
    (path / "report.json").mkdir()
    (path / "events.jsonl").mkdir()
    assert [(run.suite, run.status) for run in list_summaries(home)] == [("halo", "passed")]


def test_lists_the_oldest_run_first(home):
    names = [f"2026010{day}-000000-a-0000" for day in (3, 1, 2)]
    for name in names:
        write_run(home, {}, name)
    assert [run.id for run in list_summaries(home)] == sorted(names)


def test_run_without_status_is_running_while_its_console_lives(home, monkeypatch):
    alive, dead, remote = (record_run(home, [run_start()]) for _ in range(3))
    liveness = {alive: True, dead: False, remote: None}
    monkeypatch.setattr(RunFolder, "is_alive", lambda folder: liveness[folder])
    statuses = [read_summary_with_note(folder).status for folder in liveness]
    assert statuses == ["running", "unfinished", "running"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1]",
        "{",
        '{"console": 5, "suite": 7, "argv": "run", "exit_code": "0"}',
        '{"console": {"started": "soon", "host": []}, "verdict": {"a": 1}}',
        '{"console": {"started": 1e300}, "verdict": ["passed"], "finished": true}',
        '{"console": {"started": Infinity}, "verdict": "splendid", "finished": NaN}',
        '{"console": {"started": -1}}',
    ],
)
def test_damaged_run_json_gives_an_empty_summary(home, text):
    folder = find_run(home, write_run(home, text).name)
    absent = dict.fromkeys(("file", "started", "finished", "exit_code", "duration_s", "host"))
    defaults = {"suite": "?", "status": "unfinished", "argv": ()}
    assert read_summary_with_note(folder) == make_summary(
        folder=folder, id=folder.id, **defaults, **absent
    )


def test_running_run_has_no_duration(home):
    write_run(home, {"console": CONSOLE})
    assert [(run.started, run.duration_s) for run in list_summaries(home)] == [(5.0, None)]


# The filter

RUNS = [
    make_summary("20261030-000000-halo-0001", suite="halo", started=1793318400.0, host="node01"),
    make_summary(
        "20261101-000000-links-0002", suite="links", started=1793491200.0, status="failed"
    ),
    make_summary("20261102-120000-halo-0003", suite="halo", started=1793620800.0, status="error"),
    make_summary(
        "20261103-000000-odd-0004", suite="odd", started=None, status="unfinished", host=None
    ),
]


@pytest.mark.parametrize(
    ("text", "indices"),
    [
        ("", [0, 1, 2, 3]),
        ("  ", [0, 1, 2, 3]),
        ("halo", [0, 2]),
        ("HALO", [0, 2]),
        ("20261101", [1]),
        ("failed", [1]),
        ("node01", [0]),
        ("halo error", [2]),
        ("halo failed", []),
        ("suite:hal", [0, 2]),
        ("suite:0001", []),
        ("host:node", [0]),
        ("host:login", [1, 2]),
        ("verdict:failed", [1]),
        ("status:failed", [1]),
        ("verdict:UNFINISHED", [3]),
        ("since:2026-11-01", [1, 2]),
        ("since:2026-11-02T12:00", [2]),
        ("since:2026-11-02T13:00+01:00", [2]),
        ("since:2026-11-02T12:01", []),
        ("suite:halo verdict:error since:2026-11-01 0003", [2]),
    ],
)
def test_filter_requires_every_word_to_match(text, indices):
    assert select_runs(RUNS, text) == [RUNS[index] for index in indices]


@pytest.mark.parametrize("verdict", RUN_STATUSES)
def test_filters_by_each_verdict(verdict):
    runs = [replace(RUNS[0], status=other) for other in RUN_STATUSES]
    assert [run.status for run in select_runs(runs, f"verdict:{verdict}")] == [verdict]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("suit:halo", "unknown filter suit: (did you mean suite?)"),
        ("halo :x", "unknown filter :"),
        ("status:faild", "did you mean failed?"),
        ("mark:machin", "did you mean machine?"),
        ("host:", "host: has no value"),
        ("since:yesterday", "since:yesterday: invalid day"),
        ("since:2026-13-01", "since:2026-13-01: invalid day"),
    ],
)
def test_invalid_filter_is_reported_in_one_line(text, expected):
    with pytest.raises(UsageError) as caught:
        select_runs(RUNS, text)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_last_tilde_n_counts_runs_back(home, messages):
    names = [f"2026010{day}-000000-a-0000" for day in (1, 2, 3)]
    for name in names:
        write_run(home, {}, name)
    assert [find_run(home, f"last~{back}").id for back in (0, 1, 2)] == names[::-1]
    with messages.raises(UsageError):
        find_run(home, "last~3")


# Results


def record_with_report(home, events):
    """Record a run with its report, like the engine."""
    folder = record_run(home, events, verdict="passed", console=CONSOLE)
    folder.write_json("report.json", build_report(folder.replay()))
    return folder


def complete_run_events():
    """Return the events of a run that sets every field of a case."""
    choice = rank_event("choice", 0)
    *events, last = make_complete_run()
    end = next(index for index, event in enumerate(events) if event["event"] == "case_end")
    return [*events[:end], choice, *events[end:], last]


def test_report_and_events_give_the_same_run(home):
    folder = record_with_report(home, complete_run_events())
    by_report = load_run(folder)
    folder.report.unlink()
    assert load_run(folder) == by_report
    case = by_report.cases["a"]
    assert case.metrics["time_ms"].value == case.metrics["time_ms"].p50 == 2.0
    assert (case.metrics["time_ms"].unit, case.metrics["time_ms"].max) == ("ms", 4.0)
    assert case.metrics["bandwidth"].better == "higher"
    assert case.limits["bandwidth"].value == 20.0
    assert case.choices["transport"].value == "shm"
    assert [check.ranks_passed for check in case.checks] == [2]
    assert case.samples == {"time_ms": [[2.0, 2.0, 4.0]]}
    assert case.measurements[0]["target"] == 1
    assert by_report.findings == ("All alike.",)


def test_reads_the_report_if_it_exists(home):
    folder = record_with_report(home, make_complete_run())
    folder.events.unlink()
    assert load_run(folder).cases["a"].status == "passed"


def test_reads_an_old_report_without_choices(home):
    folder = record_with_report(home, make_complete_run())
    folder.events.unlink()
    report = folder.read_json("report.json")
    for field in ("choices", "samples", "measurements"):
        del report["cases"][0][field]
    del report["run"]["findings"]
    folder.write_json("report.json", report)
    assert load_run(folder).cases["a"].choices == {}


@pytest.mark.parametrize(
    "damage",
    [
        lambda report: report.clear(),
        lambda report: report.update(cases=[1]),
        lambda report: report["cases"][0].pop("params"),
        lambda report: report["cases"][0]["metrics"]["time_ms"].update(p50=None),
        lambda report: report["cases"][0]["checks"][0].update(more=1),
        lambda report: report["cases"][0]["checks"][0].update(max_abs_error=9.0),
        lambda report: report["cases"][0]["checks"][0].update(ranks_failed=1),
    ],
)
def test_reads_events_if_the_report_is_damaged(home, damage):
    folder = record_with_report(home, make_complete_run())
    expected = load_run(folder)
    report = folder.read_json("report.json")
    damage(report)
    folder.write_json("report.json", report)
    assert load_run(folder) == expected


def test_rejects_a_damaged_report_with_a_damaged_log(home):
    folder = record_with_report(home, make_complete_run())
    folder.report.write_text("{")
    folder.events.write_text("garbage\n")
    with pytest.raises(UsageError, match="the beginning of this run is lost"):
        load_run(folder)


def test_run_without_events_has_no_cases(home):
    folder = record_run(home, [])
    folder.events.unlink()
    assert load_run(folder).cases == {}


def unfinished_run_events():
    cases = [describe_case("a"), describe_case("b"), describe_case("c")]
    return [*make_started_run(*cases), case_judged("a"), rank_event("case_start", 0, case="b")]


def test_running_run_keeps_the_phases_of_its_cases(home, monkeypatch):
    monkeypatch.setattr(RunFolder, "is_alive", lambda _: True)
    run = load_run(record_run(home, unfinished_run_events()))
    assert [case.status for case in run.cases.values()] == ["passed", "running", "waiting"]


def test_run_of_a_killed_console_gets_verdicts(home, messages):
    console = CONSOLE | {"host": socket.gethostname()}
    run = load_run(record_run(home, unfinished_run_events(), console=console))
    assert [case.status for case in run.cases.values()] == ["passed", "error", "skipped"]
    messages.check(run.cases["b"].reason)


def test_omits_metric_without_a_value(home):
    case = describe_case(metrics=[TIME, describe_metric("rate")])
    events = [*make_started_run(case), rank_event("metric", 0, name="rate", value=None), run_end()]
    assert load_run(record_with_report(home, events)).cases["a"].metrics == {}


def test_loads_errors_of_a_run(home):
    events = [
        *make_started_run(),
        case_judged("a", "error", "why"),
        run_end("error", 4, ["no host"]),
    ]
    assert load_run(record_run(home, events)).errors == ("no host",)


def test_measurements_include_links(home):
    pair = ((0, "node01"), (1, "node02"))
    run = load_run(record_run(home, make_links_run({pair: 1.5}, {pair: 9.0})))
    assert [row["value"] for row in run.cases["links"].measurements] == [1.5, 9.0]
