"""The MPI world of a job: the start of MPI, the check of equal configurations, and barriers."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from spbench_workers.binding.local_rank import RankLocation, assign_local_ranks, read_local_rank
from spbench_workers.binding.numa import core_nodes

if TYPE_CHECKING:
    from mpi4py import MPI

FINALIZE_TIMEOUT = 60
"""Seconds that MPI_Finalize may take. The console ends a job's launcher after 5 s already."""
_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class World:
    """The communicator of all ranks, and this rank's place: rank, host, local rank and cores.

    Attributes:
        machine: The lowest rank on this rank's machine.
        doubt: The sentence on launcher and machines that do not agree on local ranks; see
            `Located`.
        hosts: The host of each rank, where the console tells it: to ranks that start no MPI.
    """

    comm: MPI.Intracomm
    rank: int
    size: int
    local_rank: int
    host: str
    cpus: tuple[int, ...]
    threads: int
    machine: int = 0
    local_rank_conflict: str = ""
    hosts: tuple[str, ...] = ()


def open_world(guard: AbstractContextManager[None] | None = None) -> World:
    """Start MPI and return this rank's place.

    It sets the number of OMP threads before torch.

    Args:
        guard: Entered around MPI_Init. MPI_Init holds Python's lock, so that no other thread can
            run until it returns.
    """
    import mpi4py

    from spbench_parallel.device.driver import load_driver
    from spbench_workers.binding.before_mpi import avoid_ucx_windows, select_gpu
    from spbench_workers.shared_memory import set_private_folder

    select_gpu(os.environ, load_driver)
    set_private_folder(os.environ)
    avoid_ucx_windows(os.environ)
    # One thread at a time calls MPI, with a GPU autograd's own in turn with the main one: a library
    # without locks answers faster.
    mpi4py.rc.thread_level = "serialized"
    with guard or nullcontext():
        from mpi4py import MPI

    comm = MPI.COMM_WORLD
    cpus = tuple(sorted(os.sched_getaffinity(0)))
    host = socket.gethostname()
    mine = RankLocation(host, _boot_id(), read_local_rank(os.environ), cpus)
    every: list[RankLocation] = comm.allgather(mine)
    found = assign_local_ranks(every)
    machine = found.machines[comm.rank]
    here = [one.cpus for one, of in zip(every, found.machines, strict=True) if of == machine]
    threads = _threads(cpus, here)
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    local_rank = found.local_ranks[comm.rank]
    return World(
        comm, comm.rank, comm.size, local_rank, host, cpus, threads, machine, found.conflict
    )


def finalize_mpi() -> None:
    """Finalize MPI, which all ranks must do.

    MPI then removes its files in shared memory.

    SIGALRM ends a process that waits in it for longer than `FINALIZE_TIMEOUT`: its connection to
    the console is closed by then, and MPI_Finalize holds Python's lock.
    """
    from mpi4py import MPI

    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(FINALIZE_TIMEOUT)
    MPI.Finalize()
    signal.alarm(0)


def _boot_id() -> str:
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""


def _threads(cpus: tuple[int, ...], local: list[tuple[int, ...]]) -> int:
    """Return OMP_NUM_THREADS where it is set; else this rank's share of its cores."""
    if os.environ.get("OMP_NUM_THREADS", "").isdigit():
        return max(1, int(os.environ["OMP_NUM_THREADS"]))
    sharing = sum(bool(set(cpus) & set(other)) for other in local)
    return max(1, len(cpus) // sharing)


def is_oversubscribed(world: World) -> bool:
    """Whether some machine has more ranks than cores for them; the same on all ranks."""
    machines: dict[int, list[tuple[int, ...]]] = {}
    for machine, cpus in world.comm.allgather((world.machine, tuple(os.sched_getaffinity(0)))):
        machines.setdefault(machine, []).append(cpus)
    return any(len(ranks) > len(set().union(*ranks)) for ranks in machines.values())


def find_fabric() -> str:
    """Return the network between hosts: the names of the RDMA devices, or tcp."""
    devices = Path("/sys/class/infiniband")
    names = sorted(path.name for path in devices.iterdir()) if devices.is_dir() else []
    return ",".join(names) or "tcp"


def numa_node(cpus: tuple[int, ...]) -> int | None:
    """Return the NUMA node that holds all these CPUs; None where they span several."""
    nodes = core_nodes(cpus)
    return nodes.pop() if len(nodes) == 1 else None
