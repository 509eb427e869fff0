"""Sends messages between devices over every path, and writes what went wrong.

    mpirun -n 2 python -m mpi4py ping_devices.py RESULTS.json

The device is the one that runs late: what a path does not wait for has not come. Paths that need
a real GPU's memory or NCCL run on the host, the latter with gloo in NCCL's place.
"""

import json
import sys
from pathlib import Path

import torch
from mpi4py import MPI

from spbench_workers.pingpong.device_pair import (
    check_cuda_ipc,
    one_way_device_seconds,
    open_pair,
    open_path,
)
from spbench_workers.pingpong.pair import Peer
from standins.late_device import install
from standins.late_ipc import install_ipc

comm = MPI.COMM_WORLD
rank = comm.rank
peer = 1 - comm.rank
LATE = install()
install_ipc()
PLACES = (
    *(("late", path) for path in ("pinned", "cuda-ipc")),
    *(("cpu", path) for path in ("pinned", "pointers", "nccl")),
)
problems = []


def message(sender, count):
    """Bytes of a sender, none of them the 0 that memory of the device holds at first."""
    return ((torch.arange(count) * 7 + 100 * sender) % 250 + 1).to(torch.uint8)


def there(tensor):
    """Values that have arrived: nothing is waited for."""
    return getattr(tensor, "elem", tensor)


def trips_bring_all(device, path, count):
    outgoing, incoming = (torch.zeros(count, dtype=torch.uint8, device=device) for _ in range(2))
    pair = open_pair(Peer(comm, peer, rank < peer), outgoing, incoming, path)
    for turn in range(3):
        outgoing.copy_(message(rank + turn, count).to(device))
        pair.trips(1)
        if not torch.equal(there(incoming), message(peer + turn, count)):
            problems.append(f"{device} {path} {count}: trip {turn} brought {there(incoming)[:8]}")
    pair.free()


def one_message_waits_for_the_stream(device, path):
    outgoing, incoming = (torch.zeros(9, dtype=torch.uint8, device=device) for _ in range(2))
    pair = open_pair(Peer(comm, peer, rank < peer), outgoing, incoming, path)
    if pair.peer.leads:
        outgoing.copy_(message(rank, 9).to(device))
        pair.send()
    else:
        pair.receive()
        if not torch.equal((incoming + 0).cpu(), message(peer, 9)):
            problems.append(f"{device} {path}: one message brought {incoming}")
    pair.free()


def times_are_above_zero(device, path):
    seconds = one_way_device_seconds(
        Peer(comm, peer, rank < peer), 4096, 5, device=torch.device(device), path=path
    )
    if not 0.0 < seconds < 1.0:
        problems.append(f"{device} {path}: {seconds} s one way")


def main():
    torch.set_num_threads(1)
    for device, path in PLACES:
        with open_path(comm, torch.device(device), path):
            if path == "cuda-ipc":
                check_cuda_ipc(comm, torch.device(device))
            for count in (1, 8, 4096, 1 << 20):
                trips_bring_all(device, path, count)
            one_message_waits_for_the_stream(device, path)
            times_are_above_zero(device, path)
    if LATE.device_wide:
        problems.append(f"{LATE.device_wide} waits for all streams of the device")
    told = comm.gather(problems)
    if rank == 0:
        Path(sys.argv[1]).write_text(json.dumps([one for of_rank in told for one in of_rank]))


main()
