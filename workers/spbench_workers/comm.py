"""The MPI world of a job, and facts about the machine of a rank."""

from __future__ import annotations

import os
import platform
import re
import signal
import socket
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from spbench_workers.binding.local_rank import RankLocation, assign_local_ranks, read_local_rank
from spbench_workers.binding.numa import find_core_nodes

if TYPE_CHECKING:
    from mpi4py import MPI

FINALIZE_TIMEOUT = 60
"""Seconds that MPI_Finalize may take. The console ends a job's launcher earlier, after 5 s."""
_MAPS = Path("/proc/self/maps")
_ALLOCATORS = r"lib((?:tc|je|mi|tbb)malloc)[\w.-]*\.so[\d.]*"
_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class World:
    """The communicator of all ranks, and the location of this rank.

    Attributes:
        comm: All ranks of the job.
        rank: This rank.
        size: The number of ranks.
        local_rank: The number of this rank among those of its machine.
        host: The host name.
        cpus: The CPUs on which this rank may run.
        threads: The number of OMP threads.
        machine: The lowest rank on this rank's machine.
        local_rank_conflict: The message that launcher and machines disagree on local ranks; see
            `LocalRanks`.
        hosts: The host of each rank, for ranks that start no MPI and get it from the console.
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
    """Start MPI and return the world.

    It sets the number of OMP threads, before torch is imported.

    Args:
        guard: Entered around MPI_Init, which holds Python's lock, so that no other thread runs
            until it returns.
    """
    import mpi4py

    from spbench_parallel.device.driver import load_driver
    from spbench_workers.binding.before_mpi import avoid_ucx_windows, select_gpu
    from spbench_workers.shared_memory import set_private_folder

    # Before MPI starts: UCX chooses adapters by the current GPU, and Open MPI reads its variables.
    select_gpu(os.environ, load_driver)
    set_private_folder(os.environ)
    avoid_ucx_windows(os.environ)
    # Only one thread at a time calls MPI. With a GPU, autograd's thread alternates with the main
    # thread. Without locks, an MPI library is faster.
    mpi4py.rc.thread_level = "serialized"
    with guard or nullcontext():
        from mpi4py import MPI

    comm = MPI.COMM_WORLD

    cpus = tuple(sorted(os.sched_getaffinity(0)))
    host = socket.gethostname()
    own_location = RankLocation(host, _read_boot_id(), read_local_rank(os.environ), cpus)
    locations: list[RankLocation] = comm.allgather(own_location)
    assignment = assign_local_ranks(locations)
    machine = assignment.machines[comm.rank]
    local_cpus = [
        location.cpus
        for location, other in zip(locations, assignment.machines, strict=True)
        if other == machine
    ]

    threads = _choose_threads(cpus, local_cpus)
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    local_rank = assignment.local_ranks[comm.rank]
    return World(
        comm, comm.rank, comm.size, local_rank, host, cpus, threads, machine, assignment.conflict
    )


def finalize_mpi(*, timeout_seconds: int = FINALIZE_TIMEOUT) -> None:
    """Finalize MPI, which all ranks must do.

    MPI then removes its files in shared memory. SIGALRM ends a process that waits in it for longer
    than ``timeout_seconds``. A handler in Python would not run, because MPI_Finalize holds Python's
    lock, and the connection to the console is closed.
    """
    from mpi4py import MPI

    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(timeout_seconds)
    MPI.Finalize()
    signal.alarm(0)


def _read_boot_id() -> str:
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""


def _choose_threads(cpus: tuple[int, ...], cpus_of_local_ranks: list[tuple[int, ...]]) -> int:
    """Return OMP_NUM_THREADS if it is set, otherwise this rank's share of its cores."""
    if os.environ.get("OMP_NUM_THREADS", "").isdigit():
        return max(1, int(os.environ["OMP_NUM_THREADS"]))
    sharing_ranks = sum(bool(set(cpus) & set(other)) for other in cpus_of_local_ranks)
    return max(1, len(cpus) // sharing_ranks)


def is_oversubscribed(world: World) -> bool:
    """Return whether some machine has more ranks than cores for them.

    The answer is the same on all ranks.
    """
    cpus_by_machine: dict[int, list[tuple[int, ...]]] = {}
    for machine, cpus in world.comm.allgather((world.machine, tuple(os.sched_getaffinity(0)))):
        cpus_by_machine.setdefault(machine, []).append(cpus)
    return any(
        len(cpus_by_rank) > len(set().union(*cpus_by_rank))
        for cpus_by_rank in cpus_by_machine.values()
    )


def find_allocator() -> str:
    """Return the name of the loaded malloc, such as ``tcmalloc``, or the C library's."""
    try:
        maps = _MAPS.read_text()
    except OSError:
        maps = ""
    match = re.search(rf"/{_ALLOCATORS}", maps)
    return match[1] if match else " ".join(platform.libc_ver()) or "system"


def find_fabric() -> str:
    """Return the network between hosts: the names of the RDMA devices, or ``tcp``."""
    devices = Path("/sys/class/infiniband")
    names = sorted(path.name for path in devices.iterdir()) if devices.is_dir() else []
    return ",".join(names) or "tcp"


def find_numa_node(cpus: tuple[int, ...]) -> int | None:
    """Return the NUMA node that contains all these CPUs; None if they span several."""
    nodes = find_core_nodes(cpus)
    return nodes.pop() if len(nodes) == 1 else None
