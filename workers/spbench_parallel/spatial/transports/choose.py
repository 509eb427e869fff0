"""Choice of a transport: those that apply here, and the fastest of them, as measured."""

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
from spbench_parallel.spatial.transports.datatype import DatatypeTransport
from spbench_parallel.spatial.transports.nccl import NcclTransport
from spbench_parallel.spatial.transports.packed import PackedTransport
from spbench_parallel.spatial.transports.shared import SharedTransport
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
"""``cuda`` gives MPI device pointers where that takes them. Then ``auto`` tries pinned memory too:
for small pieces that may be the faster way, or the library may say yes and be slow."""
_KINDS = {**TRANSPORT_DEVICES, "cuda-pinned": TRANSPORT_DEVICES["cuda"]}
_PLACES = {"cpu": "the host", "cuda": "a GPU"}
Likeness = tuple[tuple[int, ...], str, int]
"""Ranks, kind of device, and the logarithm of the most bytes that a rank sends."""
_CHOSEN: dict[Likeness, str] = {}
ROUNDS = 9
BATCH = 3
"""Exchanges that are timed together: a single one is too short for the clock and the barrier."""


def find_refusals(wiring: TransportSpec) -> dict[str, str]:
    """Return the transports that cannot carry a wiring, each with the reason.

    All ranks must call it, and all get the same answer.
    """
    device = wiring.device
    reasons = {
        name: f"is for memory of {_PLACES[kind]}, and the device is {device.type}"
        for name, kind in _KINDS.items()
        if kind != device.type
    }
    within_a_host = "shm" if device.type == "cpu" else "cuda-ipc"
    if not is_on_one_host(wiring.comm):
        reasons[within_a_host] = "needs all ranks on one host"
    if device.type == "cuda":
        if reason := nccl_refusal(wiring.comm, device):
            reasons["nccl"] = reason
        takes, evidence = query_device_pointers(wiring.comm)
        if not takes:
            reasons["cuda-pinned"] = f"is what cuda is here: {evidence}"
    return reasons


def open_transport(name: str, wiring: TransportSpec) -> tuple[str, Transport, dict[str, float]]:
    """Make a transport; ``auto`` makes all that apply, times them and keeps the fastest.

    ``once`` does so for the first wiring of its size between the same ranks, and takes for others
    what was the fastest then: for models, whose layers have many exchanges that are alike.

    All ranks must call it, and all get the same answer.

    Returns:
        The name, the transport, and the ms that an exchange took over each that was tried.

    Raises:
        TransportError: The transport cannot carry this wiring.
    """
    if name == "once":
        return _open_once(wiring)
    refused = find_refusals(wiring)
    names = [one for one in TRANSPORTS if one not in refused]
    if name != "auto":
        if name not in names:
            reason = refused.get(name, "is not known")
            raise TransportError(f"transport {name} {reason}; those that apply: {', '.join(names)}")
        return name, TRANSPORTS[name](wiring), {}
    transports = _opened(names, wiring)
    times = _times(wiring, transports)
    chosen = min(times, key=lambda one: times[one])
    for one, transport in transports.items():
        if one != chosen:
            transport.free()
    return chosen, transports[chosen], times


def _open_once(wiring: TransportSpec) -> tuple[str, Transport, dict[str, float]]:
    key = _likeness(wiring)
    if key in _CHOSEN:
        return _CHOSEN[key], TRANSPORTS[_CHOSEN[key]](wiring), {}
    opened = open_transport("auto", wiring)
    _CHOSEN[key] = opened[0]
    return opened


def _likeness(wiring: TransportSpec) -> Likeness:
    """Return a key for exchanges that are alike: ranks, kind of device, and size."""
    size = sum(one.numel() * one.element_size() for one in wiring.outgoing)
    largest: int = wiring.comm.allreduce(size, op=MPI.MAX)
    ours = wiring.comm.Get_group()
    everyone = MPI.COMM_WORLD.Get_group()
    ranks = tuple(ours.Translate_ranks(None, everyone))
    ours.Free()
    everyone.Free()
    return ranks, wiring.device.type, largest.bit_length()


def _opened(names: Sequence[str], wiring: TransportSpec) -> dict[str, Transport]:
    """Return the transports that all ranks could make.

    Raises:
        TransportError: No transport could be made on all ranks.
    """
    opened = {}
    problems = []
    for name in names:
        transport, problem = _tried(name, wiring)
        said = [one for one in wiring.comm.allgather(problem) if one]
        if said:
            problems.append(f"{name} ({said[0]})")
        elif transport is not None:
            opened[name] = transport
    if not opened:
        raise TransportError(f"no transport could be opened: {'; '.join(problems)}")
    return opened


def _tried(name: str, wiring: TransportSpec) -> tuple[Transport | None, str]:
    """Return a transport, or why it could not be made: no memory to share, say."""
    try:
        return TRANSPORTS[name](wiring), ""
    except (TransportError, MPI.Exception, RuntimeError) as error:
        return None, first_line(error)


def _times(wiring: TransportSpec, transports: Mapping[str, Transport]) -> dict[str, float]:
    """Return the ms of an exchange over each transport, as long as the slowest rank's."""
    alternatives = {
        name: partial(_seconds, wiring, transport) for name, transport in transports.items()
    }
    # One after another: a case exchanges in a loop over one transport, with its buffers in cache.
    times = time_alternatives(
        alternatives, rounds=ROUNDS, warm_up=1, comm=wiring.comm, interleaved=False
    )
    return {name: 1000.0 * seconds for name, seconds in times.items()}


def _seconds(wiring: TransportSpec, transport: Transport) -> float:
    # Only the current stream: others may hold receives of NCCL, whose senders wait for this.
    synchronize_stream(wiring.device)
    wiring.comm.Barrier()
    start = perf_counter()
    for _ in range(BATCH):
        exchange_once(transport)
    synchronize_stream(wiring.device)
    return (perf_counter() - start) / BATCH
