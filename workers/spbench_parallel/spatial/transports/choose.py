"""Choice of a transport: checks which ones apply here, and measures the fastest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import perf_counter

from mpi4py import MPI

from spbench_core.layout.transports import TRANSPORT_DEVICES
from spbench_parallel.alternatives import time_alternatives
from spbench_parallel.device.streams import synchronize_stream
from spbench_parallel.errors import first_line
from spbench_parallel.groups import is_on_one_host
from spbench_parallel.p2p.torch_group import nccl_refusal
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
_CHOICES: dict[SizeKey, str] = {}
ROUNDS = 9
BATCH = 3
"""Exchanges per timing: a single one is too short for the clock and the barrier."""


def find_refusals(spec: TransportSpec) -> dict[str, str]:
    """Return the transports that cannot carry a specification, each with the reason.

    Collective; all ranks get the same answer.
    """
    device = spec.device
    reasons = {
        name: f"is for memory of {_DEVICE_NAMES[device_type]}, and the device is {device.type}"
        for name, device_type in _DEVICE_TYPES.items()
        if device_type != device.type
    }
    within_a_host = "shm" if device.type == "cpu" else "cuda-ipc"
    if not is_on_one_host(spec.comm):
        reasons[within_a_host] = "needs all ranks on one host"
    if device.type == "cuda":
        if reason := nccl_refusal(spec.comm, device):
            reasons["nccl"] = reason
        accepts, evidence = query_device_pointers(spec.comm)
        if not accepts:
            reasons["cuda-pinned"] = f"is what cuda is here: {evidence}"
    return reasons


def open_transport(name: str, spec: TransportSpec) -> tuple[str, Transport, dict[str, float]]:
    """Create a transport; ``auto`` creates all that apply and keeps the fastest.

    ``once`` measures at the first exchange of its size between the same ranks, and reuses the
    choice for others. It is for models, which have many similar exchanges.

    Collective; all ranks get the same answer.

    Returns:
        The name, the transport, and the ms of an exchange over each transport that was tried.

    Raises:
        TransportError: The transport cannot carry this specification.
    """
    if name == "once":
        return _open_once(spec)
    refusals = find_refusals(spec)
    names = [candidate for candidate in TRANSPORTS if candidate not in refusals]
    if name != "auto":
        if name not in names:
            reason = refusals.get(name, "is not known")
            raise TransportError(f"transport {name} {reason}; those that apply: {', '.join(names)}")
        return name, TRANSPORTS[name](spec), {}
    transports = _open_all(names, spec)
    ms_by_transport = _time_transports(spec, transports)
    fastest = min(ms_by_transport, key=ms_by_transport.__getitem__)
    for candidate, transport in transports.items():
        if candidate != fastest:
            transport.free()
    return fastest, transports[fastest], ms_by_transport


def _open_once(spec: TransportSpec) -> tuple[str, Transport, dict[str, float]]:
    key = _make_size_key(spec)
    if key in _CHOICES:
        return _CHOICES[key], TRANSPORTS[_CHOICES[key]](spec), {}
    opened = open_transport("auto", spec)
    _CHOICES[key] = opened[0]
    return opened


def _make_size_key(spec: TransportSpec) -> SizeKey:
    """Return a key for similar exchanges: ranks, device type, and size."""
    size = sum(view.numel() * view.element_size() for view in spec.outgoing)
    largest: int = spec.comm.allreduce(size, op=MPI.MAX)
    group = spec.comm.Get_group()
    world = MPI.COMM_WORLD.Get_group()
    ranks = tuple(group.Translate_ranks(None, world))
    group.Free()
    world.Free()
    return ranks, spec.device.type, largest.bit_length()


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
        alternatives, rounds=ROUNDS, warm_up=1, comm=spec.comm, interleaved=False
    )
    return {name: 1000.0 * seconds for name, seconds in seconds_by_transport.items()}


def _time_exchange(spec: TransportSpec, transport: Transport) -> float:
    # Only the current stream: others may hold NCCL receives from senders that wait for this rank.
    synchronize_stream(spec.device)
    spec.comm.Barrier()
    start = perf_counter()
    for _ in range(BATCH):
        exchange_once(transport)
    synchronize_stream(spec.device)
    return (perf_counter() - start) / BATCH
