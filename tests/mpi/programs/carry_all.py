"""Carries messages between stages in every way that this host has, and says what went wrong.

    mpirun -n 2 python -m mpi4py carry_all.py RESULTS.json

A result is, by check, what each rank found wrong; nothing where all is right.
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
"""Bytes that no MPI sends before their receiver has asked for them."""


def in_order(comm, backend):
    """Messages of a tag come in their order, whatever has been asked for first of another tag."""
    p2p = open_p2p(backend, comm, CPU, TAGS)
    other = 1 - comm.rank
    received = {tag: [torch.zeros(LONG, dtype=torch.uint8) for _ in range(2)] for tag in TAGS}
    sent = {tag: [torch.full_like(received[tag][0], 10 * tag + turn) for turn in range(2)]
            for tag in TAGS}  # fmt: skip
    pending = [
        one
        for tag in (TAGS if comm.rank else reversed(TAGS))
        for memory in received[tag]
        for one in p2p.receive([(memory, other)], tag)
    ]
    for turn in range(2):
        for tag in TAGS if comm.rank else reversed(TAGS):
            pending += p2p.send([(sent[tag][turn], other)], tag)
    for one in pending:
        one.wait()
    p2p.free()
    wrong = [
        (tag, turn, int(memory[0]))
        for tag in TAGS
        for turn, memory in enumerate(received[tag])
        if not bool((memory == 10 * tag + turn).all())
    ]
    return f"{wrong}" if wrong else ""


def deadline(comm):
    """A message that never comes is not waited for for ever."""
    with patch.object(torch_group, "_TIMEOUT", timedelta(seconds=2)):
        p2p = open_p2p("gloo", comm, CPU, TAGS)
    start = time.monotonic()
    said = "no error"
    if comm.rank == 0:
        (pending,) = p2p.receive([(torch.zeros(8, dtype=torch.uint8), 1)], 0)
        try:
            pending.wait()
        except RuntimeError:
            said = ""
        waited = time.monotonic() - start
        said = said or ("" if waited < 20 else f"waited for {waited:.0f} s")
    else:
        said = ""
    comm.Barrier()
    p2p.free()
    return said


def refused(comm, backend, kind, words):
    """All ranks say the same, in one sentence."""
    try:
        open_p2p(backend, comm, CPU, TAGS)
    except kind as error:
        return "" if str(error) == words else str(error)
    return "no error"


CHECKS = {
    "mpi": partial(in_order, backend="mpi"),
    "gloo": partial(in_order, backend="gloo"),
    "deadline": deadline,
    "nccl without a GPU": partial(
        refused,
        backend="nccl",
        kind=CannotRunError,
        words="backend nccl needs a GPU for each rank, and rank 0 has none; "
        "take backend mpi or gloo",
    ),
    "unknown": partial(
        refused, backend="pigeon", kind=ValueError, words="'pigeon' is none of mpi, gloo, nccl"
    ),
}


def main():
    comm = MPI.COMM_WORLD
    answers = {name: comm.gather(check(comm)) for name, check in CHECKS.items()}
    if comm.rank == 0:
        Path(sys.argv[1]).write_text(json.dumps(answers))


main()
