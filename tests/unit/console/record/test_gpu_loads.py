"""The GPUs of a run: readings, figures of cases, findings and the report."""

import pytest

from spbench.record.findings import collect_findings
from spbench.record.machine.gpu_throttling import describe_throttled_gpus
from spbench.record.machine.host_loads import HISTORY_LENGTH
from spbench.record.noise import describe_case_noise
from spbench.report.build import build_report
from spbench_core.events.fields import EventError
from spbench_core.events.gpu_readings import MAX_GPUS
from spbench_core.events.rank_events import check_rank_event
from support import sample_events as events

FIRST = "0000:81:00.0"
SECOND = "0000:82:00.0"
FACTS = {
    "name": "NVIDIA H200",
    "memory_total_bytes": 141 << 30,
    "power_limit_w": 700.0,
    "max_sm_clock_mhz": 1980,
}


def heartbeat(*gpus, rank=0):
    return events.rank_event("heartbeat", rank, gpus=list(gpus))


def make_reading(index=0, **changes):
    """Return a reading of a busy GPU that is not throttled."""
    values = {"utilization": 0.9, "memory_used_bytes": 60 << 30, "power_w": 650.0}
    clocks = {"sm_clock_mhz": 1980, "temperature_c": 60, "throttle_reasons": []}
    return {"index": index, **values, **clocks, **changes}


def make_facts(index=0, address=FIRST):
    return {**make_reading(index), **FACTS, "address": address}


def make_gpu_run(*heartbeats, case="conv", addresses=(FIRST,), activity="timing"):
    """Return the events of a run with one rank per host, which use these GPUs."""
    hosts = tuple(f"node{rank + 1:02d}" for rank in range(len(addresses)))
    devices = (
        events.rank_event("device", rank, case=case, device="cuda:0", address=address)
        for rank, address in enumerate(addresses)
    )
    progress = (
        events.rank_event("progress", rank, case=case, phase=activity)
        for rank in range(len(addresses))
    )
    description = events.describe_case(case, len(hosts))
    return [
        *events.make_started_run(description, hosts=hosts),
        *devices,
        *progress,
        *heartbeats,
        events.case_judged(case),
    ]


def test_keeps_facts_of_the_first_reading():
    state = events.build_state(make_gpu_run(heartbeat(make_facts()), heartbeat(make_reading())))
    gpu = state.gpu_loads.find("node01", FIRST)
    assert (gpu.facts.name, gpu.facts.max_sm_clock_mhz) == ("NVIDIA H200", 1980)
    assert gpu.newest.power_w == 650.0
    assert list(gpu.history) == [0.9, 0.9]
    assert state.gpu_loads.ranks(gpu) == [0]


def test_a_host_load_has_the_mean_utilization():
    readings = make_reading(0, utilization=1.0), make_reading(1, utilization=0.5)
    state = events.build_state(make_gpu_run(heartbeat(*readings)))
    assert list(state.host_loads.get("node01", "gpu").last) == [0.75]


def test_absent_values_stay_absent():
    state = events.build_state(make_gpu_run(heartbeat({"index": 0, "address": FIRST})))
    (part,) = build_report(state)["hosts"][0]["gpus"]
    names = {name for name, value in part.items() if value is not None}
    assert names == {"index", "address", "lost", "readings"}
    assert state.host_loads.get("node01", "gpu") is None


def test_history_is_bounded():
    beats = [heartbeat(make_reading())] * (HISTORY_LENGTH + 5)
    state = events.build_state(make_gpu_run(*beats))
    (gpu,) = state.gpu_loads.values()
    assert (len(gpu.history), gpu.figures.num_readings) == (HISTORY_LENGTH, HISTORY_LENGTH + 5)


def test_names_a_throttled_gpu(messages):
    capped = make_reading(sm_clock_mhz=1200, throttle_reasons=["power cap"])
    beats = [heartbeat(make_facts()), *[heartbeat(make_reading())] * 5, *[heartbeat(capped)] * 4]
    state = events.build_state(make_gpu_run(*beats))
    (finding,) = collect_findings(state)
    messages.check(finding)
    part = build_report(state)["cases"][0]["gpus"][0]
    assert part["throttled"] == {"power cap": 0.4}
    assert (part["min_sm_clock_mhz"], part["max_sm_clock_mhz"]) == (1200, 1980)
    assert (part["host"], part["address"]) == ("node01", FIRST)
    assert part["mean_power_w"] == 650.0


def test_one_message_per_reason_over_all_gpus(messages):
    hot = make_reading(throttle_reasons=["thermal", "power cap"])
    addresses = (FIRST,) * 5
    beats = [
        heartbeat(make_facts() | hot if count == 0 else hot, rank=rank)
        for rank in range(5)
        for count in range(3)
    ]
    findings = collect_findings(events.build_state(make_gpu_run(*beats, addresses=addresses)))
    assert len(findings) == 2
    messages.check("\n".join(findings))


def test_counts_throttled_cases_among_all_judged_ones():
    beats = [heartbeat(make_facts() | {"throttle_reasons": ["thermal"]})] * 3
    addresses = {"conv": FIRST, "gemm": FIRST, "halo": None}
    cases = [
        events.build_case_state(make_gpu_run(*beats, case=name, addresses=(address,)), name)
        for name, address in addresses.items()
    ]
    (finding,) = describe_throttled_gpus(cases)
    assert "in 2 of 3 cases" in finding


@pytest.mark.parametrize(("reason", "is_noisy"), [("thermal", True), ("power cap", False)])
def test_only_unexpected_throttling_makes_a_case_noisy(reason, is_noisy):
    beats = [heartbeat(make_facts() | {"throttle_reasons": [reason]})] * 3
    case = events.build_case_state(make_gpu_run(*beats), "conv")
    assert (describe_case_noise(case) is not None) is is_noisy


@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_throttled_readings_are_no_finding(count):
    hot = make_facts() | {"throttle_reasons": ["thermal"]}
    state = events.build_state(make_gpu_run(*[heartbeat(hot)] * count))
    assert collect_findings(state) == []


def test_a_gpu_of_another_job_does_not_count():
    hot = make_reading(1, throttle_reasons=["thermal"])
    beats = [heartbeat(make_facts(), make_facts(1, SECOND) | hot)] * 3
    state = events.build_state(make_gpu_run(*beats))
    assert collect_findings(state) == []
    assert [part["index"] for part in build_report(state)["cases"][0]["gpus"]] == [0]


def test_no_gpu_counts_if_the_ranks_compute_on_cpus():
    beats = [heartbeat(make_facts())] * 3
    state = events.build_state(make_gpu_run(*beats, addresses=(None,)))
    assert build_report(state)["cases"][0]["gpus"] == []


def test_busy_gpus_count_for_a_program():
    beats = [heartbeat(make_facts(), make_facts(1, SECOND) | {"utilization": 0.0})] * 3
    run = make_gpu_run(*beats, activity="running")
    state = events.build_state([event for event in run if event["event"] != "device"])
    assert [part["index"] for part in build_report(state)["cases"][0]["gpus"]] == [0]


@pytest.mark.parametrize("activity", ["warmup", "check"])
def test_readings_outside_of_the_timed_part_do_not_count(activity):
    beats = [heartbeat(make_facts())] * 3
    state = events.build_state(make_gpu_run(*beats, activity=activity))
    assert build_report(state)["cases"][0]["gpus"] == []


def test_a_lost_gpu_is_reported_as_lost(messages):
    beats = heartbeat(make_facts()), heartbeat({"index": 0, "lost": True})
    state = events.build_state(make_gpu_run(*beats))
    (finding,) = collect_findings(state)
    messages.check(finding)
    (part,) = build_report(state)["hosts"][0]["gpus"]
    assert part["lost"]
    assert part["mean_utilization"] == 0.9
    assert state.host_loads.get("node01", "gpu").count == 1


def test_ranks_of_an_earlier_launch_are_forgotten():
    run = make_gpu_run(heartbeat(make_facts()))
    state = events.build_state([*run, events.job_end(), events.job_start("conv", job=2)])
    (gpu,) = state.gpu_loads.values()
    assert state.gpu_loads.ranks(gpu) == []


@pytest.mark.parametrize(
    "gpus",
    [
        ["H200"],
        [{}],
        [{"index": 0, "power_w": "high"}],
        [{"index": 0, "throttle_reasons": [1]}],
        [{"index": 0, "lost": 1}],
        [{"index": index} for index in range(MAX_GPUS + 1)],
    ],
)
def test_rejects_invalid_readings(gpus):
    with pytest.raises(EventError):
        check_rank_event(heartbeat(*gpus))


def test_ignores_unknown_reasons_and_fields():
    reading = make_reading(throttle_reasons=["a new reason"], color="green")
    check_rank_event(heartbeat(reading))
    state = events.build_state(make_gpu_run(heartbeat(reading)))
    (gpu,) = state.gpu_loads.values()
    assert gpu.newest.throttle_reasons == ()
