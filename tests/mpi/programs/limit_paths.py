"""Runs halo.exchange once for each path that its limit may go over, on memory of the host.

    mpirun -n 3 python -m mpi4py limit_paths.py RESULTS.json

The result is, by path, what each rank said of its limits. MPI is given the host's memory in place
of a GPU's, and gloo carries what NCCL would. With ``cuda-ipc`` the exchange goes over it, on a
stand-in for a GPU that runs late.
"""

import json
import sys
from pathlib import Path
from unittest.mock import patch

import torch

from spbench_parallel.spatial.transports import choose
from spbench_workers.benchmarks.halo import exchange, report
from spbench_workers.comm import open_world
from standins.late_device import install
from standins.late_ipc import install_ipc
from support.recording_context import make_rank_context, select_events

PARAMS = {"image_size": 32, "grid": "1x3", "iterations": 2, "warmup": 1, "device": "cpu"}


def limits_of(world, path):
    context = make_rank_context(world, "halo.exchange", PARAMS)
    with patch.object(report, "find_message_path", lambda _: path):
        exchange.run(context)
    return told_by(world, context)


def told_by(world, context):
    """Return what each rank said of limits and checks."""
    told = select_events(context, "check", "metric")
    return world.comm.gather([one for one in told if "measured_by" in one or "tolerance" in one])


def on_a_stand_in(world):
    install()
    install_ipc()
    params = PARAMS | {"device": "cuda", "transport": "cuda-ipc"}
    context = make_rank_context(world, "halo.exchange", params)
    with (
        patch.object(exchange, "choose_device", lambda _: torch.device("late", 0)),
        patch.object(choose, "find_refusals", lambda _: {}),
    ):
        exchange.run(context)
    return told_by(world, context)


def main():
    world = open_world()
    results = {path: limits_of(world, path) for path in ("pinned", "pointers", "nccl")}
    results["cuda-ipc"] = on_a_stand_in(world)
    if world.rank == 0:
        Path(sys.argv[1]).write_text(json.dumps(results))


main()
