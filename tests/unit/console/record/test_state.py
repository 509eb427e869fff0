import json

import pytest

from spbench.record.runs.folder import RunFolder
from spbench.record.state import RunState
from spbench.report.build import build_report
from unit import events as make


def samples(rank, *values, repeat=0, metric="time_ms"):
    return make.rank_event("samples", rank, values=list(values), repeat=repeat, metric=metric)


def check(rank, passed=True, error=0.0, **fields):
    return make.rank_event("check", rank, passed=passed, max_abs_error=error, **fields)


# Samples


def test_an_iteration_takes_as_long_as_its_slowest_rank():
    case = make.case_of([*make.started(), samples(0, 1.0, 5.0, 2.0), samples(1, 3.0, 1.0, 2.5)])
    assert case.fold_samples("time_ms") == [[3.0, 5.0, 2.5]]


def test_batches_join_whatever_the_order_of_the_ranks():
    case = make.case_of(
        [*make.started(), samples(1, 3.0), samples(0, 1.0), samples(0, 5.0), samples(1, 1.0)]
    )
    assert case.fold_samples("time_ms") == [[3.0, 5.0]]


def test_iterations_that_a_rank_has_not_finished_are_left_out():
    case = make.case_of([*make.started(), samples(0, 1.0, 2.0, 3.0), samples(1, 1.0)])
    assert case.fold_samples("time_ms") == [[1.0]]


def test_iterations_that_a_rank_has_not_begun_are_left_out():
    case = make.case_of([*make.started(), samples(0, 1.0, 2.0, 3.0)])
    assert case.fold_samples("time_ms") == []
    assert case.summary("time_ms") is None


def test_samples_of_one_rank_alone_are_kept_unless_they_are_its_time():
    what = make.described(metrics=[make.TIME, make.metric("rate")])
    case = make.case_of([*make.started(what), samples(0, 1.0, 2.0, metric="rate")])
    assert case.fold_samples("rate") == [[1.0, 2.0]]


def test_repeats_are_kept_apart_and_summarized_together():
    events = [samples(rank, repeat + 1.0, repeat=repeat) for repeat in (0, 1) for rank in (0, 1)]
    case = make.case_of([*make.started(make.described(repeat=2)), *events])
    assert case.fold_samples("time_ms") == [[1.0], [2.0]]
    assert case.summary("time_ms").n == 2


RATIOS = {"efficiency": 4.0 / 2.0, "speedup": 5.0 / 2.0}
"""The reference of 4 ms and the sequential time of 5 ms over the time of 2 ms, each a median."""


@pytest.mark.parametrize(("name", "expected"), RATIOS.items())
def test_a_ratio_of_times_over_repeats_follows_from_the_times(name, expected):
    """Each repeat's own ratio is another one: their median would be 1."""
    metrics = [make.TIME, make.metric("sequential_ms"), make.metric(name, better="higher")]
    what = make.described(repeat=3, metrics=metrics)
    times = [1.0, 2.0, 8.0]
    others = [4.0, 2.0, 8.0]
    events = [
        event
        for repeat, (time, other) in enumerate(zip(times, others, strict=True))
        for event in (
            *(samples(rank, time, repeat=repeat) for rank in (0, 1)),
            make.rank_event("metric", name="sequential_ms", value=other + 1, repeat=repeat),
            make.rank_event(
                "metric", name="time_ms", value=other, measured_by="a copy", repeat=repeat
            ),
            make.rank_event("metric", name=name, value=1.0, repeat=repeat),
        )
    ]
    assert make.case_of([*make.started(what), *events]).summary(name).p50 == expected


@pytest.mark.parametrize(
    ("fold", "value"), [("max", 4.0), ("min", 1.0), ("sum", 5.0), ("mean", 2.5)]
)
def test_a_metric_is_folded_over_ranks_as_the_catalog_says(fold, value):
    what = make.described(metrics=[make.TIME, make.metric("rate", fold=fold)])
    events = [
        make.rank_event("metric", rank, name="rate", value=[1.0, 4.0][rank]) for rank in (0, 1)
    ]
    assert make.case_of([*make.started(what), *events]).fold_samples("rate") == [[value]]


def test_a_metric_without_a_value_is_not_measured():
    what = make.described(metrics=[make.TIME, make.metric("rate")])
    case = make.case_of(
        [*make.started(what), make.rank_event("metric", 0, name="rate", value=None)]
    )
    assert case.summary("rate") is None


@pytest.mark.parametrize("name", ["time_ms", "skew", "nonsense"])
def test_what_was_not_measured_has_no_summary(name):
    assert make.case_of(make.started()).summary(name) is None


# Skew


def test_skew_is_the_slowest_ranks_median_over_the_typical_ranks():
    events = make.started(hosts=["node01"] * 4)
    times = [samples(0, 1.0, 9.0, 1.0), samples(1, 2.0), samples(2, 6.0), samples(3, 5.0)]
    case = make.case_of([*events, *times])
    assert case.rank_medians() == {0: 1.0, 1: 2.0, 2: 6.0, 3: 5.0}
    assert case.skew() == pytest.approx(3.0)
    assert case.summary("skew").p50 == pytest.approx(3.0)


def test_the_slow_one_of_two_ranks_is_skewed():
    assert make.case_of([*make.started(), samples(0, 1.0), samples(1, 4.0)]).skew() == 4.0


def test_one_rank_has_no_skew():
    assert make.case_of([*make.started(hosts=["node01"]), samples(0, 1.0, 2.0)]).skew() is None


def test_ranks_that_take_no_time_have_no_skew():
    assert make.case_of([*make.started(), samples(0, 0.0), samples(1, 0.0)]).skew() is None


# Checks


@pytest.mark.parametrize(
    ("told", "passed", "error"),
    [
        ([(True, 0.0), (True, 0.5)], True, 0.5),
        ([(True, 0.5), (True, 0.0)], True, 0.5),
        ([(True, 0.5), (False, 0.1)], False, 0.1),
        ([(False, 0.1), (True, 0.5)], False, 0.1),
        ([(False, 0.1), (False, 3.0)], False, 3.0),
        ([(False, 3.0), (False, None)], False, None),
        ([(False, None), (False, 3.0)], False, None),
    ],
)
def test_the_worst_comparison_of_a_rank_is_kept(told, passed, error):
    events = [check(0, ok, of, tolerance=0.5, detail=str(of)) for ok, of in told]
    result = make.case_of([*make.started(), *events]).measured.checks["halo"][0, 0]
    assert (result.passed, result.max_abs_error, result.detail) == (passed, error, str(error))


def test_checks_are_kept_by_rank_and_repeat():
    events = [check(0), check(1, False, 2.0), check(0, False, 1.0, repeat=1)]
    results = make.case_of([*make.started(make.described(repeat=2)), *events]).measured.checks[
        "halo"
    ]
    told = {place: result.passed for place, result in results.items()}
    assert told == {(0, 0): True, (0, 1): False, (1, 0): False}


# Limits and measurements


def test_a_limit_is_no_value():
    what = make.described(metrics=[make.TIME, make.metric("rate")])
    limit = make.rank_event("metric", name="rate", value=9.0, measured_by="memory.copy")
    case = make.case_of([*make.started(what), limit])
    assert case.measured.limits == {"rate": {"value": 9.0, "measured_by": "memory.copy"}}
    assert case.summary("rate") is None


@pytest.mark.parametrize(
    ("values", "expected"),
    [([9.0, 1.0, 2.0], 2.0), ([None, 3.0], 3.0), ([None, None], None)],
)
def test_the_reference_is_that_of_the_launch_with_the_median(values, expected):
    what = make.described(repeat=3)
    references = [
        make.rank_event(
            "metric", name="time_ms", value=value, measured_by=f"launch with {value}", repeat=repeat
        )
        for repeat, value in enumerate(values)
    ]
    case = make.case_of([*make.started(what), *references])
    assert case.measured.limits["time_ms"] == {
        "value": expected,
        "measured_by": f"launch with {expected}",
    }


def test_the_median_of_two_references_has_the_origin_of_one():
    what = make.described(repeat=2)
    references = [
        make.rank_event("metric", name="time_ms", value=value, measured_by=origin, repeat=repeat)
        for repeat, (value, origin) in enumerate([(4.0, "a copy"), (1.0, "two copies")])
    ]
    case = make.case_of([*make.started(what), *references])
    assert case.measured.limits["time_ms"] == {
        "value": 2.5,
        "measured_by": "two copies (1.00 ms, next to the median of 2)",
    }


def test_a_choice_is_kept_with_its_reason():
    case = make.case_of([*make.started(make.described()), make.rank_event("choice", 0)])
    assert case.measured.choices == {
        "transport": {"value": "shm", "reason": "the fastest of packed 0.2 ms, shm 0.1 ms"}
    }


def test_a_value_with_labels_is_a_measurement():
    what = make.described(metrics=[make.TIME, make.metric("latency_us")])
    labels = {"source": 0, "target": 1, "bytes": 8}
    told = make.rank_event("metric", 1, name="latency_us", value=0.5, labels=labels)
    case = make.case_of([*make.started(what), told])
    assert case.measured.labelled == [{"name": "latency_us", "value": 0.5, "rank": 1, **labels}]
    assert case.summary("latency_us") is None


# Cases and ranks


def test_a_case_runs_from_its_first_ranks_start():
    waiting = make.case_of([make.run_start(), make.job_start()])
    assert (waiting.status, waiting.verdict.started, waiting.verdict.job) == ("waiting", None, 1)
    first = make.rank_event("case_start", 0) | {"time": 5.0}
    second = make.rank_event("case_start", 1) | {"time": 6.0}
    case = make.case_of([make.run_start(), make.job_start(), first, second])
    assert (case.status, case.verdict.started, case.verdict.attempts) == ("running", 5.0, 1)


def test_a_case_is_complete_when_all_ranks_have_ended_all_repeats():
    events = make.started(make.described(repeat=2))
    ends = [make.rank_event("case_end", rank) for rank in (0, 1)]
    for rank in (0, 1):
        ends.append(make.rank_event("case_start", rank, repeat=1))
        ends.append(make.rank_event("case_end", rank, repeat=1))
    assert not make.case_of([*events, *ends[:-1]]).complete
    assert make.case_of([*events, *ends]).complete


def test_a_rank_that_fails_does_not_complete_a_case_and_its_traceback_is_kept():
    error = {"type": "ValueError", "message": "no", "traceback": "Traceback ..."}
    failed = make.rank_event("case_end", 1, status="error", error=error)
    case = make.case_of([*make.started(), make.rank_event("case_end", 0), failed])
    assert not case.complete
    assert case.verdict.traceback == "Traceback ..."
    assert {rank: part.status for rank, part in case.measured.ranks.items()} == {
        0: "ok",
        1: "error",
    }


def test_a_verdict_ends_a_case():
    case = make.case_of([*make.started(), make.judged(status="failed", reason="too slow")])
    assert (case.status, case.verdict.reason, case.verdict.finished) == (
        "failed",
        "too slow",
        1000.0,
    )
    assert case.verdict.started == 1000.0  # a second later by a rank's clock


def test_a_case_that_never_started_never_finished():
    case = make.case_of([make.run_start(), make.judged(status="skipped", reason="no time")])
    assert (case.status, case.verdict.started, case.verdict.finished) == ("skipped", None, None)


def test_a_rank_is_where_it_said_and_has_its_place():
    what = make.described(places=[{"tile": "0,0"}, {"tile": "0,1"}])
    case = make.case_of(make.started(what, hosts=("node01", "node02")))
    part = case.measured.ranks[1]
    assert (part.host, part.facts.local_rank, part.device) == ("node02", 0, "cpu")
    assert (part.facts.cpus, part.coordinates) == ((0, 1), {"tile": "0,1"})


def test_a_ranks_device_is_that_of_the_case_and_not_what_its_host_has():
    said = make.rank_event("device", 1, device="cuda:1 NVIDIA H200")
    case = make.case_of([*make.started(make.described()), said])
    assert [case.measured.ranks[rank].device for rank in (0, 1)] == ["cpu", "cuda:1 NVIDIA H200"]


def test_the_next_case_does_not_show_the_device_of_the_one_before():
    said = make.rank_event("device", 1, device="cuda:1 NVIDIA H200")
    then = [make.rank_event("case_start", rank, case="b") for rank in (0, 1)]
    state = make.state_of([*make.started(make.described(), make.described("b")), said, *then])
    assert state.cases["a"].measured.ranks[1].device == "cuda:1 NVIDIA H200"
    assert state.cases["b"].measured.ranks[1].device == "cpu"


@pytest.mark.parametrize(
    ("event", "phase"),
    [
        (make.rank_event("progress", 0, phase="warmup"), "warmup"),
        (make.rank_event("case_end", 0), "done"),
        (make.rank_event("case_end", 0, status="error"), "error"),
        (make.rank_event("bye", 0), "ended"),
        (make.console_event("rank_lost", rank=0, host="node01", reason="dead"), "lost"),
    ],
)
def test_a_ranks_phase_follows_its_events(event, phase):
    assert make.state_of([*make.started(), event]).ranks[0].shown_phase == phase


def test_progress_of_a_program_has_no_repeat():
    event = make.rank_event("progress", 0, phase="timing")
    event.pop("repeat", None)
    assert make.state_of([*make.started(), event]).ranks[0].shown_phase == "timing"


def test_a_lost_rank_is_lost_in_its_case():
    lost = make.console_event("rank_lost", rank=1, host="node01", reason="dead")
    case = make.case_of([*make.started(), lost])
    assert {rank: part.status for rank, part in case.measured.ranks.items()} == {
        0: "running",
        1: "lost",
    }


def test_a_rank_that_was_lost_before_it_was_ready_changes_nothing():
    lost = make.console_event("rank_lost", rank=None, host="node01", reason="dead")
    assert make.state_of([make.run_start(), make.job_start(), lost]).ranks == {}


def test_the_last_sample_of_a_rank_is_shown():
    state = make.state_of([*make.started(), samples(0, 1.0, 2.0), samples(0, 9.0, metric="other")])
    assert state.ranks[0].last_ms == 2.0


def test_a_new_job_has_new_ranks():
    state = make.state_of([*make.started(), make.job_start(job=2)])
    assert state.ranks == {}


def test_an_unknown_event_changes_nothing():
    events = make.whole_run()
    strange = [
        make.console_event("solar_eclipse", rank=0, case="nowhere"),
        {"event": "", "time": 1.0},
    ]
    assert build_report(make.state_of([*events[:4], *strange, *events[4:]])) == build_report(
        make.state_of(events)
    )


def test_every_kind_of_a_rank_is_taken():
    events = [make.rank_event(kind) for kind in make.BY_KIND]
    state = make.state_of(
        [*make.started(make.described(metrics=[make.TIME, make.metric("bandwidth")])), *events]
    )
    assert state.ranks[0].last_heard == 1001.0


# Replay


def same_times(report):
    """The report without times of the console's own clock, which a written log has and a made
    one has not."""
    for part in (report["run"], *report["cases"]):
        for name in ("started", "finished", "duration_s"):
            part.pop(name, None)
    return report


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path)


def test_a_written_log_replays_to_the_live_state(folder):
    live = make.record(folder, make.whole_run())
    report = build_report(live)
    assert build_report(folder.replay()) == report
    assert same_times(report) == same_times(build_report(make.state_of(make.whole_run())))


def test_a_log_replays_to_the_live_state_wherever_it_is_cut(tmp_path):
    events = make.whole_run()
    for end in range(1, len(events)):
        folder = RunFolder(tmp_path / str(end))
        folder.path.mkdir()
        live = make.record(folder, events[:end])
        assert build_report(folder.replay()) == build_report(live)


def test_a_torn_last_line_is_left_out(folder):
    make.record(folder, make.whole_run())
    whole = folder.events.read_bytes()
    *_, last = whole.splitlines(keepends=True)
    without_end = build_report(state_of_log(whole[: -len(last)]))
    for cut in (1, len(last) // 2, len(last) - 1):
        folder.events.write_bytes(whole[:-cut])
        assert build_report(folder.replay()) == without_end


def state_of_log(text):
    state = RunState()
    for line in text.splitlines():
        state.apply(json.loads(line))
    return state


def test_recorded_rank_events_bear_their_job(folder):
    make.record(folder, make.whole_run())
    events = [json.loads(line) for line in folder.events.read_text().splitlines()]
    assert {event["job"] for event in events if "seq" in event} == {1}


# Runs that go on


def test_cases_of_a_run_that_goes_on_begin_anew_and_the_others_stay():
    cut = [*make.whole_run()[:-1], make.run_end("cancelled", 130, errors=["interrupted"])]
    state = make.state_of([*cut, make.resumed("a")])
    assert state.cases["a"].status == "waiting"
    assert state.cases["a"].measured.samples == {}
    assert (state.run.finished, state.run.verdict, state.run.exit_code) == (None, None, None)
    assert (state.errors, state.ranks) == ([], {})
    assert state.run.resumed == [{"time": 1000.0, "host": "login", "cases": 1}]
    kept = make.state_of([*cut, make.resumed()])
    assert kept.cases["a"].status == "passed"
    assert kept.cases["a"].measured.samples != {}


def test_a_case_that_passes_when_it_is_tried_again_is_flaky():
    first, second = make.started(make.described())[:2]
    failed = make.judged(status="failed", reason="check x failed")
    state = make.state_of([first, second, failed, make.retry("a")])
    case = state.cases["a"]
    assert (case.status, case.verdict.shown_status) == ("waiting", "waiting")
    for event in (*make.started(make.described())[1:], make.judged()):
        state.apply(event)
    assert (case.verdict.shown_status, case.verdict.attempts) == ("flaky", 2)
    assert [(tried.status, tried.reason) for tried in case.verdict.previous_attempts] == [
        ("failed", "check x failed")
    ]


def test_a_case_whose_retry_was_cut_short_is_flaky_where_it_passes_after_resuming():
    first, second = make.started(make.described())[:2]
    failed = make.judged(status="failed", reason="check x failed")
    state = make.state_of([first, second, failed, make.retry("a"), make.resumed("a")])
    for event in (*make.started(make.described())[1:], make.judged()):
        state.apply(event)
    verdict = state.cases["a"].verdict
    assert (verdict.shown_status, verdict.attempts) == ("flaky", 2)
    assert [tried.reason for tried in verdict.previous_attempts] == ["check x failed"]


def test_a_case_that_passes_at_once_is_not_flaky():
    assert make.state_of(make.whole_run()).cases["a"].verdict.shown_status == "passed"
