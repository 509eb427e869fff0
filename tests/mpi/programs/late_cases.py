"""Runs cases on the device that works late, and writes the events of each rank.

    mpirun -n 2 python -m mpi4py late_cases.py CASES.json RESULTS.json

A case is ``{"benchmark", "params", "inject"}``. It uses the late device instead of a GPU. A result
has a list of events per rank. With algorithm or path ``nccl``, a stand-in that works late replaces
NCCL.
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
from standins.late_nccl import acquire, explain_missing_nccl, release
from support.recording_context import make_rank_context, select_events

KINDS = ("check", "choice", "metric", "samples", "log")


def choose_late_device(context, *, preference=None, **_):
    """Return the late device for ``cuda``, and the host for a server of a store.

    With ``auto``, only rank 0 gets the late device, as if no other rank had a GPU.
    """
    has_gpu = context.params["device"] == "cuda" or context.world.rank == 0
    return torch.device("late", 0) if has_gpu and preference != "cpu" else torch.device("cpu")


def run_case(world, case, runners):
    name = case["benchmark"]
    context = make_rank_context(world, name, case["params"], case.get("inject"))
    rejections = []
    install().reset()
    try:
        runners[name](context)
    except CannotRunError as error:
        if context.params["device"] != "auto":
            raise
        rejections.append({"event": "rejected", "reason": str(error)})
    return [
        *select_events(context, *KINDS),
        *rejections,
        {"event": "waits", "device_wide": install().device_wide},
    ]


def patch_small_sizes(stack):
    """Use small sizes, because the host does the work of the device."""
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
        mock.patch.object(choice, "choose_device", choose_late_device),
        mock.patch.object(torch_group, "acquire", acquire),
        mock.patch.object(torch_group, "release", release),
        mock.patch.object(torch_group, "explain_missing_nccl", explain_missing_nccl),
        ExitStack() as stack,
    ):
        cases = json.loads(Path(sys.argv[1]).read_text())
        runners = load_runners(case["benchmark"] for case in cases)
        patch_small_sizes(stack)
        results = []
        for case in cases:
            results.append(world.comm.gather(run_case(world, case, runners)))
            sleep_at_barrier(world.comm)
    if world.rank == 0:
        Path(sys.argv[2]).write_text(json.dumps(results))


main()
