"""Parameters of key-value stores, and the devices and roles that they define."""

from __future__ import annotations

from dataclasses import dataclass

from spbench_core.catalog.benchmark import ParamError
from spbench_core.catalog.shared_params import DEVICE, SEED
from spbench_core.catalog.typed_params import parameter, require_value, reuse_parameter
from spbench_core.mxnet_networks.registry import NETWORKS
from spbench_workers.benchmarks.kvstore.roles import (
    SPELLINGS,
    STORES,
    Roles,
    assign_roles,
    find_store,
    parse_devices,
)
from spbench_workers.collectives.base import LIBRARIES, SCHEDULED

OPTIMIZERS = (
    "none",
    "sgd",
    "momentum",
    "adam",
    "rmsprop",
    "adagrad",
    "adadelta",
    "nag",
    "ftrl",
    "signum",
)
COMPRESSIONS = ("none", "2bit", "1bit")
SHARDINGS = ("hash", "balanced")
BUCKETS = ("tensor", "fused", "sliced", "flat")
ALGORITHMS = (*LIBRARIES, "shared", *SCHEDULED)


@dataclass(frozen=True, kw_only=True)
class PushPullParams:
    """Parameters of ``kvstore.push_pull``."""

    network: str = parameter(
        "choice", "resnet", "network that determines the sizes of the keys", choices=tuple(NETWORKS)
    )
    num_layers: int | None = parameter(
        "int", None, "depth of the network; default: that of the network", minimum=1
    )
    image_shape: list[int] | None = parameter(
        "ints", None, "C,H,W of an image; default: that of the network"
    )
    num_classes: int = parameter("int", 1000, "outputs of the last layer", minimum=1, maximum=10**6)
    kv_store: str = parameter(
        "choice",
        "device",
        "kind of the store, which sums and keeps the gradients",
        choices=tuple(STORES),
        aliases=("kvstore",),
        spellings=SPELLINGS,
    )
    gpus: list[int] | None = parameter(
        "ints",
        None,
        "devices of a worker: one number is their count, several (0,3) are their ids; default 2",
        minimum=0,
    )
    device_ids: list[int] | None = parameter(
        "ints", None, "ids of the devices, such as 0 or 0,3, instead of gpus", minimum=0
    )
    num_workers: int | None = parameter(
        "int", None, "workers of a dist store; default 1", minimum=1
    )
    num_servers: int | None = parameter(
        "int", None, "servers of a dist store; default: the number of workers", minimum=0
    )
    num_batches: int = parameter(
        "int", 5, "timed rounds, after one untimed round", minimum=1, maximum=10**6
    )
    disp_batches: int = parameter(
        "int", 1, "rounds that are reported and checked together", minimum=1
    )
    test_results: bool = parameter(
        "bool", True, "whether results are checked after each report, or at the end"
    )
    optimizer: str = parameter(
        "choice",
        "none",
        "optimizer that the store applies to a sum",
        choices=OPTIMIZERS,
        spellings={"None": "none"},
    )
    gc_type: str = parameter(
        "choice", "none", "compression of the pushed gradients", choices=COMPRESSIONS
    )
    gc_threshold: float | None = parameter(
        "float", None, "threshold of the compression; default 0.5", maximum=1e6
    )
    sums: str | None = parameter(
        "choice",
        None,
        "sums of local and device stores: by messages, or in shared memory of a host; auto "
        "is shared memory if possible",
        choices=("auto", "shared", "messages"),
    )
    sharding: str | None = parameter(
        "choice", None, "distribution of keys over servers; default hash", choices=SHARDINGS
    )
    bigarray_bound: int | None = parameter(
        "int",
        None,
        "elements from which a key is divided over all servers; default 10^6",
        minimum=1,
    )
    priority: str | None = parameter(
        "choice",
        None,
        "order of waiting keys; descending: the last one first, as in a backward pass",
        choices=("descending", "ascending"),
    )
    bucket: str | None = parameter(
        "choice",
        None,
        "unit of an allreduce: a key (tensor), adjacent keys (fused), equal parts of all "
        "(sliced), or all (flat); default fused",
        choices=BUCKETS,
    )
    bucket_bytes: int | None = parameter(
        "bytes", None, "limit of a bucket in bytes; default: 25MiB, with sliced 1MiB", minimum=4
    )
    algorithm: str | None = parameter(
        "choice",
        None,
        "algorithm of allreduce: native is that of MPI, shared sums in shared memory of a host",
        choices=ALGORITHMS,
    )
    device: str = reuse_parameter(DEVICE)
    seed: int = reuse_parameter(SEED)


def select_devices(params: PushPullParams) -> tuple[int, ...]:
    """Return the devices of a worker from device_ids or gpus.

    A single number in gpus is a count; several numbers are indices.

    Raises:
        ValueError: The list is empty, or has a device twice.
    """
    if params.device_ids is not None:
        return parse_devices(params.device_ids)
    gpus = require_value(params.gpus)
    return parse_devices(gpus[0] if len(gpus) == 1 else gpus)


def resolve_roles(params: PushPullParams) -> Roles:
    """Return the roles of all ranks from complete parameters.

    Raises:
        ParamError: The store cannot use one of the numbers.
    """
    try:
        devices = select_devices(params)
    except ValueError as error:
        name = "gpus" if params.device_ids is None else "device_ids"
        raise ParamError(name, f"{name}: {error}") from None
    store = find_store(params.kv_store)
    return assign_roles(store, len(devices), params.num_workers, params.num_servers)
