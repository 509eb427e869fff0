"""Kinds of key-value stores, and the roles of ranks in them: devices and servers.

The names are those of MXNet, which looks for the parts ``dist``, ``device`` and ``_async`` in any
order. ``allreduce`` is a store without a server or merge device, in which every device has the sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spbench_core.catalog.benchmark import ParamError
from spbench_core.number_text import TooManyDigitsError, parse_whole

_MOST_DEVICES = 10_000
"""Most devices of one worker; a count is expanded, so a larger one would fill the memory."""


@dataclass(frozen=True, slots=True)
class StoreKind:
    """A kind of store.

    Attributes:
        name: Its name in results.
        dist: Whether server ranks keep the values.
        on_device: Whether each key is summed on its merge device among a worker's devices instead
            of all keys on one device.
        asynchronous: Whether a server applies each push separately instead of the sum of one push
            per worker.
    """

    name: str
    dist: bool = False
    on_device: bool = False
    asynchronous: bool = False

    @property
    def compresses(self) -> bool:
        """Whether gradients may be compressed; MXNet rejects it for pushes to the host."""
        return self.dist or self.on_device

    @property
    def needs_optimizer(self) -> bool:
        """Whether pushes need an optimizer; MXNet's server exits without one."""
        return self.asynchronous


STORES: dict[str, StoreKind] = {
    store.name: store
    for store in (
        StoreKind("local"),
        StoreKind("device", on_device=True),
        StoreKind("dist_sync", dist=True),
        StoreKind("dist_device_sync", dist=True, on_device=True),
        StoreKind("dist_async", dist=True, asynchronous=True),
        StoreKind("dist_async_device", dist=True, on_device=True, asynchronous=True),
        StoreKind("allreduce"),
    )
}

SPELLINGS: dict[str, str] = {
    "dist_sync_device": "dist_device_sync",
    "dist_device_async": "dist_async_device",
}
"""Other names of the same stores."""


def find_store(name: str) -> StoreKind:
    """Return the store by name or spelling.

    Raises:
        ValueError: The name is unknown.
    """
    store = STORES.get(SPELLINGS.get(name, name))
    if store is None:
        raise ValueError(f"{name!r} is none of {', '.join([*STORES, *SPELLINGS])}")
    return store


def parse_devices(value: int | str | Sequence[int]) -> tuple[int, ...]:
    """Parse the devices of one worker: a count (``4``) or indices (``0,1,2,3``).

    A single number is always a count: ``1`` is device 0, and ``1,`` is device 1.

    Raises:
        ValueError: The value is neither, is empty, or has a device twice.
    """
    if isinstance(value, list | tuple):
        text = ",".join(map(str, value)) + ","
    else:
        text = str(value).strip()
    try:
        numbers = [parse_whole(word) for word in text.removesuffix(",").split(",")]
    except TooManyDigitsError:
        raise
    except ValueError:
        raise ValueError(
            f"{value!r} is neither a number of devices nor a list such as 0,1"
        ) from None
    if max(numbers) > _MOST_DEVICES:
        raise ValueError(f"a worker has at most {_MOST_DEVICES} devices")
    devices = tuple(numbers if "," in text else range(numbers[0]))
    if text == "0":
        raise ValueError("0 is how many, and none is too few; device 0 alone is device_ids 0")
    if not devices or min(devices) < 0:
        raise ValueError(f"{value!r} names no device (write 2, or 0,1)")
    if len(set(devices)) < len(devices):
        raise ValueError(f"{value!r} names a device twice")
    return devices


@dataclass(frozen=True, slots=True)
class Device:
    """The role of a rank with gradients: device ``index`` of ``worker``, both from 0."""

    worker: int
    index: int


@dataclass(frozen=True, slots=True)
class Server:
    """The role of a rank that keeps values: server ``index`` from 0."""

    index: int


@dataclass(frozen=True, slots=True)
class Roles:
    """The roles of all ranks: devices of worker 0, of worker 1, ..., then servers.

    Attributes:
        workers: The number of workers.
        devices: Devices of one worker.
        servers: Server ranks.
    """

    workers: int
    devices: int
    servers: int

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self.workers * self.devices + self.servers

    @property
    def device_ranks(self) -> range:
        """The ranks that are devices."""
        return range(self.workers * self.devices)

    @property
    def server_ranks(self) -> range:
        """The ranks that are servers, from server 0."""
        return range(self.workers * self.devices, self.size)

    def list_worker_ranks(self, worker: int) -> range:
        """Return the ranks of a worker's devices."""
        return range(worker * self.devices, (worker + 1) * self.devices)

    def role(self, rank: int) -> Device | Server:
        """Return the role of a rank.

        Raises:
            ValueError: The rank does not exist.
        """
        if not 0 <= rank < self.size:
            raise ValueError(f"rank {rank} is none of the {self.size} ranks of {self}")
        if rank in self.server_ranks:
            return Server(rank - self.server_ranks.start)
        return Device(*divmod(rank, self.devices))


def assign_roles(
    store: StoreKind,
    devices_per_worker: int,
    num_workers: int | None = None,
    num_servers: int | None = None,
) -> Roles:
    """Return the roles of the ranks of a store.

    Args:
        store: The kind of store.
        devices_per_worker: Devices of one worker.
        num_workers: Workers; None means 1. Only a dist store may have several.
        num_servers: Servers; None means one per worker in a dist store, and none in others.

    Raises:
        ParamError: The store cannot use one of the numbers.
    """
    workers = 1 if num_workers is None else num_workers
    if workers < 1:
        raise ParamError("num_workers", f"num_workers {workers} is below 1")
    if store.dist:
        servers = workers if num_servers is None else num_servers
        if servers < 1:
            raise ParamError("num_servers", f"{store.name} needs a server, not {servers}")
        return Roles(workers, devices_per_worker, servers)
    if workers != 1:
        raise ParamError(
            "num_workers", f"{store.name} has one worker, not {workers}: raise gpus instead"
        )
    if num_servers:
        raise ParamError("num_servers", f"{store.name} has no servers, not {num_servers}")
    return Roles(1, devices_per_worker, 0)


def count_ranks(
    kv_store: str,
    gpus: int | str | Sequence[int],
    num_workers: int | None = None,
    num_servers: int | None = None,
) -> int:
    """Return the number of ranks that these parameters need.

    Raises:
        ParamError: A parameter is invalid, or has no effect in the store.
    """
    try:
        store = find_store(kv_store)
    except ValueError as error:
        raise ParamError("kv_store", f"kv_store: {error}") from None
    try:
        worker_devices = parse_devices(gpus)
    except ValueError as error:
        raise ParamError("gpus", f"gpus: {error}") from None
    return assign_roles(store, len(worker_devices), num_workers, num_servers).size
