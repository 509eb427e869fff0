"""Tests of `spbench results history`: a metric over runs, and its steps."""

import json
import re

import pytest

from spbench.report.build import build_report
from support.sample_events import (
    case_judged,
    describe_case,
    make_started_run,
    rank_event,
    record_run,
    run_end,
)


@pytest.fixture
def record_runs(home):
    """Return a function that records a run of one case per time, on one host."""

    def record(times, host="node01"):
        for index, time in enumerate(times):
            events = make_started_run(describe_case(np=1, checks=[]), hosts=[host])
            events += [rank_event("samples", values=[time]), rank_event("case_end"), case_judged()]
            folder = record_run(home, [*events, run_end()], verdict="passed")
            report = build_report(folder.replay())
            folder.write_json("report.json", report)
            path = folder.path.with_name(f"202601{index // 60:02}-{index % 60:06}-{host}-0000")
            folder.path.rename(path)

    return record


SLOWER = [*[1.00, 1.01, 0.99, 1.02, 0.98, 1.0, 1.01], *[1.21, 1.19, 1.2, 1.22, 1.18, 1.2, 1.21]]


def test_step_is_marked_at_its_run(spbench, record_runs, messages):
    record_runs(SLOWER)
    done = spbench("results", "history", "a")
    assert (done.status, done.err) == (0, "")
    head, *lines, last = done.out.splitlines()
    messages.check(head)
    assert len(lines) == len(SLOWER)
    assert all(re.search(r" [\d.]+ [um]?s  ", line) for line in lines)
    assert [line.endswith("1.20x, worse") for line in lines].index(True) == 7
    messages.check(last)
    assert lines[0].index("●") < lines[-1].index("●")


def test_history_is_exported_as_json_and_csv(spbench, record_runs):
    record_runs(SLOWER)
    history = json.loads(spbench("results", "history", "a", "time_ms", "--format", "json").out)
    [step] = history["steps"]
    assert step["run"] == history["runs"][7]["run"]
    assert (step["outcome"], step["ratio"]) == ("worse", pytest.approx(1.2, abs=0.01))
    rows = spbench("results", "history", "a", "--format", "csv").out.splitlines()
    assert rows[0] == "run,median,launches,step"
    assert [row.rpartition(",")[2] != "" for row in rows[1:]].index(True) == 7


def test_runs_on_other_machines_are_left_out(spbench, record_runs, messages):
    record_runs([5.0] * 3, host="another")
    record_runs([1.0] * 4, host="node01")
    out = spbench("results", "history", "a").out
    messages.check(out)
    assert out.endswith("; 3 runs on other machines left out\n")
    messages.check(spbench("results", "history", "a", "--machines", "x").err)


def test_newest_option_limits_the_history(spbench, record_runs, messages):
    record_runs(SLOWER)
    history = json.loads(
        spbench("results", "history", "a", "--newest", "5", "--format", "json").out
    )
    assert [run["median"] for run in history["runs"]] == SLOWER[-5:]
    assert (history["earlier"], history["steps"]) == (9, [])
    assert spbench("results", "history", "a", "--newest", "5").out.endswith(
        "; 9 runs before these left out\n"
    )
    refused = spbench("results", "history", "a", "--newest", "501").error_line
    messages.check(refused)


def test_zero_median_disables_the_search_for_steps(spbench, record_runs, messages):
    record_runs([0.0, *SLOWER])
    out = spbench("results", "history", "a").out
    messages.check(out.splitlines()[-1])


def test_unknown_case_exits_with_5(spbench, record_runs):
    record_runs([1.0])
    done = spbench("results", "history", "b")
    assert (done.status, done.error_line) == (
        5,
        "spbench: error: no run has passed a case 'b' with the metric 'time_ms'",
    )
