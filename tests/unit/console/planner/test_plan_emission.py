"""From a plan to the suite that runs it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from spbench.planner.cluster.machines import Cluster, DeviceKind, Link, Machine, cluster_from_ends
from spbench.planner.errors import PlannerError
from spbench.planner.output.emission import emit_suite
from spbench.planner.output.plan_description import list_stage_notes
from spbench.planner.plans import Plan, PlanStage
from spbench.planner.profile.json_file import read_profile_json, write_profile_json
from spbench.planner.profile.layers import Origin
from unit.console.planner.made_up import chain

DEPTH_11 = Origin("resnet", (("image_size", 32), ("version", 2), ("depth", 11)), 2, 1)
FIVE = replace(chain([1.0] * 5), origin=DEPTH_11)
"""The stem, a block of each stack, and the head."""
PATH = Path("plan.yaml")


def planned(*stages, pipelines=1, batch=24, micro=4, schedule="1f1b", recompute=False):
    """A plan of stages, each its end and its devices."""
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


def params_of(plan, cluster=None, profile=FIVE):
    made = emit_suite(plan, profile, cluster or cluster_from_ends([8]), PATH)
    [case] = made.suite.cases
    assert case.benchmark == "model.resnet"
    assert case.ranks.exact == made.ranks
    assert case.launch.threads == 1
    return dict(case.params)


def chosen(params, *names):
    return tuple(params[name] for name in names)


def test_a_pipeline():
    params = params_of(planned((2, [0]), (5, [1]), schedule="1f1b-deep"))
    assert chosen(params, "scheme", "split_size", "balance") == ("lp", 2, "2,3")
    assert chosen(params, "batch_size", "parts", "schedule") == (24, 6, "1f1b-deep")
    assert chosen(params, "local_DP", "replicas", "depth") == ("1", 1, 11)
    assert chosen(params, "validate", "baseline") == ("auto", False)


def test_one_device():
    assert chosen(params_of(planned((5, [0]))), "scheme", "batch_size", "parts") == (
        "sequential",
        24,
        6,
    )


def test_data_parallel_is_replicas():
    params = params_of(planned((5, [0, 1])))
    assert chosen(params, "split_size", "replicas", "local_DP") == (1, 2, "1")
    assert chosen(params, "batch_size", "parts") == (12, 6)


def test_unequal_stages_share_images():
    params = params_of(planned((2, [0, 1]), (5, [2])))
    assert chosen(params, "local_DP", "replicas", "balance") == ("2,1", 1, "2,3")


def test_pipelines_side_by_side_with_unequal_stages():
    params = params_of(planned((2, [0, 1, 2, 3]), (5, [4, 5]), pipelines=2))
    assert chosen(params, "local_DP", "replicas") == ("2,1", 2)
    assert chosen(params, "batch_size", "parts") == (12, 3)


def test_stages_on_machines_of_their_own_share_images_there():
    """As replicas, ranks 0 and 1 would be the two stages of the first."""
    two = cluster_from_ends([2, 4])
    params = params_of(planned((2, [0, 1]), (5, [2, 3])), two)
    assert chosen(params, "local_DP", "replicas") == ("2", 1)
    params = params_of(planned((2, [0, 2]), (5, [1, 3])), two)
    assert chosen(params, "local_DP", "replicas") == ("1", 2)


def test_interleaved_stages_are_rounds_over_the_same_ranks():
    stages = ((1, [0]), (2, [1]), (3, [0]), (5, [1]))
    params = params_of(planned(*stages, schedule="interleaved", batch=8, micro=4))
    assert chosen(params, "scheme", "split_size", "rounds") == ("lp", 4, 2)
    assert chosen(params, "schedule", "balance", "parts") == ("interleaved", "1,1,1,2", 2)


def test_stages_that_compute_their_activations_again():
    plan = planned((2, [0]), (5, [1]), recompute=True)
    assert chosen(params_of(plan), "recompute", "recompute_stages") == ("stage", None)
    first, last = plan.stages
    plan = replace(plan, stages=(first, replace(last, recompute=False)))
    assert chosen(params_of(plan), "recompute", "recompute_stages") == ("stage", [0])


@pytest.mark.parametrize(
    ("plan", "sentence"),
    [
        (planned((2, [0]), (5, [2])), "idle between others"),
        (planned((5, [0, 1]), micro=1), "with --micro-batch-size 2 or more"),
        (planned((5, [0, 1]), batch=9, micro=9), "2 replicas cannot share a batch of 9"),
    ],
)
def test_plans_that_no_benchmark_runs(plan, sentence):
    with pytest.raises(PlannerError, match=sentence):
        params_of(plan)


def test_an_order_of_machines_that_no_layout_has():
    kind = DeviceKind("d")
    link = Link("l", 1e9)
    machines = (Machine("a", (kind,)), Machine("b", (kind, kind), link))
    cluster = Cluster("uneven", machines, link)
    with pytest.raises(PlannerError, match="in another order"):
        params_of(planned((2, [1, 2]), (5, [0])), cluster)


def test_profiles_that_no_benchmark_runs():
    plan = planned((2, [0]), (5, [1]))
    for origin, sentence in (
        (None, "does not say which model"),
        (Origin("mine:net"), "which no benchmark runs"),
    ):
        with pytest.raises(PlannerError, match=sentence):
            params_of(plan, profile=replace(FIVE, origin=origin))
    with pytest.raises(PlannerError, match="only a chain"):
        params_of(plan, profile=replace(chain([1.0] * 4), origin=DEPTH_11))


def test_a_network_of_ones_own_is_run_as_it_was_profiled():
    own = Origin("nets:Net", (("image_size", 64), ("network_args", {"width": 8})), 2, 1)
    made = emit_suite(
        planned((2, [0]), (5, [1])), replace(FIVE, origin=own), cluster_from_ends([8]), PATH
    )
    [case] = made.suite.cases
    assert case.benchmark == "model.network"
    wanted = {"network": "nets:Net", "network_args": {"width": 8}, "image_size": 64}
    assert {name: case.params[name] for name in wanted} == wanted
    assert (case.params["balance"], case.params["scheme"]) == ("2,3", "lp")
    assert (
        read_profile_json(write_profile_json(replace(FIVE, origin=own)), "p", "five").origin == own
    )


def test_an_origin_is_read_back():
    text = write_profile_json(FIVE)
    assert read_profile_json(text, "five.json", "five") == FIVE
    for wrong, sentence in (
        ({"model": 3}, "origin.model must be text, not 3"),
        ({"model": "resnet", "rank": 2}, "unknown key 'rank' in origin"),
        ({"model": "resnet", "ranks": 0}, "origin.ranks must be at least 1, not 0"),
        ({"model": "resnet", "params": {"depth": [1]}}, "origin.params.depth must be text or a"),
    ):
        told = json.dumps(json.loads(text) | {"origin": wrong})
        with pytest.raises(PlannerError, match=sentence):
            read_profile_json(told, "five.json", "five")


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
def test_the_notes_say_which_batch_sizes_were_not_measured(measured, note):
    plan = replace(planned((2, [0, 1]), (5, [2])), measured_batches=measured)
    notes = [text for text in list_stage_notes(plan) if text.startswith("the profile was")]
    assert notes == ([f"the profile was {note}"] if note else [])


def test_the_notes_say_what_messages_take_of_the_passes():
    plan = planned((2, [0]), (5, [1]))
    first, second = (
        replace(stage, overhead_s=seconds)
        for stage, seconds in zip(plan.stages, (1e-3, 2e-3), strict=True)
    )
    assert list_stage_notes(replace(plan, stages=(first, second)))[0] == (
        "forward and backward include the handling of messages: 1.00 ms, 2.00 ms each, stage by "
        "stage"
    )


def test_the_notes_say_why_times_of_stages_do_not_add_up():
    plan = planned((2, [0]), (5, [1]))
    overlap = "stages work at the same time, so that their times do not add up to the step"
    assert list_stage_notes(plan)[-1] == overlap
    waiting = "by zb-h1, gradients of weights wait until a stage has nothing else"
    zero_bubble = replace(plan, schedule="zb-h1")
    assert list_stage_notes(zero_bubble)[-1] == f"{overlap}; {waiting}"
    assert not any("add up" in note for note in list_stage_notes(planned((5, [0, 1]))))
