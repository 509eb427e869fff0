"""Runs cases of benchmarks on the device that runs late, and writes what each rank said.

    mpirun -n 2 python -m mpi4py late_cases.py CASES.json RESULTS.json

A case is ``{"benchmark", "params", "inject"}``; it takes the late device in place of a GPU. A
result is one list of events a rank. With algorithm or path ``nccl``, a stand-in that reduces and
sends late stands in NCCL's place.
"""

import json
import sys
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

import torch

from spbench_parallel.errors import CannotRunError
from spbench_parallel.groups import sleep_at_barrier
from spbench_parallel.p2p import torch_group
from spbench_workers import device_choice as choice
from spbench_workers.comm import open_world
from spbench_workers.session import load_runners
from standins.late_device import install
from standins.late_nccl import acquire, refusal, release
from support.recording_context import make_rank_context, select_events

KEPT = ("check", "choice", "metric", "samples", "log")


def late_device_of(context, *, preference=None, **_):
    """Take the late device where ``cuda`` is asked for; a server of a store takes the host.

    With ``auto`` rank 0 takes it alone, as if no other had a GPU.
    """
    found = context.params["device"] == "cuda" or context.world.rank == 0
    return torch.device("late", 0) if found and preference != "cpu" else torch.device("cpu")


def run_case(world, case, runners):
    name = case["benchmark"]
    context = make_rank_context(world, name, case["params"], case.get("inject"))
    refused = []
    install().reset()
    try:
        runners[name](context)
    except CannotRunError as error:
        if context.params["device"] != "auto":
            raise
        refused.append({"event": "refused", "reason": str(error)})
    return [
        *select_events(context, *KEPT),
        *refused,
        {"event": "waits", "device_wide": install().device_wide},
    ]


def work_less(stack):
    """Take sizes for the host, which does the work of the device."""
    from spbench_workers.benchmarks.allreduce import overlap
    from spbench_workers.benchmarks.allreduce.model import job_link

    for module, name, value in (
        (job_link, "NCCL_BYTES", (8, 4 << 10, 64 << 10)),
        (job_link, "_COPY_BYTES", (4 << 10, 64 << 10, 256 << 10)),
        (job_link, "_DEVICE_BYTES", (4 << 10, 64 << 10, 256 << 10)),
        (overlap, "_ROWS", 64),
    ):
        stack.enter_context(mock.patch.object(module, name, value))


def main():
    world = open_world()
    torch.set_num_threads(1)
    install()
    with (
        mock.patch.object(choice, "choose_device", late_device_of),
        mock.patch.object(torch_group, "acquire", acquire),
        mock.patch.object(torch_group, "release", release),
        mock.patch.object(torch_group, "nccl_refusal", refusal),
        ExitStack() as stack,
    ):
        cases = json.loads(Path(sys.argv[1]).read_text())
        runners = load_runners(case["benchmark"] for case in cases)
        work_less(stack)
        results = []
        for case in cases:
            results.append(world.comm.gather(run_case(world, case, runners)))
            sleep_at_barrier(world.comm)
    if world.rank == 0:
        Path(sys.argv[2]).write_text(json.dumps(results))


main()
