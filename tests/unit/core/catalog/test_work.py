"""Estimates of work: which benchmarks have one, and how it grows."""

import pytest

from spbench_core.catalog import BENCHMARKS

UNKNOWN = {"program.run", "model.network"}


def estimate_work(name, np=2, **params):
    entry = BENCHMARKS[name]
    assert entry.work is not None
    return entry.work(entry.complete(params), np)


def test_only_user_programs_and_networks_lack_an_estimate():
    built_in = [entry for entry in BENCHMARKS.values() if not entry.plugin]
    assert {entry.name for entry in built_in if entry.work is None} == UNKNOWN


def test_counts_operations_of_matrix_products():
    few = estimate_work("compute.gemm", n=1000, iterations=10, warmup=0)
    many = estimate_work("compute.gemm", n=1000, iterations=110, warmup=0)
    assert many.flops - few.flops == 2 * 100 * 2 * 1000**3
    assert few.memory == 2 * 3 * 4 * 1000**2


def test_a_burn_in_takes_its_seconds():
    assert estimate_work("compute.burn", seconds=3600).seconds == 3600


def test_messages_grow_with_pairs_and_sizes():
    pair = estimate_work("link.pingpong", np=2, sizes=[8], iterations=50)
    four = estimate_work("link.pingpong", np=4, sizes=[8, 1024], iterations=50)
    assert four.messages == 6 * 2 * pair.messages


def test_work_grows_with_depth_and_image_size():
    small = estimate_work("model.resnet", scheme="lp", depth=11, image_size=32)
    deep = estimate_work("model.resnet", scheme="lp", depth=110, image_size=32)
    large = estimate_work("model.resnet", scheme="lp", depth=110, image_size=256)
    assert small.flops < deep.flops < large.flops / 50
    assert small.calls < deep.calls == large.calls
    assert deep.memory < large.memory


def test_counts_only_timed_steps_without_checks_and_baseline():
    params = {"scheme": "lp", "depth": 11, "iterations": 4, "warmup": 1}
    checked = estimate_work("model.resnet", **params)
    bare = estimate_work("model.resnet", validate="off", baseline=False, **params)
    assert bare.single_flops == 0
    assert checked.flops == pytest.approx(bare.flops * (5 + 22) / 5)


def test_estimates_no_work_for_images_in_a_folder():
    assert estimate_work("model.resnet", app="cifar", datapath="/data") is None


def test_an_arrival_rate_adds_the_time_of_its_requests():
    params = {"scheme": "sequential", "enable_evaluation": True, "depth": 11, "iterations": 10}
    assert (
        estimate_work("model.resnet", np=1, arrival="poisson", arrival_rate=2, **params).seconds
        == estimate_work("model.resnet", np=1, **params).seconds + 5
    )


def test_least_memory_is_below_the_memory_measured():
    # A run of suites/real_size.yaml takes about 20 GB.
    params = {"scheme": "sp", "batch_size": 1, "iterations": 1, "warmup": 0}
    resnet = estimate_work("model.resnet", np=5, version=1, depth=110, image_size=1024, **params)
    amoebanet = estimate_work(
        "model.amoebanet", np=5, num_layers=18, num_filters=416, image_size=512, **params
    )
    assert 1e9 < resnet.memory < 12e9
    assert 1e9 < amoebanet.memory < 12e9
