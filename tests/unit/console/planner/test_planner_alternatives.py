"""Tests of the alternatives listed with a plan: same estimate, and never faster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spbench.planner.cluster.machines import (
    Cluster,
    DeviceKind,
    Link,
    Machine,
    make_cluster_from_ends,
)
from spbench.planner.errors import NoPlanError
from spbench.planner.output.plan_description import format_baseline_cells
from spbench.planner.planning import plan
from spbench.planner.profile.files import load_profile
from spbench.planner.profile.layers import BatchMeasurement, LayerProfile, Profile
from support.paths import ROOT
from support.planner.sample_profiles import make_chain

EXAMPLES = ROOT / "docs" / "examples"


def scale_row(row: LayerProfile, factor: float) -> LayerProfile:
    return replace(row, forward_ms=factor * row.forward_ms, backward_ms=factor * row.backward_ms)


@st.composite
def problems(draw: st.DrawFn) -> tuple[Profile, Cluster, int, int | None]:
    """Draw a profile with times that may shrink with the batch, and a mixed cluster."""
    layers = draw(st.integers(1, 7))

    def draw_values(values: list[float]) -> list[float]:
        return draw(st.lists(st.sampled_from(values), min_size=layers, max_size=layers))

    profile = make_chain(
        draw_values([1.0, 2.0, 3.0, 10.0]),
        draw_values([0.0, 1.0, 20.0, 50.0]),
        draw_values([0.0, 1.0, 40.0, 4000.0]),
    )
    factors = draw(st.sampled_from([(), (1.1,), (2.0,), (3.5,), (1.2, 6.0), (3.0, 3.1)]))
    measured = tuple(
        BatchMeasurement(2 * 2**index, tuple(scale_row(row, factor) for row in profile.layers))
        for index, factor in enumerate(factors)
    )
    profile = replace(profile, further_measurements=measured)
    memory = draw(st.sampled_from([None, 20000.0, 5000.0]))
    speeds = draw(st.sampled_from([(1.0,), (2.0,), (1.0, 2.0), (0.5, 1.0)]))
    kinds = [DeviceKind(f"speed {speed}", memory, speed) for speed in speeds]
    sizes = draw(st.sampled_from([(1,), (2,), (4,), (3,), (2, 2), (2, 1), (3, 4)]))
    within = Link("within", draw(st.sampled_from([1e5, 1e7])), draw(st.sampled_from([0.0, 0.001])))
    between = Link("between", draw(st.sampled_from([1e4, 1e5])))
    machines = tuple(
        Machine(f"m{index}", tuple(kinds[device % len(kinds)] for device in range(size)), within)
        for index, size in enumerate(sizes)
    )
    micro_batch = draw(st.sampled_from([None, None, 1, 2]))
    batch = draw(st.sampled_from([1, 2, 3, 4, 6, 8])) * (micro_batch or 1)
    return profile, Cluster("cluster", machines, between), batch, micro_batch


@pytest.mark.slow
@settings(max_examples=120)
@given(problems())
def test_alternatives_are_never_faster_than_the_plan(
    problem: tuple[Profile, Cluster, int, int | None],
) -> None:
    profile, cluster, batch, micro_batch = problem
    try:
        best = plan(profile, cluster, batch, micro_batch_size=micro_batch)
    except NoPlanError:
        return
    assert len(best.baselines) == 5
    for baseline in best.baselines:
        assert (baseline.step_s is None) == bool(baseline.reason)
        if baseline.step_s is not None:
            assert best.step_s <= baseline.step_s * (1 + 1e-9)
            assert baseline.speedup == pytest.approx(best.single_s / baseline.step_s)
    # One device that runs all passes takes at most device_count times as long.
    assert best.speedup <= cluster.device_count * (1 + 1e-9)


@pytest.mark.parametrize(
    ("profile", "cluster", "batch", "micro_batch"),
    [
        ("resnet-20.json", "two-cores.yaml", 8, 1),
        ("resnet-20.json", "two-cores.yaml", 16, None),
        ("unet.json", "two-cores.yaml", 8, 1),
        pytest.param("vgg-19.json", "four-nodes.yaml", 32, None, marks=pytest.mark.slow),
    ],
)
def test_examples_list_no_faster_alternative(
    profile: str, cluster: str, batch: int, micro_batch: int | None
) -> None:
    from spbench.planner.cluster.lookup import named_cluster

    best = plan(
        load_profile(EXAMPLES / profile),
        named_cluster(str(EXAMPLES / cluster), Path()),
        batch,
        micro_batch_size=micro_batch,
    )
    steps = [baseline.step_s for baseline in best.baselines if baseline.step_s is not None]
    assert steps
    assert best.step_s <= min(steps) * (1 + 1e-9)
    assert best.speedup <= 8


def test_speedup_is_at_most_the_number_of_devices() -> None:
    # A pass takes 3 ms for one sample and 30 for two, and micro-batches are of two.
    rows = make_chain([1.0]).layers
    slow_rows = tuple(scale_row(row, 10.0) for row in rows)
    profile = replace(make_chain([1.0]), further_measurements=(BatchMeasurement(2, slow_rows),))
    best = plan(profile, make_cluster_from_ends([2]), 4, micro_batch_size=2)
    assert best.step_s == pytest.approx(0.006)
    assert best.single_s == pytest.approx(0.012)
    assert best.speedup == pytest.approx(2.0)


def test_single_device_time_uses_the_fastest_device() -> None:
    kind = DeviceKind("fast", None, 2.0)
    machine = Machine("m", (kind, kind), Link("l", 1e9))
    best = plan(make_chain([1.0]), Cluster("fast", (machine,)), 4)
    assert best.speedup == pytest.approx(2.0)


def test_impossible_data_parallelism_has_a_reason(messages) -> None:
    best = plan(make_chain([1.0, 1.0]), make_cluster_from_ends([2]), 8, micro_batch_size=1)
    reasons = {baseline.name: baseline.reason for baseline in best.baselines}
    messages.check(reasons["DP no overlap"])
    assert reasons["DP + normal overlap"] == reasons["DP no overlap"]
    assert "next step" in reasons["DP + P3"]
    assert len(format_baseline_cells(best)) == 6


def test_data_parallel_steps_match_a_hand_calculation() -> None:
    # 2 layers of 3 ms a sample, 8 samples on 2 machines; 3 and 6 MB at 3 GB/s take 1 and 2 ms.
    profile = make_chain([1.0, 1.0], parameters=[3e6, 6e6])
    best = plan(profile, make_cluster_from_ends([1, 2]), 8, micro_batch_size=8)
    steps = {baseline.name: baseline.step_s for baseline in best.baselines}
    assert steps["DP no overlap"] == pytest.approx(0.024 + 0.003)
    # The last layer's 2 ms hide behind the first one's 8 ms of backward pass.
    assert steps["DP + normal overlap"] == pytest.approx(0.024 + 0.001)


def test_gpipe_step_matches_a_hand_calculation() -> None:
    # Forward 1 and 3 ms; backward 2 and 6 ms and the forward again; 1 MB at 1 GB/s: 1 ms.
    profile = make_chain([1.0, 3.0], [1e6, 0.0])
    best = plan(profile, make_cluster_from_ends([1, 2]), 5, micro_batch_size=1)
    gpipe = next(baseline for baseline in best.baselines if baseline.name == "GPipe")
    forward = (1 + 1 + 3) + 4 * 3
    backward = (3 + 1 + 9) + 4 * 9
    assert gpipe.step_s == pytest.approx((forward + backward) / 1e3)
    assert gpipe.stages == ((0, 1, (0,)), (1, 2, (1,)))


def test_alternative_that_does_not_fit_has_a_reason(messages) -> None:
    profile = make_chain([1.0, 1.0], [100.0, 100.0], [400.0, 400.0])
    kind = DeviceKind("small", 1100.0)
    machine = Machine("m", (kind, kind), Link("l", 1e9))
    best = plan(profile, Cluster("small", (machine,)), 2)
    assert len(best.stages) == 2
    reasons = {baseline.name: baseline.reason for baseline in best.baselines}
    messages.check(reasons["DP no overlap"])


def test_mode_hpgo_notes_faster_alternatives(messages) -> None:
    profile = load_profile(EXAMPLES / "vgg-19.json")
    planned = plan(profile, make_cluster_from_ends([2]), 16, mode="hpgo")
    assert any(
        baseline.step_s is not None and baseline.step_s < planned.step_s
        for baseline in planned.baselines
    )
    messages.check(format_baseline_cells(planned)[-1][-1])
