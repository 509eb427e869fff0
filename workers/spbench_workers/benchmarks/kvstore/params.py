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
        "choice", "resnet", "whose weights and biases", choices=tuple(NETWORKS)
    )
    num_layers: int | None = parameter("int", None, "its depth; the network's default", minimum=1)
    image_shape: list[int] | None = parameter(
        "ints", None, "C,H,W of an image; what the network was made for"
    )
    num_classes: int = parameter("int", 1000, "outputs of its last layer", minimum=1, maximum=10**6)
    kv_store: str = parameter(
        "choice",
        "device",
        "where gradients are summed and kept",
        choices=tuple(STORES),
        aliases=("kvstore",),
        spellings=SPELLINGS,
    )
    gpus: list[int] | None = parameter(
        "ints",
        None,
        "devices of a worker: one number is how many, several (0,3) are which; 2",
        minimum=0,
    )
    device_ids: list[int] | None = parameter(
        "ints", None, "which devices, as 0 or 0,3, in place of gpus", minimum=0
    )
    num_workers: int | None = parameter("int", None, "workers of a dist store; 1", minimum=1)
    num_servers: int | None = parameter(
        "int", None, "servers of a dist store; as many as workers", minimum=0
    )
    num_batches: int = parameter(
        "int", 5, "timed rounds, after one more that is dropped", minimum=1, maximum=10**6
    )
    disp_batches: int = parameter(
        "int", 1, "rounds that are reported, and checked, together", minimum=1
    )
    test_results: bool = parameter(
        "bool", True, "whether results are checked each time, or at the end"
    )
    optimizer: str = parameter(
        "choice",
        "none",
        "what the store does with a sum",
        choices=OPTIMIZERS,
        spellings={"None": "none"},
    )
    gc_type: str = parameter(
        "choice", "none", "compression of what is pushed", choices=COMPRESSIONS
    )
    gc_threshold: float | None = parameter(
        "float", None, "threshold of the compression; 0.5", maximum=1e6
    )
    sums: str | None = parameter(
        "choice",
        None,
        "of local and device: by messages, or shared, in memory that all devices of a host see; "
        "auto: shared where that can be",
        choices=("auto", "shared", "messages"),
    )
    sharding: str | None = parameter(
        "choice", None, "how keys go to servers; hash", choices=SHARDINGS
    )
    bigarray_bound: int | None = parameter(
        "int", None, "elements from which servers share a key; 10^6", minimum=1
    )
    priority: str | None = parameter(
        "choice",
        None,
        "which waiting key goes first; descending: the last one, as a backward pass has them",
        choices=("descending", "ascending"),
    )
    bucket: str | None = parameter(
        "choice",
        None,
        "what allreduce sums at once: a key (tensor), neighbours (fused), equal parts of all "
        "(sliced), or all (flat); fused",
        choices=BUCKETS,
    )
    bucket_bytes: int | None = parameter(
        "bytes", None, "most bytes of a bucket; 25MiB, sliced 1MiB", minimum=4
    )
    algorithm: str | None = parameter(
        "choice",
        None,
        "of allreduce; native, the MPI's; shared sums in memory that all devices of a host see",
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
