"""Keeps many ``cuda-ipc`` transports open, and counts events and mappings.

    mpirun -n 2 python -m mpi4py open_many.py RESULTS.json

Rank 0 sends and rank 1 reads. Their device is a stand-in that runs late and allows 1,000 open
events and 1,000 mappings per process. The result has a dictionary per rank.
"""

import json
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from mpi4py import MPI

from spbench_parallel.device.ipc import get_device_ipc
from spbench_parallel.spatial.transports import (
    TransportError,
    TransportSpec,
    cuda_ipc,
    exchange_once,
)
from spbench_parallel.spatial.transports.cuda_ipc import CudaIpcTransport
from standins.late_device import install
from standins.late_ipc import install_ipc

TRANSPORTS = 1100
SHAPE = (1, 1, 1, 1)
COMM = MPI.COMM_WORLD
SENDER = 0
READER = 1
install()
install_ipc()
DEVICE = torch.device("late", 0)
SHARES: Any = get_device_ipc(DEVICE)


def open_transport(number):
    """Open a transport that sends its number from one rank to the other."""
    sends = COMM.rank == SENDER
    return CudaIpcTransport(
        TransportSpec(
            comm=COMM,
            tag=1,
            outgoing=[torch.full(SHAPE, number, dtype=torch.int32, device=DEVICE)] if sends else [],
            targets=[READER] if sends else [],
            shapes=[] if sends else [SHAPE],
            sources=[] if sends else [SENDER],
            into=None,
            dtype=torch.int32,
            device=DEVICE,
        )
    )


def open_transports(transports):
    """Add transports to a list; return the error of the first that cannot be opened."""
    for number in range(TRANSPORTS):
        try:
            transports.append(open_transport(number))
        except TransportError as error:
            return str(error)
    return ""


def find_wrong_pieces(transports):
    wrong = []
    for number in range(0, len(transports), 100):
        exchange_once(transports[number])
        pieces = [int(piece) for piece in transports[number].received]
        if pieces != [number] * len(pieces):
            wrong.append(number)
    return wrong


def main():
    torch.set_num_threads(1)
    transports = []
    # Both ranks are on this host. To find that out takes a third of the time.
    with patch.object(cuda_ipc, "is_on_one_host", return_value=True):
        error = open_transports(transports)
    result = {
        "error": error,
        "transports": len(transports),
        "wrong": find_wrong_pieces(transports),
        "events": SHARES.open_events,
        "mappings": len(SHARES.mappings),
    }
    while transports:
        transports.pop().free()
    result["mappings_after"] = len(SHARES.mappings)
    results = COMM.gather(result)
    if COMM.rank == 0:
        Path(sys.argv[1]).write_text(json.dumps(results))


main()
