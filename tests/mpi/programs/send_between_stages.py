"""Sends messages between stages with each backend, and writes the problems.

    mpirun -n 2 python -m mpi4py send_between_stages.py RESULTS.json

The result has a text per rank by check, which is empty if the check found no problem.
"""

import json
import sys
import time
from datetime import timedelta
from functools import partial
from pathlib import Path
from unittest.mock import patch

import torch
from mpi4py import MPI

from spbench_parallel.errors import CannotRunError
from spbench_parallel.p2p import torch_group
from spbench_parallel.p2p.opening import open_p2p

CPU = torch.device("cpu")
TAGS = (0, 1)
LONG = 100_000
"""The size of a message that MPI does not send before its receive is posted."""


def check_order(comm, backend):
    """Messages with a tag arrive in their order, for any order of other tags."""
    p2p = open_p2p(backend, comm, CPU, TAGS)
    other = 1 - comm.rank
    received = {tag: [torch.zeros(LONG, dtype=torch.uint8) for _ in range(2)] for tag in TAGS}
    payloads = {tag: [torch.full_like(received[tag][0], 10 * tag + turn) for turn in range(2)]
            for tag in TAGS}  # fmt: skip
    pending = [
        request
        for tag in (TAGS if comm.rank else reversed(TAGS))
        for memory in received[tag]
        for request in p2p.receive([(memory, other)], tag)
    ]
    for turn in range(2):
        for tag in TAGS if comm.rank else reversed(TAGS):
            pending += p2p.send([(payloads[tag][turn], other)], tag)
    for request in pending:
        request.wait()
    p2p.free()
    wrong = [
        (tag, turn, int(memory[0]))
        for tag in TAGS
        for turn, memory in enumerate(received[tag])
        if not bool((memory == 10 * tag + turn).all())
    ]
    return f"{wrong}" if wrong else ""


def check_deadline(comm):
    """The wait for a message that is never sent ends with an error."""
    with patch.object(torch_group, "_TIMEOUT", timedelta(seconds=2)):
        p2p = open_p2p("gloo", comm, CPU, TAGS)
    start = time.monotonic()
    problem = ""
    if comm.rank == 0:
        (request,) = p2p.receive([(torch.zeros(8, dtype=torch.uint8), 1)], 0)
        try:
            request.wait()
            problem = "no error"
        except RuntimeError:
            seconds = time.monotonic() - start
            if seconds >= 20:
                problem = f"waited for {seconds:.0f} s"
    comm.Barrier()
    p2p.free()
    return problem


def check_error(comm, backend, kind, message):
    """All ranks raise the same error."""
    try:
        open_p2p(backend, comm, CPU, TAGS)
    except kind as error:
        return "" if str(error) == message else str(error)
    return "no error"


CHECKS = {
    "mpi": partial(check_order, backend="mpi"),
    "gloo": partial(check_order, backend="gloo"),
    "deadline": check_deadline,
    "nccl without a GPU": partial(
        check_error,
        backend="nccl",
        kind=CannotRunError,
        message="backend nccl needs a GPU for each rank, and rank 0 has none; "
        "take backend mpi or gloo",
    ),
    "unknown": partial(
        check_error,
        backend="pigeon",
        kind=ValueError,
        message="'pigeon' is none of mpi, gloo, nccl",
    ),
}


def main():
    comm = MPI.COMM_WORLD
    results = {name: comm.gather(check(comm)) for name, check in CHECKS.items()}
    if comm.rank == 0:
        Path(sys.argv[1]).write_text(json.dumps(results))


main()
