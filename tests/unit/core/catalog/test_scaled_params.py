"""Parameters of cases that are scaled to other numbers of ranks."""

import pytest

from spbench_core.catalog import BENCHMARKS
from spbench_core.catalog.benchmark import Benchmark
from spbench_core.catalog.scaling import ScalingError, ScalingTarget

RESNET = BENCHMARKS["model.resnet"]
SMALL = {"depth": 20, "image_size": 64, "batch_size": 8, "parts": 4}
SP = SMALL | {"scheme": "sp", "num_spatial_parts": "2", "slice_method": "vertical"}
OVERRIDES = {
    "halo.compute": {"slice_method": "vertical"},
    "halo.exchange": {"slice_method": "horizontal"},
    "halo.fused": {"slice_method": "vertical"},
    "model.resnet": SMALL,
    "model.amoebanet": {"num_layers": 6, "batch_size": 8, "parts": 4},
    "model.network": {"network": "nets:Net", "batch_size": 8, "parts": 4},
    "program.run": {"argv": ["true"]},
    "allreduce.sweep": {"size": 64},
}
SHARED = [
    *("halo.compute", "halo.fused", "program.run"),
    *("model.resnet", "model.amoebanet", "model.network"),
]
"""The benchmarks with work that their ranks share, so that strong scaling exists."""
SCALED = [name for name, entry in BENCHMARKS.items() if entry.scaled is not None]


def scale_params(entry: Benchmark, overrides, ranks, work="strong", parameter=None):
    params = entry.complete(overrides)
    target = ScalingTarget(ranks, entry.ranks(params).exact, work, parameter)
    assert entry.scaled is not None
    return entry.complete(entry.scaled(overrides, params, target))


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize(
    ("name", "work"),
    [*((name, "weak") for name in SCALED), *((name, "strong") for name in SHARED)],
)
def test_a_scaled_case_needs_the_new_number_of_ranks(name, work, ranks):
    entry = BENCHMARKS[name]
    requirement = entry.ranks(scale_params(entry, OVERRIDES.get(name, {}), ranks, work))
    assert requirement.exact in (None, ranks)
    assert requirement.minimum <= ranks


@pytest.mark.parametrize(
    ("overrides", "ranks", "work", "parameter", "expected"),
    [
        (SMALL, 4, "strong", None, {"split_size": 4, "batch_size": 8, "parts": 4}),
        (SMALL, 4, "weak", None, {"split_size": 4, "batch_size": 16, "parts": 8}),
        (SMALL, 1, "strong", None, {"scheme": "sequential", "batch_size": 8, "split_size": None}),
        (SMALL, 1, "weak", None, {"scheme": "sequential", "batch_size": 4, "parts": 2}),
        (SMALL, 4, "strong", "replicas", {"replicas": 2, "batch_size": 4, "split_size": 2}),
        (SMALL, 3, "weak", None, {"split_size": 3, "batch_size": 12, "parts": 6}),
        (SMALL, 8, "weak", "replicas", {"replicas": 4, "batch_size": 8}),
        (SMALL | {"replicas": 2}, 1, "strong", "replicas", {"batch_size": 16}),
        (SMALL | {"replicas": 2}, 8, "strong", None, {"split_size": 4, "replicas": 2}),
        (SMALL | {"scheme": "gems"}, 3, "strong", None, {"split_size": 3}),
        (SMALL | {"schedule": "interleaved"}, 4, "strong", None, {"split_size": 8, "rounds": 2}),
        (SMALL | {"schedule": "interleaved"}, 1, "strong", None, {"scheme": "sequential"}),
        (SP, 5, "strong", None, {"num_spatial_parts": "4", "grid": "1x4", "split_size": 2}),
        (SP | {"split_size": 1}, 4, "strong", None, {"grid": "1x4"}),
        (SMALL | {"scheme": "sp", "grid": "2x1"}, 4, "strong", None, {"grid": "3x1"}),
        (SP, 1, "strong", None, {"scheme": "sequential", "grid": None}),
    ],
)
def test_scales_the_layout_of_a_model(overrides, ranks, work, parameter, expected):
    params = scale_params(RESNET, overrides, ranks, work, parameter)
    assert {name: params[name] for name in expected} == expected
    assert RESNET.ranks(params).exact == ranks


@pytest.mark.parametrize(
    ("overrides", "ranks", "work", "parameter", "message"),
    [
        (SMALL | {"scheme": "sequential"}, 2, "strong", None, "sequential is one process"),
        (SMALL, 2, "strong", "depth", "depth does not follow the number of ranks: split_size, r"),
        (SMALL, 2, "strong", "num_spatial_parts", "does not follow"),
        (SMALL | {"parts": 1}, 3, "weak", None, "parts would be 1.5, which is no whole number"),
        (SMALL | {"local_DP": "2"}, 8, "strong", None, "with local_DP 2 stages have several"),
        (SMALL | {"replicas": 2}, 5, "strong", None, "split_size would be 2.5"),
        (SMALL, 5, "strong", "replicas", "replicas would be 2.5"),
        (SMALL, 6, "strong", "replicas", "batch_size would be 2.66667"),
        (SP, 2, "strong", None, "np 2 leaves no two tiles: take 1, or 3 and more"),
        (SP | {"spatial_size": 2, "split_size": 3}, 6, "strong", None, "several stages have"),
    ],
)
def test_rejects_ranks_without_a_layout(overrides, ranks, work, parameter, message):
    with pytest.raises(ScalingError, match=message):
        scale_params(RESNET, overrides, ranks, work, parameter)


@pytest.mark.parametrize(
    ("overrides", "ranks", "size"),
    [
        ({"slice_method": "vertical", "image_size": "64x128"}, 8, "64x256"),
        ({"slice_method": "vertical", "image_size": "64x128"}, 1, "64x32"),
        ({"slice_method": "horizontal", "image_size": 64}, 8, "128x64"),
        ({"image_size": 64}, 16, 128),
        ({"image_size": 64}, 1, 32),
        ({"grid": "2x2", "image_size": 64}, 9, 96),
        ({"grid": "1x2", "image_size": 64}, 4, "64x128"),
    ],
)
def test_weak_scaling_keeps_the_pixels_per_tile(overrides, ranks, size):
    entry = BENCHMARKS["halo.compute"]
    params = scale_params(entry, overrides, ranks, "weak")
    assert params["image_size"] == entry.complete(overrides | {"image_size": size})["image_size"]
    assert (
        scale_params(entry, overrides, ranks)["image_size"]
        == entry.complete(overrides)["image_size"]
    )


@pytest.mark.parametrize(
    ("overrides", "ranks", "work", "message"),
    [
        ({"image_size": 64}, 8, "weak", "square"),
        ({"slice_method": "vertical", "image_size": 63}, 3, "weak", "width would be 47.25"),
    ],
)
def test_rejects_impossible_tiles(overrides, ranks, work, message):
    with pytest.raises(ScalingError, match=message):
        scale_params(BENCHMARKS["halo.compute"], overrides, ranks, work)


@pytest.mark.parametrize("name", [name for name in SCALED if name not in SHARED])
def test_rejects_strong_scaling_without_shared_work(name, messages):
    with messages.raises(ScalingError):
        scale_params(BENCHMARKS[name], OVERRIDES.get(name, {}), 2)


def test_scales_devices_of_a_store_but_not_its_servers(messages):
    entry = BENCHMARKS["kvstore.push_pull"]
    assert scale_params(entry, {"kv_store": "local"}, 4, "weak")["gpus"] == [4]
    with messages.raises(ScalingError):
        scale_params(entry, {"kv_store": "dist_sync"}, 4, "weak")
    with messages.raises(ScalingError):
        scale_params(entry, {"device_ids": [0, 1], "device": "cuda"}, 4, "weak")


def test_weak_scaling_rejects_an_unknown_original_np(messages):
    overrides = SMALL | {"scheme": "lp"}
    params = RESNET.complete(overrides)
    assert RESNET.scaled is not None
    with messages.raises(ScalingError):
        RESNET.scaled(overrides, params, ScalingTarget(4, None, "weak"))
