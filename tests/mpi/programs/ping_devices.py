"""Sends messages between devices over every path, and writes the problems.

    mpirun -n 2 python -m mpi4py ping_devices.py RESULTS.json

The device works late, so that a missing wait leaves old values. Paths that need memory of a real
GPU or NCCL run on the host, with gloo instead of NCCL.
"""

import json
import sys
from itertools import chain
from pathlib import Path

import torch
from mpi4py import MPI

from spbench_workers.pingpong.device_pair import (
    check_cuda_ipc,
    measure_one_way_on_devices,
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
DEVICE_PATHS = (
    *(("late", path) for path in ("pinned", "cuda-ipc")),
    *(("cpu", path) for path in ("pinned", "pointers", "nccl")),
)
problems = []


def make_message(sender, count):
    """Return bytes of a sender without 0, which is the device's initial memory."""
    return ((torch.arange(count) * 7 + 100 * sender) % 250 + 1).to(torch.uint8)


def read_without_wait(tensor):
    """Return the current values without a wait."""
    return getattr(tensor, "elem", tensor)


def check_round_trips(device, path, count):
    outgoing, incoming = (torch.zeros(count, dtype=torch.uint8, device=device) for _ in range(2))
    pair = open_pair(Peer(comm, peer, rank < peer), outgoing, incoming, path)
    for turn in range(3):
        outgoing.copy_(make_message(rank + turn, count).to(device))
        pair.make_round_trips(1)
        if not torch.equal(read_without_wait(incoming), make_message(peer + turn, count)):
            problems.append(
                f"{device} {path} {count}: trip {turn} brought {read_without_wait(incoming)[:8]}"
            )
    pair.free()


def check_single_message(device, path):
    outgoing, incoming = (torch.zeros(9, dtype=torch.uint8, device=device) for _ in range(2))
    pair = open_pair(Peer(comm, peer, rank < peer), outgoing, incoming, path)
    if pair.peer.leads:
        outgoing.copy_(make_message(rank, 9).to(device))
        pair.send()
    else:
        pair.receive()
        if not torch.equal((incoming + 0).cpu(), make_message(peer, 9)):
            problems.append(f"{device} {path}: one message brought {incoming}")
    pair.free()


def check_measured_time(device, path):
    seconds = measure_one_way_on_devices(
        Peer(comm, peer, rank < peer), 4096, 5, device=torch.device(device), path=path
    )
    if not 0.0 < seconds < 1.0:
        problems.append(f"{device} {path}: {seconds} s one way")


def main():
    torch.set_num_threads(1)
    for device, path in DEVICE_PATHS:
        with open_path(comm, torch.device(device), path):
            if path == "cuda-ipc":
                check_cuda_ipc(comm, torch.device(device))
            for count in (1, 8, 4096, 1 << 20):
                check_round_trips(device, path, count)
            check_single_message(device, path)
            check_measured_time(device, path)
    if LATE.device_wide:
        problems.append(f"{LATE.device_wide} waits for all streams of the device")
    all_problems = comm.gather(problems)
    if rank == 0:
        Path(sys.argv[1]).write_text(json.dumps(list(chain.from_iterable(all_problems or ()))))


main()
