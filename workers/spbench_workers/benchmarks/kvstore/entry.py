"""Catalog of key-value stores for a network's gradients, after MXNet's measure.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spbench_core.catalog.benchmark import (
    Benchmark,
    IdleParamError,
    Metric,
    ParamError,
    Ranks,
    make_time_metric,
)
from spbench_core.catalog.parameters import Params
from spbench_core.catalog.scaling import ScalingError, ScalingTarget, keep_params_weak_only
from spbench_core.catalog.typed_params import params_of, read_params, require_value
from spbench_core.catalog.work import Work, make_estimate
from spbench_core.models.parts import ModelError
from spbench_core.mxnet_networks.registry import NETWORKS, list_parameters
from spbench_workers.benchmarks.kvstore.params import (
    PushPullParams,
    resolve_roles,
    select_devices,
)
from spbench_workers.benchmarks.kvstore.roles import Device, Roles, StoreKind, find_store
from spbench_workers.collectives.base import FIXED_SIZES

POSITION = 60
"""Position of the family in lists of benchmarks."""


def store_work(params: PushPullParams, np: int) -> Work:
    """Return the work of ``kvstore.push_pull``: rounds, and sums for the comparison."""
    from spbench_core.mxnet_networks.registry import list_parameters, sum_megabytes

    arrays = list_parameters(
        params.network,
        params.num_layers,
        tuple(require_value(params.image_shape)),
        params.num_classes,
    )
    size = sum_megabytes(arrays) * 1e6 * np
    rounds = 1.0 + params.num_batches
    return Work(
        bytes=2.0 * size * (rounds + 15.0),
        messages=4.0 * rounds * len(arrays),
        calls=20.0 * np * len(arrays),
        seconds=0.1,
        memory=2.0 * size,
    )


FAULTS = ("wrong-element", "lost-push", "double-push")


_WITHOUT_SERVERS = "local and device"
_WITH_SERVERS = "a dist store"
_COMPRESSED = "gc_type 2bit or 1bit"
_SIZED_BUCKETS = "allreduce with bucket fused or sliced"
_BUCKET_BYTES = {"fused": 25 << 20, "sliced": 1 << 20}
_ORDERED = "a store whose keys go one after another"
_DEFAULTS: Mapping[str, tuple[str, Any]] = {
    "sums": (_WITHOUT_SERVERS, "auto"),
    "sharding": (_WITH_SERVERS, "hash"),
    "bigarray_bound": (_WITH_SERVERS, 1_000_000),
    "bucket": ("allreduce", "fused"),
    "algorithm": ("allreduce", "native"),
    "bucket_bytes": (_SIZED_BUCKETS, None),
    "priority": (_ORDERED, "descending"),
    "gc_threshold": (_COMPRESSED, 0.5),
}
"""Parameters that only some cases use: the text for these cases, and the default there."""


def _resolve_devices(params: Params) -> Params:
    if params["device_ids"] is None:
        return params | {"gpus": params["gpus"] or [2]}
    if params["gpus"] is not None:
        raise ParamError("device_ids", "device_ids and gpus both say which devices; give one")
    if params["device"] == "cpu":
        raise IdleParamError("device_ids", "on device cpu")
    return params


def _resolve(params: Params) -> Params:
    params = _resolve_devices(params)
    store = find_store(params["kv_store"])
    roles = resolve_roles(read_params(PushPullParams, params))
    params = params | {"num_workers": roles.workers, "num_servers": roles.servers}
    params = _resolve_network(_fill_defaults(params, store))
    _check_compression(params, store)
    if store.needs_optimizer and params["optimizer"] == "none":
        raise ParamError(
            "optimizer",
            f"{store.name} needs an optimizer: a push alone says nothing of what is kept",
        )
    _check_algorithm(params, roles)
    _check_sums(params)
    return params


def _fill_defaults(params: Params, store: StoreKind) -> Params:
    """Fill in the defaults of this case, and reject parameters without effect."""
    bucket = params["bucket"] or "fused"
    allreduce = store.name == "allreduce"
    serves = {
        _WITHOUT_SERVERS: not store.dist and not allreduce,
        _WITH_SERVERS: store.dist,
        "allreduce": allreduce,
        _SIZED_BUCKETS: allreduce and bucket in _BUCKET_BYTES,
        _ORDERED: not (allreduce and bucket == "flat"),
        _COMPRESSED: params["gc_type"] != "none",
    }
    resolved = dict(params)
    for name, (condition, default) in _DEFAULTS.items():
        if serves[condition]:
            resolved[name] = default if params[name] is None else params[name]
        elif params[name] is not None:
            raise IdleParamError(name, f"here: it is for {condition}")
    if serves[_SIZED_BUCKETS]:
        resolved["bucket_bytes"] = resolved["bucket_bytes"] or _BUCKET_BYTES[bucket]
    return resolved


def _resolve_network(params: Params) -> Params:
    network = NETWORKS[params["network"]]
    shape = tuple(params["image_shape"] or network.image_shape)
    try:
        list_parameters(params["network"], params["num_layers"], shape, params["num_classes"])
    except ModelError as error:
        raise ParamError(error.param, f"{error.param}: {error}") from None
    return params | {"image_shape": list(shape)}


def _check_compression(params: Params, store: StoreKind) -> None:
    if params["gc_type"] == "none":
        return
    if not store.compresses:
        raise ParamError(
            "gc_type", f"{store.name} does not compress; device and the dist stores do"
        )
    if params["gc_threshold"] <= 0:
        raise ParamError("gc_threshold", f"gc_threshold {params['gc_threshold']} is not above 0")


def _check_algorithm(params: Params, roles: Roles) -> None:
    algorithm = params["algorithm"]
    devices = roles.devices
    if FIXED_SIZES.get(algorithm, devices) != devices:
        raise ParamError(
            "algorithm", f"{algorithm} is drawn for {FIXED_SIZES[algorithm]} devices, not {devices}"
        )
    if algorithm == "nccl" and params["device"] == "cpu":
        raise ParamError("device", "nccl needs a GPU for each rank: device cuda or auto")
    if algorithm == "nccl" and params["optimizer"] != "none":
        raise ParamError(
            "optimizer", "optimizers run on the host; with algorithm nccl leave optimizer out"
        )


def _check_sums(params: Params) -> None:
    if params["sums"] == "shared" and params["gc_type"] != "none":
        raise ParamError("sums", "compressed pushes are sent: leave out sums shared, or gc_type")
    if params["sums"] == "shared" and params["device"] == "cuda":
        raise ParamError("sums", "sums shared are computed by the host, on device cpu")


def _scale_devices(explicit: Params, params: Params, target: ScalingTarget) -> Params:
    """Return the parameters of a store with one device per rank.

    Raises:
        ScalingError: The store has servers, the devices are listed, or the scaling is strong.
    """
    keep_params_weak_only(explicit, params, target)
    if find_store(params["kv_store"]).dist:
        raise ScalingError(f"{params['kv_store']} has workers and servers: sweep num_workers")
    if params["device_ids"] is not None:
        raise ScalingError("device_ids names the devices: give gpus")
    return explicit | {"gpus": [target.ranks]}


def _describe_rank(params: Params, rank: int) -> dict[str, Any]:
    typed = read_params(PushPullParams, params)
    role = resolve_roles(typed).role(rank)
    if not isinstance(role, Device):
        return {"server": role.index}
    device = {"device": select_devices(typed)[role.index]}
    return {"worker": role.worker, **device} if typed.num_servers else device


_METRICS = (
    make_time_metric("one push and pull of all keys"),
    Metric(
        "bandwidth_gb_s",
        "GB/s",
        "higher",
        "bytes of all keys times 2(n - 1)/n for n devices divided by the time, as in measure.py",
        "min",
    ),
    Metric(
        "error",
        "1",
        "lower",
        "error as in measure.py: the errors of all devices relative to one of their sums",
    ),
    Metric("mean_relative_error", "1", "lower", "the same, mean over devices"),
    Metric("num_arrays", "1", "none", "number of keys"),
    Metric("total_mb", "MB", "none", "size of all arrays in MB"),
    Metric(
        "bytes_sent",
        "B",
        "none",
        "bytes that the busiest rank sends, or writes for others, in a round",
    ),
    Metric("bytes_on_the_wire", "B", "none", "the same, sum over all ranks"),
    Metric("wire_gb_s", "GB/s", "higher", "bytes on the wire divided by the time", "min"),
    Metric("messages_sent", "1", "none", "messages that a rank sends in a round"),
    Metric(
        "flat_allreduce_ms",
        "ms",
        "none",
        "one allreduce of all arrays, by the MPI or by NCCL",
        separate=True,
    ),
    Metric("server_imbalance", "1", "lower", "elements of the fullest server divided by the mean"),
    Metric(
        "home_imbalance", "1", "lower", "elements of the fullest home device divided by the mean"
    ),
    Metric(
        "compression_ratio", "1", "none", "bytes of the gradients divided by those of their codes"
    ),
    Metric(
        "saturated_share",
        "1",
        "lower",
        "share of elements with a larger remainder than one code can send",
    ),
)


def _count_ranks(params: Params) -> Ranks:
    names = ("kv_store", "gpus", "device_ids", "num_workers", "num_servers")
    return Ranks(exact=resolve_roles(read_params(PushPullParams, params)).size, params=names)


BENCHMARKS = (
    Benchmark(
        name="kvstore.push_pull",
        takes_devices=True,
        summary="gradients of a network are pushed to a store and pulled from it",
        params=params_of(PushPullParams),
        metrics=_METRICS,
        checks=("result", "identical", "protocol"),
        faults=FAULTS,
        resolve=_resolve,
        ranks=_count_ranks,
        scaled=_scale_devices,
        work=make_estimate(PushPullParams, store_work),
        place=_describe_rank,
        own_lines=True,
    ),
)
