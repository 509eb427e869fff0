"""Process groups of torch.distributed over ranks of a communicator.

They do not use torch's default group: a communicator of any ranks gets its own group.
"""

from __future__ import annotations

import atexit
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from typing import Any, Protocol, cast

import torch
import torch.distributed as dist
from mpi4py import MPI

from spbench_parallel.device.gpus import read_pci_address
from spbench_parallel.device.streams import synchronize_stream
from spbench_parallel.errors import CannotRunError
from spbench_parallel.groups import create_on_all_ranks, is_on_one_host
from spbench_parallel.p2p import Message, Pending

# The time for ranks to find each other, and for one exchange.
_TIMEOUT = timedelta(minutes=5)
_LOOPBACK = "127.0.0.1"


class GroupError(CannotRunError):
    """The ranks cannot create a process group."""


class TorchWork(Pending, Protocol):
    """A pending call of torch.distributed."""

    def is_completed(self) -> bool:
        """Return whether it has ended."""


class _Backend(Protocol):
    """The part of torch's process groups of NCCL and gloo that is used here."""

    @property
    def supports_coalescing(self) -> bool: ...
    def send(self, tensors: list[torch.Tensor], rank: int, tag: int, /) -> TorchWork: ...
    def recv(self, tensors: list[torch.Tensor], rank: int, tag: int, /) -> TorchWork: ...
    def allreduce(self, tensors: list[torch.Tensor], options: Any, /) -> TorchWork: ...
    def _start_coalescing(self) -> None: ...
    def _end_coalescing(self) -> TorchWork: ...
    def shutdown(self) -> None: ...
    def abort(self) -> None: ...


@dataclass(slots=True)
class TorchGroup:
    """A process group of torch.distributed with the ranks of a communicator.

    Attributes:
        backend: Torch's process group of NCCL or gloo.
        store: The store by which ranks found each other; rank 0 serves it while the group exists.
        users: The number of users of the group.
        stream: The stream of torch's pool that NCCL took for it; -1 on the host.
    """

    backend: _Backend
    store: object
    users: int = 0
    stream: int = -1

    def exchange(
        self, receives: Sequence[Message], sends: Sequence[Message], tag: int
    ) -> list[TorchWork]:
        """Start to send and receive.

        All ranks must start their exchanges in the same order.
        """
        if not (receives or sends):
            return []
        if self.backend.supports_coalescing:
            self.backend._start_coalescing()
            self._post(receives, sends, tag)
            return [self.backend._end_coalescing()]
        return self._post(receives, sends, tag)

    def allreduce(self, vector: torch.Tensor, op: Any) -> TorchWork:
        """Start to reduce a vector in place by a ``torch.distributed.ReduceOp``."""
        options = dist.AllreduceOptions()
        options.reduceOp = op
        return self.backend.allreduce([vector], options)

    def drop(self) -> None:
        """Delete the backend, so that its threads end before the interpreter does."""
        del self.backend, self.store

    def _post(
        self, receives: Sequence[Message], sends: Sequence[Message], tag: int
    ) -> list[TorchWork]:
        pending = [self.backend.recv([vector], rank, tag) for vector, rank in receives]
        return pending + [self.backend.send([vector], rank, tag) for vector, rank in sends]


_groups: dict[tuple[int, str], TorchGroup] = {}
# Streams per priority in torch's pool, which are handed out in turn, one per group of NCCL.
_POOL_STREAMS = 32
_dealt_streams = count()


def acquire(comm: MPI.Intracomm, device: torch.device) -> TorchGroup:
    """Return the group of a communicator: NCCL for GPUs, gloo for the host.

    All ranks must call it, and call `release` as often.

    Raises:
        GroupError: A rank could not join; all of them raise it.
    """
    key = (comm.handle, str(device))
    if key not in _groups:
        _groups[key] = _connect(comm, device)
    _groups[key].users += 1
    return _groups[key]


def release(comm: MPI.Intracomm, device: torch.device) -> None:
    """Release a group once; the last release ends it. All ranks must call it."""
    group = _groups[comm.handle, str(device)]
    group.users -= 1
    if not group.users:
        del _groups[comm.handle, str(device)]
        synchronize_stream(device)
        group.backend.shutdown()
        # Rank 0 must serve the store until all ranks have shut down.
        comm.Barrier()
        group.drop()


@atexit.register
def _abort_all() -> None:
    """Abort groups that were not released.

    It does not wait for ranks, which may have ended.
    """
    for group in _groups.values():
        group.backend.abort()
        group.drop()


def explain_missing_nccl(comm: MPI.Intracomm, device: torch.device) -> str:
    """Return why NCCL cannot serve these ranks, in the form of a predicate.

    It is empty if NCCL can serve them. All ranks must call it, and all get the same answer.
    """
    device_types: list[str] = comm.allgather(device.type)
    if ranks_without_gpu := [
        rank for rank, device_type in enumerate(device_types) if device_type != "cuda"
    ]:
        return f"needs a GPU for each rank, and rank {ranks_without_gpu[0]} has none"
    gpus: list[str] = comm.allgather(_identify_gpu(device))
    if "" in gpus:
        return f"is not part of the torch of rank {gpus.index('')}"
    for rank, gpu in enumerate(gpus):
        if gpu in gpus[:rank]:
            return f"needs a GPU for each rank, and ranks {gpus.index(gpu)} and {rank} share one"
    return ""


def _identify_gpu(device: torch.device) -> str:
    """Return a unique name of a GPU among all hosts; empty if torch has no NCCL."""
    if not (dist.is_available() and dist.is_nccl_available()):
        return ""
    # The address and not the uuid: MIG instances of one GPU have different uuids, but NCCL treats
    # them as the same GPU.
    return f"{socket.gethostname()} {read_pci_address(device)}"


def _connect(comm: MPI.Intracomm, device: torch.device) -> TorchGroup:
    host = _LOOPBACK if is_on_one_host(comm) else _find_address()
    server = create_on_all_ranks(
        comm, lambda: _open_store(host) if comm.rank == 0 else None, _cannot_join
    )
    host, port = comm.bcast((host, server.port) if server is not None else None)

    def join() -> TorchGroup:
        store = _open_store(host, port) if server is None else server
        stream = _find_own_stream(device)
        backend = _create_backend(store, comm, device)
        # After an allreduce of all ranks, some of them can exchange without the others.
        group = TorchGroup(backend, store, stream=stream)
        group.allreduce(torch.zeros(1, device=device), dist.ReduceOp.SUM).wait()
        # Only the current stream: other groups may have receives posted.
        synchronize_stream(device)
        return group

    return create_on_all_ranks(comm, join, _cannot_join)


def _open_store(host: str, port: int = 0) -> Any:
    """Return a store: served on a free port, or connected to rank 0's."""
    return dist.TCPStore(  # type: ignore[attr-defined]
        host, port, is_master=not port, wait_for_workers=False, timeout=_TIMEOUT
    )


def _create_backend(store: Any, comm: MPI.Intracomm, device: torch.device) -> _Backend:
    if device.type == "cuda":
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = _TIMEOUT
        # NCCL takes its streams from torch's pools of 32 per priority. With high priority it uses
        # another pool than spbench, so that no stream of spbench waits behind a posted receive.
        options.is_high_priority_stream = True
        nccl = dist.ProcessGroupNCCL(store, comm.rank, comm.size, options)
        return cast(_Backend, nccl)
    gloo = dist.ProcessGroupGloo(store, comm.rank, comm.size, timeout=_TIMEOUT)
    return cast(_Backend, gloo)


def _find_own_stream(device: torch.device) -> int:
    """Return the index of the stream that the next NCCL group takes from torch's pool.

    It is a stream that no other group uses, since a receive of one group would block messages of
    the other. To get there, streams in use are skipped.

    Raises:
        GroupError: All streams of the pool are in use.
    """
    if device.type != "cuda":
        return -1
    used = {group.stream for group in _groups.values()}
    for _ in range(_POOL_STREAMS):
        stream = next(_dealt_streams) % _POOL_STREAMS
        if stream not in used:
            return stream
        # Take this turn of the pool with a stream that is not used. NCCL's streams have the highest
        # priority that torch supports, which differs between GPUs: -1 may be another pool.
        _, highest = torch.cuda.Stream.priority_range()  # type: ignore[call-arg]
        torch.cuda.Stream(device, priority=highest)
    raise GroupError(
        f"NCCL serves at most {_POOL_STREAMS} groups at once; take fewer stages or rounds"
    )


def _cannot_join(rank: int, reason: str) -> GroupError:
    return GroupError(f"rank {rank} could not join the others ({reason})")


def _find_address() -> str:
    """Return an address of this host for other hosts.

    It is the host's name if only loopback addresses are known.
    """
    name = socket.gethostname()
    try:
        records = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return name
    addresses = [str(record[4][0]) for record in records]
    local = ("127.", "::1", "fe80")
    return next((address for address in addresses if not address.startswith(local)), name)
