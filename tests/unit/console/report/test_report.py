"""The report of a run: its schema, its fields and its errors."""

import html
import json
import math

import jsonschema
import pytest

from spbench.errors import ExitCode
from spbench.record.findings import collect_findings
from spbench.record.number_formatting import NOISY
from spbench.record.state import RunState
from spbench.report.build import build_rejected_report, build_report
from spbench.report.document import ReportDocument
from spbench.report.formats.junit import render_junit
from spbench.report.formats.markdown import render_markdown
from spbench.report.formats.page.document import render_page
from spbench.report.model import report_schema
from spbench.report.recorded import load_run
from spbench.report.times import format_timestamp
from spbench_core.events.fields import EventError
from spbench_core.events.run_events import check_run_event
from support.sample_events import (
    TIME,
    build_state,
    case_judged,
    console_event,
    describe_case,
    describe_metric,
    job_start,
    make_complete_run,
    make_started_run,
    make_timed_run,
    rank_event,
    record_run,
    run_end,
    run_start,
)

VALIDATOR = jsonschema.Draft202012Validator(report_schema())


def validated_report(events):
    report = build_report(build_state(events))
    VALIDATOR.validate(report)
    json.dumps(report, allow_nan=False)
    return report


def first_case(events):
    return validated_report(events)["cases"][0]


def test_schema_is_valid_and_rejects_invalid_reports():
    jsonschema.Draft202012Validator.check_schema(report_schema())
    for invalid in (
        {},
        {"schema": "spbench.report/2"},
        {**validated_report(make_complete_run()), "more": 1},
    ):
        assert not VALIDATOR.is_valid(invalid)


# A run that passed


@pytest.fixture(scope="module")
def report():
    return validated_report(make_complete_run())


@pytest.fixture(scope="module")
def case(report):
    return report["cases"][0]


def test_report_has_all_sections(report):
    assert list(report) == [
        *("schema", "run", "environment", "cases", "hosts", "errors", "comparison")
    ]
    assert report["schema"] == "spbench.report/1"
    assert report["errors"] == []


def test_report_describes_the_run(report):
    assert report["run"] == {
        "id": "20260101-000000-made-up-0000",
        "suite": "made-up",
        "started": "1970-01-01T00:16:40.000+00:00",
        "finished": "1970-01-01T00:16:40.000+00:00",
        "duration_s": 0.0,
        "verdict": "passed",
        "exit_code": 0,
        "argv": ["run", "made-up.yaml"],
        "seed": 1,
        "findings": ["All alike."],
    }


def test_reports_facts_common_to_all_ranks_once(report):
    assert report["environment"]["host"] == "login"
    assert report["environment"]["ranks"] == {
        "python": "3.11.2",
        "mpi": "Open MPI 5.0",
        "fabric": "self,sm",
        "threads": 1,
    }


def test_lists_facts_that_differ_between_ranks(messages):
    events = make_started_run()
    events[3] = rank_event("ready", 1, versions={"mpi": "MPICH 4"})
    ranks = validated_report(events)["environment"]["ranks"]
    messages.check(ranks["mpi"])


def test_samples_are_of_the_slowest_rank_and_value_is_the_median(case):
    assert case["samples"] == {"time_ms": [[2.0, 2.0, 4.0]]}
    time = case["metrics"]["time_ms"]
    assert (time["value"], time["p50"], time["n"], time["max"]) == (2.0, 2.0, 3, 4.0)
    assert (time["unit"], time["better"]) == ("ms", "lower")


def test_folds_a_metric_over_ranks(case):
    bandwidth = case["metrics"]["bandwidth"]
    assert (bandwidth["value"], bandwidth["n"], bandwidth["stdev"]) == (10.0, 1, 0.0)


def test_case_of_several_ranks_has_a_skew(case):
    assert case["metrics"]["skew"]["value"] == 1.0


def test_check_is_summarized_over_its_ranks(case):
    assert case["checks"] == [
        {
            "name": "halo",
            "status": "passed",
            "max_abs_error": 0.0,
            "tolerance": 0.0,
            "ranks_passed": 2,
            "ranks_failed": 0,
            "detail": "",
        }
    ]


def test_limit_has_the_unit_of_its_metric(case):
    assert case["limits"] == {
        "bandwidth": {"value": 20.0, "unit": "GB/s", "measured_by": "memory.copy"}
    }


def test_report_has_measurements_and_expectations(case):
    link = {"source": 0, "target": 1, "bytes": 8}
    assert case["measurements"] == [{"name": "latency_us", "value": 0.5, "rank": 0, **link}]
    assert [expectation["status"] for expectation in case["expectations"]] == ["passed"]


def test_each_rank_has_its_coordinates_and_times(case):
    second = case["ranks"][1]
    assert (second["rank"], second["host"], second["local_rank"]) == (1, "node01", 1)
    assert (second["device"], second["cpus"]) == ("cpu", [0, 1])
    assert (second["place"], second["status"]) == ({"tile": "0,1"}, "ok")
    assert second["time_ms"] == {
        "n": 3,
        "min": 1.0,
        "p50": 2.0,
        "p95": pytest.approx(3.8),
        "p99": pytest.approx(3.96),
        "max": 4.0,
        "mean": pytest.approx(7 / 3),
    }


def test_report_has_the_launch_of_a_case(case):
    assert case["launch"]["launcher"] == "openmpi"
    assert case["launch"]["argv"] == ["mpirun", "-n", "2"]
    assert (case["launch"]["job"], case["attempts"], case["warmup"]) == (1, 1, 3)


# Failed cases


def test_failed_check_has_its_worst_comparison():
    passed = rank_event("check", 0, passed=True, max_abs_error=9.0, tolerance=10.0)
    worst = rank_event("check", 1, passed=False, max_abs_error=2.0, detail="row 3")
    [check] = first_case([*make_started_run(), passed, worst])["checks"]
    assert (check["status"], check["ranks_passed"], check["ranks_failed"]) == ("failed", 1, 1)
    assert (check["max_abs_error"], check["detail"]) == (2.0, "row 3")


def test_missing_numbers_are_null():
    case_description = describe_case(metrics=[TIME, describe_metric("rate")])
    events = [
        rank_event("check", 0, passed=False, max_abs_error=None),
        rank_event("metric", 0, name="rate", value=None),
        rank_event("metric", 0, name="time_ms", value=None, measured_by="nobody"),
    ]
    case = first_case([*make_started_run(case_description), *events])
    assert case["checks"][0]["max_abs_error"] is None
    assert case["limits"]["time_ms"]["value"] is None
    assert case["metrics"] == {}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_case_with_a_non_finite_number_is_an_error(value):
    cases = (describe_case("a"), describe_case("b"))
    infinite_samples = [rank_event("samples", rank, values=[value]) for rank in (0, 1)]
    starts = [rank_event("case_start", rank, case="b") for rank in (0, 1)]
    samples = [rank_event("samples", rank, case="b") for rank in (0, 1)]
    report = build_report(
        build_state(
            [*make_started_run(*cases), *infinite_samples, *starts, *samples, case_judged("b")]
        )
    )
    a, b = report["cases"]
    assert (a["status"], a["metrics"]) == ("error", {})
    assert "finite number" in a["reason"]
    assert (b["status"], b["metrics"]["time_ms"]["value"]) == ("passed", 1.0)


@pytest.mark.parametrize("largest", [1.7e308, -1.7e308, 1e300])
def test_reports_figures_near_the_largest_float(largest):
    case_description = describe_case(metrics=[TIME, describe_metric("rate", fold="sum")], repeat=2)
    events = [
        rank_event("samples", rank, repeat=repeat, metric=name, values=[largest, -largest])
        for rank in (0, 1)
        for repeat in (0, 1)
        for name in ("time_ms", "rate")
    ]
    case = first_case([*make_started_run(case_description), *events, case_judged()])
    assert case["status"] == "passed"
    assert case["metrics"]["time_ms"]["max"] == abs(largest)
    assert case["metrics"]["rate"]["mean"] == 0


JUDGED = "1970-01-01T00:16:40.000+00:00"


@pytest.mark.parametrize(("offset", "start"), [(-1e12, None), (1e12, JUDGED), (1e300, JUDGED)])
def test_wrong_clock_of_a_rank_does_not_start_a_case_late(offset, start):
    events = [
        event | {"time": event["time"] + offset * ("rank" in event)}
        for event in make_complete_run()
    ]
    case = first_case(events)
    assert (case["status"], case["started"], case["finished"]) == ("passed", start, JUDGED)


def test_error_has_its_reason_and_traceback(messages):
    case = case_judged("a", "error", "rank 0 on node01: no", traceback="Traceback ...")
    report = validated_report([*make_started_run(), case, run_end("error", 4)])
    assert report["cases"][0]["traceback"] == "Traceback ..."
    messages.check(report["errors"])
    assert report["run"]["exit_code"] == 4


def test_errors_of_the_run_replace_those_of_cases():
    report = validated_report(
        [*make_started_run(), case_judged("a", "error", "why"), run_end("error", 3, ["no host"])]
    )
    assert report["errors"] == ["no host"]


def test_run_of_a_killed_console_is_an_error(messages):
    cases = [describe_case("a"), describe_case("b")]
    events = [run_start(*cases), job_start("a", "b"), *make_started_run()[2:]]
    report = validated_report(events)
    assert (report["run"]["verdict"], report["run"]["exit_code"]) == ("error", 4)
    assert (report["run"]["finished"], report["run"]["duration_s"]) == (None, None)
    assert [case["status"] for case in report["cases"]] == ["error", "skipped"]
    messages.check([case["reason"] for case in report["cases"]])


@pytest.mark.parametrize("status", ["passed", "failed", "error", "timeout", "cancelled", "skipped"])
def test_format_accepts_every_verdict(status):
    events = [run_start(), case_judged("a", status, "why"), run_end(status, 4)]
    report = validated_report(events)
    assert (report["cases"][0]["status"], report["run"]["verdict"]) == (status, status)
    assert report["cases"][0]["launch"] is None


def test_report_keeps_the_order_of_the_suite():
    cases = [describe_case(name) for name in ("z", "a", "m")]
    done = [case_judged(name) for name in ("a", "m", "z")]
    assert [case["id"] for case in validated_report([run_start(*cases), *done])["cases"]] == [
        "z",
        "a",
        "m",
    ]


def test_repeats_are_one_case():
    case_description = describe_case(repeat=2)
    events = [
        rank_event("samples", rank, repeat=repeat, values=[repeat + 1.0])
        for repeat in (0, 1)
        for rank in (0, 1)
    ]
    assert first_case([*make_started_run(case_description), *events])["samples"] == {
        "time_ms": [[1.0], [2.0]]
    }


def test_each_launch_has_its_median():
    case_description = describe_case(repeat=3)
    first = [
        *make_started_run(case_description),
        *(rank_event("samples", rank, values=[1.0, 3.0]) for rank in (0, 1)),
    ]
    second = [
        job_start("a", job=2),
        *(
            rank_event("case_start", rank, case="a", repeat=repeat)
            for repeat in (1, 2)
            for rank in (0, 1)
        ),
        *(
            rank_event("samples", rank, repeat=repeat, values=[5.0 * repeat])
            for repeat in (1, 2)
            for rank in (0, 1)
        ),
    ]
    case = first_case([*first, *second])
    assert case["launches"] == [1, 2]
    assert case["medians"] == {"time_ms": [2.0, 7.5]}
    assert case["fastest"] == [1.0, 5.0]


def test_state_without_a_run_has_no_report():
    with pytest.raises(AssertionError):
        build_report(RunState())


def test_report_marks_a_lost_rank():
    lost = console_event("rank_lost", rank=1, host="node01", reason="dead")
    assert [rank["status"] for rank in first_case([*make_started_run(), lost])["ranks"]] == [
        "running",
        "lost",
    ]


@pytest.mark.parametrize(
    ("hosts", "cpus", "sharing"),
    [
        (("node01", "node01"), ([0], [1]), [1, 1]),
        (("node01", "node01"), ([0, 1], [0, 1]), [2, 2]),
        (("node01", "node02"), ([0, 1], [0, 1]), [1, 1]),
        (("node01", "node01", "node01"), ([0], [0, 1], [1, 2]), [2, 2, 2]),
        (("node01", "node01", "node01"), ([0], [0, 1], [2]), [2, 2, 1]),
        (("node01", "node01"), ([0], []), [1, None]),
    ],
    ids=["bound", "unbound", "two hosts", "overlapping", "one alone", "not known"],
)
def test_rank_has_the_number_of_ranks_on_its_cpus(hosts, cpus, sharing):
    events = [
        {**event, "cpus": cpus[event["rank"]]} if event["event"] == "ready" else event
        for event in make_started_run(hosts=hosts)
    ]
    assert [rank["sharing"] for rank in first_case(events)["ranks"]] == sharing


# A run that never started


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (ExitCode.USAGE, "error"),
        (ExitCode.MISSING, "error"),
        (ExitCode.NOTHING, "skipped"),
        (ExitCode.BUDGET, "cancelled"),
        (ExitCode.INTERRUPTED, "cancelled"),
        (ExitCode.TERMINATED, "cancelled"),
    ],
)
def test_refused_run_has_a_report(code, verdict, messages):
    report = build_rejected_report(
        "s.yaml:1:1: error: a\ns.yaml:2:1: error: b", code, ["run", "s.yaml"]
    )
    VALIDATOR.validate(report)
    assert report["cases"] == []
    messages.check(report["errors"])
    assert (report["run"]["exit_code"], report["run"]["verdict"]) == (code, verdict)
    assert report["run"]["argv"] == ["run", "s.yaml"]
    assert type(json.loads(json.dumps(report))["run"]["exit_code"]) is int


def test_samples_can_be_omitted(report, case):
    chunks = ReportDocument.from_json(report).chunks(with_samples=False)
    document = json.loads("".join(chunks))
    VALIDATOR.validate(document)
    assert document["cases"] == [{**case, "samples": {}}]
    assert case["samples"] != {}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, None), (0.0, "1970-01-01T00:00:00.000+00:00"), (1.5, "1970-01-01T00:00:01.500+00:00")],
)
def test_formats_timestamps_in_utc(seconds, text):
    assert format_timestamp(seconds) == text


SLOW = {"rank": 1, "host": "node01", "ratio": 3.0, "seconds": 6.0, "since": 1e9, "cause": True}


def test_report_and_junit_include_a_straggler(tmp_path, messages):
    events = make_timed_run([[1.0], [3.0]], ["node01", "node01"])[:-1]
    folder = record_run(
        tmp_path, [*events, case_judged("a", "passed", stragglers=[SLOW]), run_end()]
    )
    run = load_run(folder)
    (straggler,) = run.cases["a"].stragglers
    messages.check(straggler.sentence)
    assert (straggler.rank, straggler.ratio, straggler.duration_s, straggler.cause) == (
        1,
        3.0,
        6.0,
        True,
    )
    assert straggler.since == "2001-09-09T01:46:40.000+00:00"
    assert straggler.sentence in render_junit(run)


def build_noisy_cases(end):
    """Return events and findings of two cases: rank 1 is slow, rank 0 is disturbed."""
    cases = [describe_case(name, checks=[]) for name in "ab"]
    events = [run_start(*cases), job_start("a", "b")]
    events += [rank_event("ready", rank, cpus=[rank]) for rank in (0, 1)]
    for name in "ab":
        events += [rank_event("case_start", rank, case=name) for rank in (0, 1)]
        events += [
            rank_event("samples", rank, case=name, values=[10.0 * (1 + rank)] * 10)
            for rank in (0, 1)
        ]
        disturbed = {0: {"stolen": 0.5}, 1: {}}
        events += [
            rank_event("case_end", rank, case=name, disturbed=disturbed[rank]) for rank in (0, 1)
        ]
        events.append(case_judged(name, "passed", stragglers=[SLOW]))
    findings = collect_findings(build_state(events))
    return [*events, *([run_end(findings=findings)] if end else [])], findings


@pytest.mark.parametrize("end", [True, False], ids=["ended", "killed"])
@pytest.mark.parametrize("write", [render_page, render_markdown])
def test_page_and_markdown_have_each_finding_once(tmp_path, write, end, messages):
    events, findings = build_noisy_cases(end)
    [slow, noise] = findings
    messages.check(noise)
    messages.check(slow)
    text = html.unescape(write(load_run(record_run(tmp_path, events))))
    text = text.replace("\\", "")  # escapes of Markdown
    assert text.count(noise) == text.count(slow) == 1
    # The cases have only the sign and no other wording of the finding.
    for phrase in ("hypervisor", "the time of rank 0 in"):
        assert text.count(phrase) == 1
    assert text.count(f"{NOISY} noisy") >= 2
    assert text.index(slow) < text.index(f"{NOISY} noisy")


@pytest.mark.parametrize(("field", "value"), [("rank", "1"), ("ratio", None), ("more", 1)])
def test_rejects_an_invalid_straggler(field, value):
    with pytest.raises(EventError):
        check_run_event(case_judged("a", "passed", stragglers=[{**SLOW, field: value}]))
