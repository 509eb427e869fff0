"""Choice of a transport: checks which ones apply here, and measures the fastest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import NamedTuple

from mpi4py import MPI

from spbench_core.layout.transports import TRANSPORT_DEVICES
from spbench_parallel.alternatives import time_alternatives
from spbench_parallel.device.streams import synchronize_stream
from spbench_parallel.errors import first_line
from spbench_parallel.groups import is_on_one_host
from spbench_parallel.p2p.torch_group import explain_missing_nccl
from spbench_parallel.spatial.transports import (
    Transport,
    TransportError,
    TransportSpec,
    exchange_once,
)
from spbench_parallel.spatial.transports.cuda_ipc import CudaIpcTransport
from spbench_parallel.spatial.transports.nccl import NcclTransport
from spbench_parallel.spatial.transports.persistent import DatatypeTransport, PackedTransport
from spbench_parallel.spatial.transports.slots import SharedTransport
from spbench_parallel.spatial.transports.staged import StagedTransport, query_device_pointers

TRANSPORTS: Mapping[str, Callable[[TransportSpec], Transport]] = {
    "packed": PackedTransport,
    "datatype": DatatypeTransport,
    "shm": SharedTransport,
    "cuda": StagedTransport,
    "cuda-pinned": partial(StagedTransport, direct=False),
    "cuda-ipc": CudaIpcTransport,
    "nccl": NcclTransport,
}
"""``cuda`` gives MPI device pointers if it accepts them. Then ``auto`` also tries pinned memory: it
may be faster for small pieces, or if the library supports device pointers but is slow."""
_DEVICE_TYPES = {**TRANSPORT_DEVICES, "cuda-pinned": TRANSPORT_DEVICES["cuda"]}
_DEVICE_NAMES = {"cpu": "the host", "cuda": "a GPU"}
SizeKey = tuple[tuple[int, ...], str, int]
"""Ranks, device type, and the logarithm of the most bytes that a rank sends."""
_NAME_BY_SIZE_KEY: dict[SizeKey, str] = {}
TIMED_ROUNDS = 9
EXCHANGES_PER_TIMING = 3
"""Exchanges per timing: a single one is too short for the clock and the barrier."""


class OpenedTransport(NamedTuple):
    """A transport; with ``auto``, also the ms of an exchange over each one tried."""

    name: str
    transport: Transport
    tried_ms: dict[str, float]


def find_unsupported(spec: TransportSpec) -> dict[str, str]:
    """Return the transports that cannot carry a specification, each with the reason.

    Collective; all ranks get the same answer.
    """
    device = spec.device
    reason_by_transport = {
        name: f"is for memory of {_DEVICE_NAMES[device_type]}, and the device is {device.type}"
        for name, device_type in _DEVICE_TYPES.items()
        if device_type != device.type
    }
    within_host_transport = "shm" if device.type == "cpu" else "cuda-ipc"
    if not is_on_one_host(spec.comm):
        reason_by_transport[within_host_transport] = "needs all ranks on one host"
    if device.type == "cuda":
        if reason := explain_missing_nccl(spec.comm, device):
            reason_by_transport["nccl"] = reason
        accepts_pointers, evidence = query_device_pointers(spec.comm)
        if not accepts_pointers:
            reason_by_transport["cuda-pinned"] = f"is what cuda is here: {evidence}"
    return reason_by_transport


def open_transport(name: str, spec: TransportSpec) -> OpenedTransport:
    """Create a transport; ``auto`` creates all that apply and keeps the fastest.

    ``once`` measures at the first exchange of its size between the same ranks, and reuses the
    choice for others. It is for models, which have many similar exchanges.

    Collective; all ranks get the same answer.

    Raises:
        TransportError: The transport cannot carry this specification.
    """
    if name == "once":
        return _open_once(spec)
    reason_by_transport = find_unsupported(spec)
    applicable = [candidate for candidate in TRANSPORTS if candidate not in reason_by_transport]
    if name != "auto":
        if name not in applicable:
            reason = reason_by_transport.get(name, "is not known")
            raise TransportError(
                f"transport {name} {reason}; those that apply: {', '.join(applicable)}"
            )
        return OpenedTransport(name, TRANSPORTS[name](spec), {})
    transports = _open_all(applicable, spec)
    ms_by_transport = _time_transports(spec, transports)
    fastest_name = min(ms_by_transport, key=ms_by_transport.__getitem__)
    for candidate, transport in transports.items():
        if candidate != fastest_name:
            transport.free()
    return OpenedTransport(fastest_name, transports[fastest_name], ms_by_transport)


def _open_once(spec: TransportSpec) -> OpenedTransport:
    key = _make_size_key(spec)
    if key in _NAME_BY_SIZE_KEY:
        name = _NAME_BY_SIZE_KEY[key]
        return OpenedTransport(name, TRANSPORTS[name](spec), {})
    opened = open_transport("auto", spec)
    _NAME_BY_SIZE_KEY[key] = opened.name
    return opened


def _make_size_key(spec: TransportSpec) -> SizeKey:
    """Return a key for similar exchanges: ranks, device type, and size."""
    sent_bytes = sum(view.numel() * view.element_size() for view in spec.outgoing)
    most_sent_bytes: int = spec.comm.allreduce(sent_bytes, op=MPI.MAX)
    group = spec.comm.Get_group()
    world = MPI.COMM_WORLD.Get_group()
    ranks = tuple(group.Translate_ranks(None, world))
    group.Free()
    world.Free()
    return ranks, spec.device.type, most_sent_bytes.bit_length()


def _open_all(names: Sequence[str], spec: TransportSpec) -> dict[str, Transport]:
    """Return the transports that all ranks could create.

    Raises:
        TransportError: No transport could be created on all ranks.
    """
    transports = {}
    problems = []
    for name in names:
        transport, problem = _try_open(name, spec)
        failures = [failure for failure in spec.comm.allgather(problem) if failure]
        if failures:
            problems.append(f"{name} ({failures[0]})")
        elif transport is not None:
            transports[name] = transport
    if not transports:
        raise TransportError(f"no transport could be opened: {'; '.join(problems)}")
    return transports


def _try_open(name: str, spec: TransportSpec) -> tuple[Transport | None, str]:
    """Return a transport, or why it could not be created, such as no shared memory."""
    try:
        return TRANSPORTS[name](spec), ""
    except (TransportError, MPI.Exception, RuntimeError) as error:
        return None, first_line(error)


def _time_transports(spec: TransportSpec, transports: Mapping[str, Transport]) -> dict[str, float]:
    """Return the ms of an exchange over each transport, on the slowest rank."""
    alternatives = {
        name: partial(_time_exchange, spec, transport) for name, transport in transports.items()
    }
    # Not interleaved: a case also exchanges in a loop over one transport, with buffers in cache.
    seconds_by_transport = time_alternatives(
        alternatives, rounds=TIMED_ROUNDS, warm_up=1, comm=spec.comm, interleaved=False
    )
    return {name: 1000.0 * seconds for name, seconds in seconds_by_transport.items()}


def _time_exchange(spec: TransportSpec, transport: Transport) -> float:
    # Only the current stream: others may hold NCCL receives from senders that wait for this rank.
    synchronize_stream(spec.device)
    spec.comm.Barrier()
    start_seconds = perf_counter()
    for _ in range(EXCHANGES_PER_TIMING):
        exchange_once(transport)
    synchronize_stream(spec.device)
    return (perf_counter() - start_seconds) / EXCHANGES_PER_TIMING
