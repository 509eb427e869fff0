"""Estimates of work: which benchmarks have one, and what they grow with."""

import pytest

from spbench_core.catalog import BENCHMARKS

UNKNOWN = {"program.run", "model.network"}


def work(name, np=2, **params):
    entry = BENCHMARKS[name]
    assert entry.work is not None
    return entry.work(entry.complete(params), np)


def test_all_benchmarks_but_programs_and_networks_of_users_have_an_estimate():
    own = [entry for entry in BENCHMARKS.values() if not entry.plugin]
    assert {entry.name for entry in own if entry.work is None} == UNKNOWN


def test_products_are_counted_by_their_operations():
    few = work("compute.gemm", n=1000, iterations=10, warmup=0)
    many = work("compute.gemm", n=1000, iterations=110, warmup=0)
    assert many.flops - few.flops == 2 * 100 * 2 * 1000**3
    assert few.memory == 2 * 3 * 4 * 1000**2


def test_a_burn_in_takes_its_own_time():
    assert work("compute.burn", seconds=3600).seconds == 3600


def test_messages_grow_with_pairs_and_sizes():
    pair = work("link.pingpong", np=2, sizes=[8], iterations=50)
    four = work("link.pingpong", np=4, sizes=[8, 1024], iterations=50)
    assert four.messages == 6 * 2 * pair.messages


def test_a_deeper_network_and_larger_images_are_more_work():
    small = work("model.resnet", scheme="lp", depth=11, image_size=32)
    deep = work("model.resnet", scheme="lp", depth=110, image_size=32)
    large = work("model.resnet", scheme="lp", depth=110, image_size=256)
    assert small.flops < deep.flops < large.flops / 50
    assert small.calls < deep.calls == large.calls
    assert deep.memory < large.memory


def test_without_checks_and_baseline_only_the_timed_steps_count():
    params = {"scheme": "lp", "depth": 11, "iterations": 4, "warmup": 1}
    checked = work("model.resnet", **params)
    bare = work("model.resnet", validate="off", baseline=False, **params)
    assert bare.single_flops == 0
    assert checked.flops == pytest.approx(bare.flops * (5 + 22) / 5)


def test_images_in_a_folder_are_not_counted():
    assert work("model.resnet", app="cifar", datapath="/data") is None


def test_requests_that_arrive_at_a_rate_take_their_time():
    params = {"scheme": "sequential", "enable_evaluation": True, "depth": 11, "iterations": 10}
    assert (
        work("model.resnet", np=1, arrival="poisson", arrival_rate=2, **params).seconds
        == work("model.resnet", np=1, **params).seconds + 5
    )


def test_the_least_memory_of_the_published_networks_is_below_what_they_were_measured_with():
    """suites/real_size.yaml takes some 20 GB."""
    params = {"scheme": "sp", "batch_size": 1, "iterations": 1, "warmup": 0}
    resnet = work("model.resnet", np=5, version=1, depth=110, image_size=1024, **params)
    amoebanet = work(
        "model.amoebanet", np=5, num_layers=18, num_filters=416, image_size=512, **params
    )
    assert 1e9 < resnet.memory < 12e9
    assert 1e9 < amoebanet.memory < 12e9
