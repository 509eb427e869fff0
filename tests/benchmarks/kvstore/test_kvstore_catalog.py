"""Parameters of kvstore.push_pull: derived values and rejected values."""

import pytest

from spbench_core.catalog import BENCHMARKS
from spbench_workers.benchmarks.kvstore import compression
from spbench_workers.benchmarks.kvstore import params as store_params
from spbench_workers.benchmarks.kvstore.keys import sharding
from spbench_workers.benchmarks.kvstore.optimizers import registry

ENTRY = BENCHMARKS["kvstore.push_pull"]


def complete_params(**params):
    return ENTRY.complete({"network": "lenet", **params})


def catch_param_error(**params):
    with pytest.raises(ExceptionGroup) as caught:
        complete_params(**params)
    (error,) = caught.value.exceptions
    return error


def test_names_agree_with_the_registries():
    assert set(store_params.OPTIMIZERS) == set(registry.OPTIMIZERS)
    assert set(store_params.COMPRESSIONS) == {"none", *compression.COMPRESSIONS}
    assert set(store_params.SHARDINGS) == set(sharding.SCHEMES)


@pytest.mark.parametrize(
    ("params", "ranks"),
    [
        ({}, 2),
        ({"gpus": 4}, 4),
        ({"gpus": "4"}, 4),
        ({"gpus": "0,2,5"}, 3),
        ({"kv_store": "local", "gpus": 1}, 1),
        ({"device_ids": 0}, 1),
        ({"device_ids": "0,3"}, 2),
        ({"kvstore": "allreduce", "gpus": [1, 3]}, 2),
        ({"kv_store": "dist_sync", "gpus": 2}, 3),
        ({"kv_store": "dist_sync_device", "gpus": 2, "num_workers": 3}, 9),
        ({"kv_store": "dist_sync", "gpus": 1, "num_workers": 2, "num_servers": 1}, 3),
        ({"kv_store": "dist_async", "gpus": 1, "num_servers": 4, "optimizer": "sgd"}, 5),
    ],
)
def test_ranks_follow_from_the_store(params, ranks):
    assert ENTRY.ranks(complete_params(**params)).exact == ranks


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"kv_store": "allreduce"},
        {"kv_store": "allreduce", "bucket": "sliced"},
        {"kv_store": "allreduce", "bucket": "flat"},
        {"kv_store": "dist_sync", "gc_type": "2bit", "gpus": "0,1"},
        {"network": "resnet", "num_layers": 18},
    ],
)
def test_completing_twice_changes_nothing(params):
    completed = complete_params(**params)
    assert ENTRY.complete(completed) == completed


def test_adds_defaults_of_the_store():
    params = complete_params(kv_store="dist_sync", gc_type="2bit")
    assert (params["sharding"], params["bigarray_bound"]) == ("hash", 1_000_000)
    assert params["gc_threshold"] == 0.5
    assert params["num_servers"] == params["num_workers"] == 1
    assert params["image_shape"] == [1, 28, 28]
    assert params["bucket"] is params["algorithm"] is params["bucket_bytes"] is None
    params = complete_params(kv_store="allreduce")
    assert (params["bucket"], params["bucket_bytes"]) == ("fused", 25 << 20)
    assert (params["algorithm"], params["sharding"]) == ("native", None)
    assert complete_params(kv_store="allreduce", bucket="sliced")["bucket_bytes"] == 1 << 20
    assert complete_params(kv_store="allreduce", bucket="flat")["priority"] is None
    assert complete_params(optimizer="None")["optimizer"] == "none"


@pytest.mark.parametrize(
    ("params", "param"),
    [
        ({"num_servers": 2}, "num_servers"),
        ({"kv_store": "allreduce", "num_workers": 2}, "num_workers"),
        ({"kv_store": "dist_sync", "num_servers": 0}, "num_servers"),
        ({"sharding": "hash"}, "sharding"),
        ({"kv_store": "local", "bigarray_bound": 10}, "bigarray_bound"),
        ({"bucket": "flat"}, "bucket"),
        ({"algorithm": "ring"}, "algorithm"),
        ({"kv_store": "allreduce", "bucket": "tensor", "bucket_bytes": "1MiB"}, "bucket_bytes"),
        ({"kv_store": "allreduce", "bucket": "flat", "priority": "ascending"}, "priority"),
        ({"kv_store": "local", "gc_type": "2bit"}, "gc_type"),
        ({"kv_store": "allreduce", "gc_type": "1bit"}, "gc_type"),
        ({"gc_threshold": 0.3}, "gc_threshold"),
        ({"gc_type": "2bit", "gc_threshold": 0}, "gc_threshold"),
        ({"gc_type": "2bit", "gc_threshold": -1}, "gc_threshold"),
        ({"kv_store": "dist_async"}, "optimizer"),
        ({"kv_store": "allreduce", "algorithm": "muji_4"}, "algorithm"),
        ({"kv_store": "allreduce", "algorithm": "nccl", "optimizer": "sgd"}, "optimizer"),
        ({"kv_store": "allreduce", "algorithm": "nccl", "device": "cpu"}, "device"),
        ({"kv_store": "nccl"}, "kv_store"),
        ({"gpus": 0}, "gpus"),
        ({"gpus": "1,1"}, "gpus"),
        ({"device_ids": "1,1"}, "device_ids"),
        ({"device_ids": 0, "gpus": 2}, "device_ids"),
        ({"device_ids": 0, "device": "cpu"}, "device_ids"),
        ({"gpus": "a"}, "gpus"),
        ({"num_layers": 7}, "num_layers"),
        ({"network": "resnet", "num_layers": 51}, "num_layers"),
        ({"network": "inception-v3", "image_shape": "3,28,28"}, "image_shape"),
        ({"image_shape": "3,28"}, "image_shape"),
        ({"num_batches": 0}, "num_batches"),
        ({"disp_batches": 0}, "disp_batches"),
        ({"warmup": 1}, "warmup"),
    ],
)
def test_rejects_invalid_and_ineffective_parameters(params, param):
    assert catch_param_error(**params).param == param


def test_an_error_names_a_remedy(messages):
    text = str(catch_param_error(kv_store="local", sharding="hash"))
    messages.check(text)
    messages.check(str(catch_param_error(kv_store="dist_async")))


def test_lists_coordinates_of_ranks():
    params = complete_params(kv_store="dist_sync", gpus="0,3", num_workers=2, num_servers=1)
    assert [ENTRY.place(params, rank) for rank in range(5)] == [
        {"worker": 0, "device": 0},
        {"worker": 0, "device": 3},
        {"worker": 1, "device": 0},
        {"worker": 1, "device": 3},
        {"server": 0},
    ]
    assert ENTRY.place(complete_params(gpus=2), 1) == {"device": 1}


def test_device_ids_selects_a_single_device():
    params = complete_params(device_ids=3)
    assert (params["gpus"], ENTRY.place(params, 0)) == (None, {"device": 3})
    assert ENTRY.complete(params) == params
    expected = "gpus: 0 is how many, and none is too few; device 0 alone is device_ids 0"
    assert str(catch_param_error(gpus=0)) == expected
