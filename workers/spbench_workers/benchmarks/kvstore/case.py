"""Case of ``kvstore.push_pull`` without MPI: arrays, roles, and placement of keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from spbench_core.catalog.typed_params import require_value
from spbench_core.mxnet_networks.registry import list_parameters
from spbench_workers.benchmarks.kvstore import compression
from spbench_workers.benchmarks.kvstore.compression import Compression
from spbench_workers.benchmarks.kvstore.keys import sharding
from spbench_workers.benchmarks.kvstore.keys.sharding import (
    TaggedShard,
    assign_merge_devices,
    tag_shards,
)
from spbench_workers.benchmarks.kvstore.params import PushPullParams, resolve_roles
from spbench_workers.benchmarks.kvstore.roles import Roles, Server, StoreKind, find_store


@dataclass(frozen=True, slots=True)
class StoreCase:
    """A case, the same on every rank.

    Attributes:
        store: The kind of store.
        roles: The roles of ranks: devices of workers, and servers.
        elements: Elements of each key, in key order.
        optimizer: The optimizer that the store applies to a sum, or ``none``.
        gc_type: The compression of pushes, or ``none``.
        threshold: The threshold t of the compression.
        order: The keys in the order of their pushes.
        merge_devices: The merge device of each key, a device of each worker; 0 for all keys if the
            store does not spread them.
        tagged_shards: The tagged shards of each key on the servers; none without servers.
    """

    store: StoreKind
    roles: Roles
    elements: tuple[int, ...]
    optimizer: str = "none"
    gc_type: str = "none"
    threshold: float = compression.THRESHOLD
    order: Sequence[int] = ()
    merge_devices: Sequence[int] = ()
    tagged_shards: Sequence[Sequence[TaggedShard]] = field(default=())

    @property
    def compressed(self) -> bool:
        """Whether pushes are compressed."""
        return self.gc_type != "none"

    @property
    def total_mb(self) -> float:
        """The size of all arrays in millions of bytes."""
        return 4 * sum(self.elements) / 1e6

    def create_compression(self) -> Compression | None:
        """Return a new compression of pushes, or None if they are not compressed."""
        return (
            compression.create_compression(self.gc_type, self.threshold)
            if self.compressed
            else None
        )

    def is_server(self, rank: int) -> bool:
        """Return whether a rank is a server, not a device."""
        return isinstance(self.roles.role(rank), Server)

    def list_clients(self, key: int) -> list[int]:
        """Return each worker's merge device of a key, which pushes it to the servers."""
        workers = range(self.roles.workers)
        return [self.roles.list_worker_ranks(worker)[self.merge_devices[key]] for worker in workers]


def build_case(params: PushPullParams) -> StoreCase:
    """Return the case of complete parameters."""
    store = find_store(params.kv_store)
    roles = resolve_roles(params)
    elements = _count_elements(params)
    keys = range(len(elements))
    return StoreCase(
        store,
        roles,
        elements,
        params.optimizer,
        params.gc_type,
        params.gc_threshold or compression.THRESHOLD,
        order=keys if params.priority == "ascending" else keys[::-1],
        merge_devices=assign_merge_devices(elements, roles.devices)
        if store.on_device
        else [0] * len(elements),
        tagged_shards=_tag_shards(params, elements, roles.servers) if store.dist else (),
    )


def _count_elements(params: PushPullParams) -> tuple[int, ...]:
    shape = tuple(require_value(params.image_shape))
    arrays = list_parameters(params.network, params.num_layers, shape, params.num_classes)
    return tuple(array.elements for array in arrays)


def _tag_shards(
    params: PushPullParams, elements: Sequence[int], servers: int
) -> list[list[TaggedShard]]:
    word_elements = (
        compression.create_compression(params.gc_type).word if params.gc_type != "none" else 1
    )
    scheme = require_value(params.sharding)
    bigarray_bound = require_value(params.bigarray_bound)
    shards = sharding.make_shards(elements, servers, scheme, bigarray_bound, word=word_elements)
    return tag_shards(shards, servers)
