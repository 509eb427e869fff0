"""Tests of the reasons for a plan: other ways to train, and its limits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spbench.planner.cluster.lookup import machines_cluster
from spbench.planner.output.plan_reasons import explain_choice
from spbench.planner.planning import plan
from spbench.planner.simulation.stage_memory import compute_stage_memories
from spbench.planner.simulation.step import simulate
from spbench.planner.simulation.step_shares import compute_step_shares
from support.planner.sample_profiles import make_chain

SMALL_LAYERS = make_chain([1e-3] * 6, [8.0] * 6, [1e3] * 6)
LARGE_LAYERS = make_chain([1e-3] * 6, [8.0] * 6, [1e9] * 6)


def explain(profile, **changes):
    cluster = machines_cluster("2x1")
    best = replace(plan(profile, cluster, 8), **changes)
    simulation = simulate(best)
    shares = compute_step_shares(best, simulation)
    parts = (shares.computing, shares.transfers, shares.all_reduce, shares.waiting)
    assert sum(parts) == pytest.approx(1.0)
    return best, explain_choice(best, shares, compute_stage_memories(best, simulation, cluster))


def test_pipeline_is_compared_with_data_parallelism():
    best, (comparison, _, memory) = explain(LARGE_LAYERS)
    assert len(best.stages) == 2
    [data_parallel_s] = {b.step_s for b in best.baselines if b.name == "DP + normal overlap"}
    assert data_parallel_s > 2 * best.step_s
    assert comparison.startswith("This pipeline of 2 stages is the fastest of ")
    assert "data parallelism takes" in comparison
    assert "x as long" in comparison
    assert memory.startswith("Memory does not limit it: up to ")


def test_data_parallel_plan_is_limited_by_computation():
    best, (comparison, limit, _) = explain(SMALL_LAYERS)
    assert len(best.stages) == 1
    assert comparison.startswith("Data parallelism is the fastest of ")
    assert "searched: a straight pipeline" in comparison
    assert "longer" in comparison or "as long" in comparison
    assert limit.startswith("Computation limits it")


def test_comparisons_of_a_sentence_have_one_unit():
    best, _ = explain(LARGE_LAYERS)
    simulation = simulate(best)
    shares = compute_step_shares(best, simulation)
    memories = compute_stage_memories(best, simulation, machines_cluster("2x1"))
    for gpipe_s, texts in ((2.5, ("1.40x as long", "2.50x as long")), (1.5, ("40 %", "50 %"))):
        baselines = [
            replace(baseline, step_s=best.step_s * (gpipe_s if baseline.name == "GPipe" else 1.4))
            for baseline in best.baselines
        ]
        comparison = explain_choice(
            replace(best, baselines=tuple(baselines), other_pipeline=None), shares, memories
        )[0]
        assert all(text in comparison for text in texts)


def test_slow_transfers_limit_a_pipeline():
    stages = [replace(stage, send_s=1.0) for stage in explain(LARGE_LAYERS)[0].stages]
    _, (_, limit, _) = explain(LARGE_LAYERS, stages=tuple(stages))
    assert limit.startswith("Transfers between stages limit it")


def test_full_memory_limits_a_plan():
    best, _ = explain(LARGE_LAYERS)
    cluster = machines_cluster("2x1")
    simulation = simulate(best)
    first, *others = compute_stage_memories(best, simulation, cluster)
    shares = compute_step_shares(best, simulation)
    full = replace(first, capacity_bytes=1.05 * first.peak_bytes)
    assert explain_choice(best, shares, [full, *others])[2].startswith("Memory limits it, too")
    unknown = replace(first, capacity_bytes=None)
    assert "memory of the devices is unknown" in explain_choice(best, shares, [unknown])[2]


def test_best_pipeline_of_the_search_is_named():
    cluster = machines_cluster("2x4")
    best = plan(make_chain([1e-3] * 5, [8.0] * 5, [1e3] * 5), cluster, 32)
    assert len(best.stages) == 1
    other = best.other_pipeline
    assert other is not None
    assert other.stage_count > 1
    assert best.step_s <= other.step_s
    simulation = simulate(best)
    shares = compute_step_shares(best, simulation)
    memories = compute_stage_memories(best, simulation, cluster)
    comparison = explain_choice(best, shares, memories)[0]
    assert (
        f"of {best.searched_count} plans searched: the best pipeline ({other.stage_count} stages"
        in (comparison)
    )
    hpgo = replace(best, mode="hpgo", searched_count=0, other_pipeline=None)
    comparison = explain_choice(hpgo, shares, memories)[0]
    assert comparison == "Data parallelism is the plan of this mode."
