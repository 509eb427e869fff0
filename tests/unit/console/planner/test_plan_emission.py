"""Tests of the suite that runs a plan."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from spbench.planner.cluster.machines import (
    Cluster,
    DeviceKind,
    Link,
    Machine,
    make_cluster_from_ends,
)
from spbench.planner.errors import PlannerError
from spbench.planner.output.emission import emit_suite
from spbench.planner.output.plan_description import list_stage_notes
from spbench.planner.plans import Plan, PlanStage
from spbench.planner.profile.json_file import read_profile_json, write_profile_json
from spbench.planner.profile.layers import Origin
from support.planner.sample_profiles import make_chain

DEPTH_11 = Origin("resnet", (("image_size", 32), ("version", 2), ("depth", 11)), 2, 1)
FIVE = replace(make_chain([1.0] * 5), origin=DEPTH_11)
"""The stem, a block of each stack, and the head."""
PATH = Path("plan.yaml")


def build_plan(*stages, pipelines=1, batch=24, micro=4, schedule="1f1b", recompute=False):
    """Return a plan of stages, each given by its end and its devices."""
    ends = [end for end, _ in stages]
    return Plan(
        mode="best",
        profile="five",
        cluster="some",
        state_names=tuple(layer.name for layer in FIVE.layers),
        global_batch_size=batch,
        micro_batch_size=micro,
        micro_batches=batch // pipelines // micro,
        schedule=schedule,
        pipelines=pipelines,
        step_s=1.0,
        single_s=1.0,
        stages=tuple(
            PlanStage(start, end, tuple(devices), 1.0, 1.0, 0.0, 0.0, 1.0, recompute)
            for start, end, (_, devices) in zip([0, *ends[:-1]], ends, stages, strict=True)
        ),
    )


def emit_params(plan, cluster=None, profile=FIVE):
    emitted = emit_suite(plan, profile, cluster or make_cluster_from_ends([8]), PATH)
    [case] = emitted.suite.cases
    assert case.benchmark == "model.resnet"
    assert case.ranks.exact == emitted.rank_count
    assert case.launch.threads == 1
    return dict(case.params)


def pick(params, *names):
    return tuple(params[name] for name in names)


def test_pipeline_has_a_stage_per_device():
    params = emit_params(build_plan((2, [0]), (5, [1]), schedule="1f1b-deep"))
    assert pick(params, "scheme", "split_size", "balance") == ("lp", 2, "2,3")
    assert pick(params, "batch_size", "parts", "schedule") == (24, 6, "1f1b-deep")
    assert pick(params, "local_DP", "replicas", "depth") == ("1", 1, 11)
    assert pick(params, "validate", "baseline") == ("auto", False)


def test_one_device_runs_the_sequential_scheme():
    assert pick(emit_params(build_plan((5, [0]))), "scheme", "batch_size", "parts") == (
        "sequential",
        24,
        6,
    )


def test_data_parallelism_becomes_replicas():
    params = emit_params(build_plan((5, [0, 1])))
    assert pick(params, "split_size", "replicas", "local_DP") == (1, 2, "1")
    assert pick(params, "batch_size", "parts") == (12, 6)


def test_unequal_stages_use_local_data_parallelism():
    params = emit_params(build_plan((2, [0, 1]), (5, [2])))
    assert pick(params, "local_DP", "replicas", "balance") == ("2,1", 1, "2,3")


def test_parallel_pipelines_with_unequal_stages_are_replicas():
    params = emit_params(build_plan((2, [0, 1, 2, 3]), (5, [4, 5]), pipelines=2))
    assert pick(params, "local_DP", "replicas") == ("2,1", 2)
    assert pick(params, "batch_size", "parts") == (12, 3)


def test_stages_on_separate_machines_share_images_locally():
    """With replicas, ranks 0 and 1 would be the two stages of the first replica."""
    cluster = make_cluster_from_ends([2, 4])
    params = emit_params(build_plan((2, [0, 1]), (5, [2, 3])), cluster)
    assert pick(params, "local_DP", "replicas") == ("2", 1)
    params = emit_params(build_plan((2, [0, 2]), (5, [1, 3])), cluster)
    assert pick(params, "local_DP", "replicas") == ("1", 2)


def test_interleaved_stages_become_rounds():
    stages = ((1, [0]), (2, [1]), (3, [0]), (5, [1]))
    params = emit_params(build_plan(*stages, schedule="interleaved", batch=8, micro=4))
    assert pick(params, "scheme", "split_size", "rounds") == ("lp", 4, 2)
    assert pick(params, "schedule", "balance", "parts") == ("interleaved", "1,1,1,2", 2)


def test_recomputing_stages_are_listed():
    plan = build_plan((2, [0]), (5, [1]), recompute=True)
    assert pick(emit_params(plan), "recompute", "recompute_stages") == ("stage", None)
    first, last = plan.stages
    plan = replace(plan, stages=(first, replace(last, recompute=False)))
    assert pick(emit_params(plan), "recompute", "recompute_stages") == ("stage", [0])


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (build_plan((2, [0]), (5, [2])), "idle between others"),
        (build_plan((5, [0, 1]), micro=1), "with --micro-batch-size 2 or more"),
        (build_plan((5, [0, 1]), batch=9, micro=9), "2 replicas cannot share a batch of 9"),
    ],
)
def test_rejects_plans_that_no_benchmark_runs(plan, message):
    with pytest.raises(PlannerError, match=message):
        emit_params(plan)


def test_rejects_machines_in_an_unsupported_order(messages):
    kind = DeviceKind("d")
    link = Link("l", 1e9)
    machines = (Machine("a", (kind,)), Machine("b", (kind, kind), link))
    cluster = Cluster("uneven", machines, link)
    with messages.raises(PlannerError):
        emit_params(build_plan((2, [1, 2]), (5, [0])), cluster)


def test_rejects_profiles_that_no_benchmark_runs(messages):
    plan = build_plan((2, [0]), (5, [1]))
    for origin, message in (
        (None, "does not say which model"),
        (Origin("mine:net"), "which no benchmark runs"),
    ):
        with pytest.raises(PlannerError, match=message):
            emit_params(plan, profile=replace(FIVE, origin=origin))
    with messages.raises(PlannerError):
        emit_params(plan, profile=replace(make_chain([1.0] * 4), origin=DEPTH_11))


def test_user_network_runs_with_its_profiled_params():
    origin = Origin("nets:Net", (("image_size", 64), ("network_args", {"width": 8})), 2, 1)
    emitted = emit_suite(
        build_plan((2, [0]), (5, [1])),
        replace(FIVE, origin=origin),
        make_cluster_from_ends([8]),
        PATH,
    )
    [case] = emitted.suite.cases
    assert case.benchmark == "model.network"
    expected = {"network": "nets:Net", "network_args": {"width": 8}, "image_size": 64}
    assert {name: case.params[name] for name in expected} == expected
    assert (case.params["balance"], case.params["scheme"]) == ("2,3", "lp")
    assert (
        read_profile_json(write_profile_json(replace(FIVE, origin=origin)), "p", "five").origin
        == origin
    )


def test_origin_round_trips_and_rejects_bad_values():
    text = write_profile_json(FIVE)
    assert read_profile_json(text, "five.json", "five") == FIVE
    for origin, message in (
        ({"model": 3}, "origin.model must be text, not 3"),
        ({"model": "resnet", "rank": 2}, "unknown key 'rank' in origin"),
        ({"model": "resnet", "ranks": 0}, "origin.ranks must be at least 1, not 0"),
        ({"model": "resnet", "params": {"depth": [1]}}, "origin.params.depth must be text or a"),
    ):
        document = json.dumps(json.loads(text) | {"origin": origin})
        with pytest.raises(PlannerError, match=message):
            read_profile_json(document, "five.json", "five")


@pytest.mark.parametrize(
    ("measured", "note"),
    [
        ((2, 4), None),
        ((1, 4), "measured at batches of 1 and 4; times at 2 per device are interpolated"),
        ((8,), "measured at batches of 8; times at 2 and 4 per device are extrapolated"),
        (
            (1, 3),
            "measured at batches of 1 and 3; times at 2 and 4 per device are interpolated, "
            "beyond 1 to 3 extrapolated",
        ),
    ],
)
def test_notes_list_batch_sizes_that_were_not_measured(measured, note):
    plan = replace(build_plan((2, [0, 1]), (5, [2])), measured_batches=measured)
    notes = [text for text in list_stage_notes(plan) if text.startswith("the profile was")]
    assert notes == ([f"the profile was {note}"] if note else [])


def test_notes_report_message_overhead_of_the_passes(messages):
    plan = build_plan((2, [0]), (5, [1]))
    first, second = (
        replace(stage, overhead_s=seconds)
        for stage, seconds in zip(plan.stages, (1e-3, 2e-3), strict=True)
    )
    messages.check(list_stage_notes(replace(plan, stages=(first, second)))[0])


def test_notes_explain_why_stage_times_do_not_add_up():
    plan = build_plan((2, [0]), (5, [1]))
    overlap = "stages work at the same time, so that their times do not add up to the step"
    assert list_stage_notes(plan)[-1] == overlap
    waiting = "by zb-h1, gradients of weights wait until a stage has nothing else"
    zero_bubble = replace(plan, schedule="zb-h1")
    assert list_stage_notes(zero_bubble)[-1] == f"{overlap}; {waiting}"
    assert not any("add up" in note for note in list_stage_notes(build_plan((5, [0, 1]))))
