"""The state of a run, built from its events."""

import json

import pytest

from spbench.record.runs.folder import RunFolder
from spbench.record.state import RunState
from spbench.report.build import build_report
from support import sample_events as make


def samples(rank, *values, repeat=0, metric="time_ms"):
    return make.rank_event("samples", rank, values=list(values), repeat=repeat, metric=metric)


def check_event(rank, passed=True, error=0.0, **fields):
    return make.rank_event("check", rank, passed=passed, max_abs_error=error, **fields)


# Samples


def test_iteration_takes_the_time_of_its_slowest_rank():
    case = make.build_case_state(
        [*make.make_started_run(), samples(0, 1.0, 5.0, 2.0), samples(1, 3.0, 1.0, 2.5)]
    )
    assert case.fold_samples("time_ms") == [[3.0, 5.0, 2.5]]


def test_joins_batches_in_any_order_of_ranks():
    case = make.build_case_state(
        [
            *make.make_started_run(),
            samples(1, 3.0),
            samples(0, 1.0),
            samples(0, 5.0),
            samples(1, 1.0),
        ]
    )
    assert case.fold_samples("time_ms") == [[3.0, 5.0]]


def test_omits_iterations_that_a_rank_has_not_finished():
    case = make.build_case_state(
        [*make.make_started_run(), samples(0, 1.0, 2.0, 3.0), samples(1, 1.0)]
    )
    assert case.fold_samples("time_ms") == [[1.0]]


def test_omits_iterations_that_a_rank_has_not_started():
    case = make.build_case_state([*make.make_started_run(), samples(0, 1.0, 2.0, 3.0)])
    assert case.fold_samples("time_ms") == []
    assert case.summary("time_ms") is None


def test_keeps_samples_of_one_rank_of_a_metric_other_than_time():
    case_description = make.describe_case(metrics=[make.TIME, make.describe_metric("rate")])
    case = make.build_case_state(
        [*make.make_started_run(case_description), samples(0, 1.0, 2.0, metric="rate")]
    )
    assert case.fold_samples("rate") == [[1.0, 2.0]]


def test_summary_covers_all_repeats():
    events = [samples(rank, repeat + 1.0, repeat=repeat) for repeat in (0, 1) for rank in (0, 1)]
    case = make.build_case_state([*make.make_started_run(make.describe_case(repeat=2)), *events])
    assert case.fold_samples("time_ms") == [[1.0], [2.0]]
    assert case.summary("time_ms").n == 2


RATIOS = {"efficiency": 4.0 / 2.0, "speedup": 5.0 / 2.0}
"""The reference of 4 ms and the sequential time of 5 ms over the time of 2 ms, each a median."""


@pytest.mark.parametrize(("name", "expected"), RATIOS.items())
def test_ratio_over_repeats_is_computed_from_median_times(name, expected):
    """The median of the ratios of the repeats would be 1."""
    metrics = [
        make.TIME,
        make.describe_metric("sequential_ms"),
        make.describe_metric(name, better="higher"),
    ]
    case_description = make.describe_case(repeat=3, metrics=metrics)
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
    assert (
        make.build_case_state([*make.make_started_run(case_description), *events]).summary(name).p50
        == expected
    )


@pytest.mark.parametrize(
    ("fold", "value"), [("max", 4.0), ("min", 1.0), ("sum", 5.0), ("mean", 2.5)]
)
def test_folds_a_metric_over_ranks_as_in_the_catalog(fold, value):
    case_description = make.describe_case(
        metrics=[make.TIME, make.describe_metric("rate", fold=fold)]
    )
    events = [
        make.rank_event("metric", rank, name="rate", value=[1.0, 4.0][rank]) for rank in (0, 1)
    ]
    assert make.build_case_state([*make.make_started_run(case_description), *events]).fold_samples(
        "rate"
    ) == [[value]]


def test_metric_without_a_value_has_no_summary():
    case_description = make.describe_case(metrics=[make.TIME, make.describe_metric("rate")])
    case = make.build_case_state(
        [
            *make.make_started_run(case_description),
            make.rank_event("metric", 0, name="rate", value=None),
        ]
    )
    assert case.summary("rate") is None


@pytest.mark.parametrize("name", ["time_ms", "skew", "nonsense"])
def test_unmeasured_metric_has_no_summary(name):
    assert make.build_case_state(make.make_started_run()).summary(name) is None


# Skew


def test_skew_is_the_slowest_over_the_typical_median():
    events = make.make_started_run(hosts=["node01"] * 4)
    times = [samples(0, 1.0, 9.0, 1.0), samples(1, 2.0), samples(2, 6.0), samples(3, 5.0)]
    case = make.build_case_state([*events, *times])
    assert case.compute_rank_medians() == {0: 1.0, 1: 2.0, 2: 6.0, 3: 5.0}
    assert case.skew() == pytest.approx(3.0)
    assert case.summary("skew").p50 == pytest.approx(3.0)


def test_skew_of_two_ranks_is_their_ratio():
    assert (
        make.build_case_state([*make.make_started_run(), samples(0, 1.0), samples(1, 4.0)]).skew()
        == 4.0
    )


def test_single_rank_has_no_skew():
    assert (
        make.build_case_state(
            [*make.make_started_run(hosts=["node01"]), samples(0, 1.0, 2.0)]
        ).skew()
        is None
    )


def test_ranks_with_zero_times_have_no_skew():
    assert (
        make.build_case_state([*make.make_started_run(), samples(0, 0.0), samples(1, 0.0)]).skew()
        is None
    )


# Checks


@pytest.mark.parametrize(
    ("comparisons", "passed", "error"),
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
def test_keeps_the_worst_comparison_of_a_rank(comparisons, passed, error):
    events = [
        check_event(0, ok, rank_error, tolerance=0.5, detail=str(rank_error))
        for ok, rank_error in comparisons
    ]
    result = make.build_case_state([*make.make_started_run(), *events]).measured.checks["halo"][
        0, 0
    ]
    assert (result.passed, result.max_abs_error, result.detail) == (passed, error, str(error))


def test_keeps_checks_by_rank_and_repeat():
    events = [check_event(0), check_event(1, False, 2.0), check_event(0, False, 1.0, repeat=1)]
    results = make.build_case_state(
        [*make.make_started_run(make.describe_case(repeat=2)), *events]
    ).measured.checks["halo"]
    assert {key: result.passed for key, result in results.items()} == {
        (0, 0): True,
        (0, 1): False,
        (1, 0): False,
    }


# Limits and measurements


def test_limit_is_not_a_value_of_the_metric():
    case_description = make.describe_case(metrics=[make.TIME, make.describe_metric("rate")])
    limit = make.rank_event("metric", name="rate", value=9.0, measured_by="memory.copy")
    case = make.build_case_state([*make.make_started_run(case_description), limit])
    assert case.measured.median_references == {"rate": {"value": 9.0, "measured_by": "memory.copy"}}
    assert case.summary("rate") is None


@pytest.mark.parametrize(
    ("values", "expected"),
    [([9.0, 1.0, 2.0], 2.0), ([None, 3.0], 3.0), ([None, None], None)],
)
def test_reference_is_that_of_the_median_launch(values, expected):
    case_description = make.describe_case(repeat=3)
    limit_events = [
        make.rank_event(
            "metric", name="time_ms", value=value, measured_by=f"launch with {value}", repeat=repeat
        )
        for repeat, value in enumerate(values)
    ]
    case = make.build_case_state([*make.make_started_run(case_description), *limit_events])
    assert case.measured.median_references["time_ms"] == {
        "value": expected,
        "measured_by": f"launch with {expected}",
    }


def test_median_of_two_references_has_the_origin_of_one():
    case_description = make.describe_case(repeat=2)
    references = [
        make.rank_event("metric", name="time_ms", value=value, measured_by=origin, repeat=repeat)
        for repeat, (value, origin) in enumerate([(4.0, "a copy"), (1.0, "two copies")])
    ]
    case = make.build_case_state([*make.make_started_run(case_description), *references])
    assert case.measured.median_references["time_ms"] == {
        "value": 2.5,
        "measured_by": "two copies (1.00 ms; the median of 2 repeats is shown)",
    }


def test_keeps_a_choice_with_its_reason():
    case = make.build_case_state(
        [*make.make_started_run(make.describe_case()), make.rank_event("choice", 0)]
    )
    assert case.measured.choices == {
        "transport": {"value": "shm", "reason": "the fastest of packed 0.2 ms, shm 0.1 ms"}
    }


def test_value_with_labels_is_a_measurement():
    case_description = make.describe_case(metrics=[make.TIME, make.describe_metric("latency_us")])
    labels = {"source": 0, "target": 1, "bytes": 8}
    metric = make.rank_event("metric", 1, name="latency_us", value=0.5, labels=labels)
    case = make.build_case_state([*make.make_started_run(case_description), metric])
    assert case.measured.labelled == [{"name": "latency_us", "value": 0.5, "rank": 1, **labels}]
    assert case.summary("latency_us") is None


# Cases and ranks


def test_case_starts_with_its_first_rank():
    waiting = make.build_case_state([make.run_start(), make.job_start()])
    assert (waiting.status, waiting.execution.started, waiting.execution.job) == (
        "waiting",
        None,
        1,
    )
    first = make.rank_event("case_start", 0) | {"time": 5.0}
    second = make.rank_event("case_start", 1) | {"time": 6.0}
    case = make.build_case_state([make.run_start(), make.job_start(), first, second])
    assert (case.status, case.execution.started, case.execution.attempts) == ("running", 5.0, 1)


def test_case_is_complete_once_all_ranks_ended_all_repeats():
    events = make.make_started_run(make.describe_case(repeat=2))
    ends = [make.rank_event("case_end", rank) for rank in (0, 1)]
    for rank in (0, 1):
        ends.append(make.rank_event("case_start", rank, repeat=1))
        ends.append(make.rank_event("case_end", rank, repeat=1))
    assert not make.build_case_state([*events, *ends[:-1]]).complete
    assert make.build_case_state([*events, *ends]).complete


def test_failed_rank_leaves_a_traceback_and_no_complete_case():
    error = {"type": "ValueError", "message": "no", "traceback": "Traceback ..."}
    failed = make.rank_event("case_end", 1, status="error", error=error)
    case = make.build_case_state([*make.make_started_run(), make.rank_event("case_end", 0), failed])
    assert not case.complete
    assert case.execution.traceback == "Traceback ..."
    assert {rank: rank_state.status for rank, rank_state in case.measured.ranks.items()} == {
        0: "ok",
        1: "error",
    }


def test_judgement_ends_a_case():
    case = make.build_case_state(
        [*make.make_started_run(), make.case_judged(status="failed", reason="too slow")]
    )
    assert (case.status, case.execution.reason, case.execution.finished) == (
        "failed",
        "too slow",
        1000.0,
    )
    assert case.execution.started == 1000.0  # one second later by the clock of the rank


def test_case_that_never_started_has_no_finish_time():
    case = make.build_case_state(
        [make.run_start(), make.case_judged(status="skipped", reason="no time")]
    )
    assert (case.status, case.execution.started, case.execution.finished) == ("skipped", None, None)


def test_rank_has_its_host_facts_and_coordinates():
    case_description = make.describe_case(places=[{"tile": "0,0"}, {"tile": "0,1"}])
    case = make.build_case_state(
        make.make_started_run(case_description, hosts=("node01", "node02"))
    )
    rank = case.measured.ranks[1]
    assert (rank.host, rank.facts.local_rank, rank.device) == ("node02", 0, "cpu")
    assert (rank.facts.cpus, rank.coordinates) == ((0, 1), {"tile": "0,1"})


def test_device_event_sets_the_device_of_a_rank(messages):
    device_event = make.rank_event("device", 1, device="cuda:1 NVIDIA H200")
    case = make.build_case_state([*make.make_started_run(make.describe_case()), device_event])
    messages.check([case.measured.ranks[rank].device for rank in (0, 1)])


def test_next_case_resets_the_device_of_a_rank(messages):
    device_event = make.rank_event("device", 1, device="cuda:1 NVIDIA H200")
    starts = [make.rank_event("case_start", rank, case="b") for rank in (0, 1)]
    state = make.build_state(
        [
            *make.make_started_run(make.describe_case(), make.describe_case("b")),
            device_event,
            *starts,
        ]
    )
    messages.check(state.cases["a"].measured.ranks[1].device)
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
def test_phase_of_a_rank_follows_its_events(event, phase):
    assert make.build_state([*make.make_started_run(), event]).ranks[0].shown_phase == phase


def test_ranks_that_report_no_more_are_unfinished_after_their_job():
    state = make.build_state(
        [
            *make.make_started_run(make.describe_case(np=3)),
            make.rank_event("progress", 0, phase="timing", done=2, total=5),
            make.rank_event("case_end", 1),
            make.rank_event("bye", 2),
            make.job_end("a rank was killed"),
        ]
    )
    phases = [state.ranks[rank].shown_phase for rank in range(3)]
    assert phases == ["unfinished", "done", "ended"]
    state.apply(make.rank_event("bye", 0))
    assert state.ranks[0].shown_phase == "ended"
    assert state.ignored.count == 0


def test_accepts_progress_without_a_repeat():
    event = make.rank_event("progress", 0, phase="timing")
    event.pop("repeat", None)
    assert make.build_state([*make.make_started_run(), event]).ranks[0].shown_phase == "timing"


def test_lost_rank_is_lost_in_its_case():
    lost = make.console_event("rank_lost", rank=1, host="node01", reason="dead")
    case = make.build_case_state([*make.make_started_run(), lost])
    assert {rank: rank_state.status for rank, rank_state in case.measured.ranks.items()} == {
        0: "running",
        1: "lost",
    }


@pytest.mark.parametrize("is_connected", [False, True])
def test_rank_lost_before_a_later_launch_began_its_case_is_lost_in_the_case(is_connected):
    lost = make.console_event("rank_lost", job=2, rank=1, host="node01", reason="dead")
    hello = [make.rank_event("hello", 1, host="node01")] if is_connected else []
    case = make.build_case_state(
        [
            *make.make_started_run(make.describe_case(repeat=2)),
            *(make.rank_event("case_end", rank, status="ok") for rank in (0, 1)),
            make.job_end(),
            make.job_start(job=2),
            *hello,
            lost,
        ]
    )
    statuses = {rank: rank_state.status for rank, rank_state in case.measured.ranks.items()}
    assert statuses == {0: "ok", 1: "lost"}


def test_rank_lost_before_it_was_ready_is_not_added():
    lost = make.console_event("rank_lost", rank=None, host="node01", reason="dead")
    assert make.build_state([make.run_start(), make.job_start(), lost]).ranks == {}


def test_keeps_the_last_time_of_a_rank():
    state = make.build_state(
        [*make.make_started_run(), samples(0, 1.0, 2.0), samples(0, 9.0, metric="other")]
    )
    assert state.ranks[0].last_ms == 2.0


def test_new_job_has_new_ranks():
    state = make.build_state([*make.make_started_run(), make.job_start(job=2)])
    assert state.ranks == {}


def test_unknown_event_changes_nothing():
    events = make.make_complete_run()
    unknown = [
        make.console_event("solar_eclipse", rank=0, case="nowhere"),
        {"event": "", "time": 1.0},
    ]
    assert build_report(make.build_state([*events[:4], *unknown, *events[4:]])) == build_report(
        make.build_state(events)
    )


def test_accepts_every_kind_of_rank_event():
    events = [make.rank_event(kind) for kind in make.RANK_EVENTS]
    state = make.build_state(
        [
            *make.make_started_run(
                make.describe_case(metrics=[make.TIME, make.describe_metric("bandwidth")])
            ),
            *events,
        ]
    )
    assert state.ranks[0].last_heard == 1001.0


# Replay


def remove_console_times(report):
    """Remove times of the console's clock, which only a recorded log has."""
    for section in (report["run"], *report["cases"]):
        for name in ("started", "finished", "duration_s"):
            section.pop(name, None)
    return report


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path)


def test_log_replays_to_the_live_state(folder):
    live = make.record_events(folder, make.make_complete_run())
    report = build_report(live)
    assert build_report(folder.replay()) == report
    assert remove_console_times(report) == remove_console_times(
        build_report(make.build_state(make.make_complete_run()))
    )


def test_truncated_log_replays_to_the_live_state(tmp_path):
    events = make.make_complete_run()
    for end in range(1, len(events)):
        folder = RunFolder(tmp_path / str(end))
        folder.path.mkdir()
        live = make.record_events(folder, events[:end])
        assert build_report(folder.replay()) == build_report(live)


def test_ignores_an_incomplete_last_line(folder):
    make.record_events(folder, make.make_complete_run())
    content = folder.events.read_bytes()
    *_, last = content.splitlines(keepends=True)
    without_end = build_report(replay_log(content[: -len(last)]))
    for cut in (1, len(last) // 2, len(last) - 1):
        folder.events.write_bytes(content[:-cut])
        assert build_report(folder.replay()) == without_end


def replay_log(text):
    state = RunState()
    for line in text.splitlines():
        state.apply(json.loads(line))
    return state


def test_recorded_rank_events_have_their_job(folder):
    make.record_events(folder, make.make_complete_run())
    events = [json.loads(line) for line in folder.events.read_text().splitlines()]
    assert {event["job"] for event in events if "seq" in event} == {1}


# Resumed runs and retries


def test_resumed_run_resets_only_the_cases_that_run_again():
    interrupted = [
        *make.make_complete_run()[:-1],
        make.run_end("cancelled", 130, errors=["interrupted"]),
    ]
    state = make.build_state([*interrupted, make.run_resumed("a")])
    assert state.cases["a"].status == "waiting"
    assert state.cases["a"].measured.samples == {}
    assert (state.run.finished, state.run.status, state.run.exit_code) == (None, None, None)
    assert (state.errors, state.ranks) == ([], {})
    assert state.run.resumed == [{"time": 1000.0, "host": "login", "cases": 1}]
    unchanged = make.build_state([*interrupted, make.run_resumed()])
    assert unchanged.cases["a"].status == "passed"
    assert unchanged.cases["a"].measured.samples != {}


def test_case_that_passes_on_retry_is_flaky():
    first, second = make.make_started_run(make.describe_case())[:2]
    failed = make.case_judged(status="failed", reason="check x failed")
    state = make.build_state([first, second, failed, make.retry("a")])
    case = state.cases["a"]
    assert (case.status, case.execution.shown_status) == ("waiting", "waiting")
    for event in (*make.make_started_run(make.describe_case())[1:], make.case_judged()):
        state.apply(event)
    assert (case.execution.shown_status, case.execution.attempts) == ("flaky", 2)
    assert [(attempt.status, attempt.reason) for attempt in case.execution.previous_attempts] == [
        ("failed", "check x failed")
    ]


def test_interrupted_retry_that_passes_after_resume_is_flaky(messages):
    first, second = make.make_started_run(make.describe_case())[:2]
    failed = make.case_judged(status="failed", reason="check x failed")
    state = make.build_state([first, second, failed, make.retry("a"), make.run_resumed("a")])
    for event in (*make.make_started_run(make.describe_case())[1:], make.case_judged()):
        state.apply(event)
    execution = state.cases["a"].execution
    assert (execution.shown_status, execution.attempts) == ("flaky", 2)
    messages.check([attempt.reason for attempt in execution.previous_attempts])


def test_case_that_passes_at_once_is_not_flaky():
    assert make.build_state(make.make_complete_run()).cases["a"].execution.shown_status == "passed"
