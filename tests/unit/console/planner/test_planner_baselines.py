"""Tests of the training baselines and of the memory of stages."""

import pytest

from spbench.planner.cluster.machines import PRESETS, make_cluster_from_ends
from spbench.planner.hpgo.baselines import (
    compute_exposed_all_reduce_s,
    compute_iteration_share,
    estimate_baselines,
)
from spbench.planner.hpgo.costs import build_hpgo_model
from spbench.planner.hpgo.straight import build_problem
from spbench.planner.plans import Training
from spbench.planner.profile.antichains import find_antichain_states
from spbench.planner.profile.files import load_profile
from spbench.planner.profile.layers import Profile
from spbench.planner.simulation.memory import compute_device_memory
from spbench_core.schedule.orders import count_in_flight
from support.planner.sample_profiles import find_shared_file, make_chain, make_layer


def estimate_for_profile(profile, cluster, training):
    states = find_antichain_states(profile)
    return estimate_baselines(states, cluster, build_problem(states, cluster, training))


def estimate_by_name(profile, ends, training):
    baselines = estimate_for_profile(profile, make_cluster_from_ends(ends), training)
    return {baseline.name: baseline for baseline in baselines}


def test_all_five_baselines_have_results(messages):
    profile = load_profile(find_shared_file("profiles/dapple/bert-48-pbs-2.txt"), 2)
    baselines = estimate_for_profile(profile, PRESETS["dapple-a"], Training(64))
    messages.check([baseline.name for baseline in baselines])
    plain, overlap, p3, straight, gpipe = baselines
    assert plain.step_s >= overlap.step_s >= p3.step_s
    assert len(straight.stages) == len(gpipe.stages) == 16
    assert all(0 < baseline.speedup <= 16 for baseline in baselines)


def test_data_parallel_steps_match_a_hand_calculation():
    # 2 layers of 3 ms a sample, 8 samples on 2 machines; 3 and 6 MB at 3 GB/s take 1 and 2 ms.
    profile = make_chain([1.0, 1.0], parameters=[3e6, 6e6])
    by_name = estimate_by_name(profile, [1, 2], Training(8))
    assert by_name["DP no overlap"].step_s == pytest.approx(0.024 + 0.003)
    # The last layer's 2 ms hide behind the first one's 12 ms of backward pass.
    assert by_name["DP + normal overlap"].step_s == pytest.approx(0.024 + 0.001)
    assert by_name["DP + P3"].step_s == pytest.approx(0.024 + 0.001)
    assert by_name["DP no overlap"].speedup == pytest.approx(48 / 27)


def test_spare_time_of_a_layer_hides_the_next_all_reduce():
    # Backward order; slots of 1, 4 and 4 ms for the layers before the first one.
    work = build_hpgo_model(find_antichain_states(make_chain([8 / 3, 8 / 3, 2 / 3])), Training(1))
    work.parameters_so_far[:] = [0.0, 5.0, 9.0]
    # In ms of all-reduce: 4 at the end, then 5, then 0; slots before them 4, 4.
    assert compute_exposed_all_reduce_s(work, 1e-3, 1.0, False) == pytest.approx(1e-3 + 0.0)


def test_iteration_share_is_limited_by_memory():
    profile = make_chain([1.0], [2e9], [4e9])
    states = find_antichain_states(profile)
    cluster = make_cluster_from_ends([2])
    # 16 GB less 4 GB leave 6 samples of 2 GB: 16 samples in 4 iterations of 4.
    assert compute_iteration_share(states, cluster, Training(16)) == pytest.approx(0.25)
    assert compute_iteration_share(states, cluster, Training(6)) == 1.0
    assert compute_iteration_share(states, cluster, Training(16, 1, 3.0)) == pytest.approx(1 / 8)
    assert compute_iteration_share(states, cluster, Training(16, 1, 4.0)) is None
    assert compute_iteration_share(states, cluster, Training(16, 1, 1.0, 12e9)) == pytest.approx(
        1 / 16
    )


def test_model_that_fits_nowhere_has_a_reason(messages):
    by_name = estimate_by_name(make_chain([1.0], [2e9], [4e9]), [2], Training(16, 1, 4.0))
    assert by_name["DP + P3"].step_s is None
    messages.check(by_name["DP + P3"].reason)
    assert by_name["DP no overlap"].step_s is not None


def test_straight_pipeline_needs_a_state_per_device(messages):
    by_name = estimate_by_name(make_chain([1.0, 1.0]), [4], Training(8))
    for name in ("straight pipeline", "GPipe"):
        assert by_name[name].step_s is None
        messages.check(by_name[name].reason)


def test_gpipe_step_matches_a_hand_calculation():
    # Forward 1 and 3 ms; backward 2 and 6 ms and the forward again; 1 MB at 1 GB/s: 1 ms.
    by_name = estimate_by_name(make_chain([1.0, 3.0], [1e6, 0.0]), [1, 2], Training(5))
    forward = (1 + 1 + 3) + 4 * 3
    backward = (3 + 1 + 9) + 4 * 9
    assert by_name["GPipe"].step_s == pytest.approx((forward + backward) / 1e3)
    assert by_name["GPipe"].stages == ((0, 1, (0,)), (1, 2, (1,)))


def test_straight_pipeline_step_matches_a_hand_calculation():
    by_name = estimate_by_name(make_chain([1.0, 3.0], [1e6, 0.0]), [1, 2], Training(5))
    # 4 blocks of 9 ms, one sample through, and its message.
    assert by_name["straight pipeline"].step_s == pytest.approx((36 + 12 + 1) / 1e3)


# Memory


@pytest.mark.parametrize(
    ("schedule", "counts"),
    [("gpipe", [9, 9, 9]), ("1f1b", [3, 2, 1]), ("1f1b-deep", [5, 3, 1])],
)
def test_in_flight_counts_match_a_hand_calculation(schedule, counts):
    assert [count_in_flight(schedule, stage, 3, 9) for stage in range(3)] == counts
    assert [count_in_flight(schedule, stage, 3, 1) for stage in range(3)] == [1, 1, 1]


def test_stage_memory_matches_a_hand_calculation():
    layers = (
        make_layer("a", activation=10.0, parameters=100.0),
        make_layer("b", activation=20.0, parameters=200.0, kept_bytes=50.0, working_bytes=7.0),
        make_layer("c", activation=40.0, parameters=400.0),
    )
    states = find_antichain_states(Profile("p", 2, layers, ((0, 1), (1, 2))))
    # Layers b and c, 4 samples (2 were measured), 3 micro-batches kept.
    peak = compute_device_memory(states, 1, 3, 4.0, 2.0).compute_peak_bytes(3)
    assert peak == 2 * 600.0 + 2 * (3 * 90.0 + 7.0)
    recomputed = compute_device_memory(states, 1, 3, 4.0, 2.0, recompute=True).compute_peak_bytes(3)
    assert recomputed == 2 * 600.0 + 2 * (3 * 10.0 + 90.0 + 7.0)
