"""Runs halo.exchange once for each path of its limit, on memory of the host.

    mpirun -n 3 python -m mpi4py limit_paths.py RESULTS.json

The result has the limits and checks of each rank by path. MPI gets memory of the host instead of a
GPU's, and gloo replaces NCCL. With ``cuda-ipc``, the exchange uses a stand-in for a GPU that works
late.
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


def gather_limits(world, path):
    context = make_rank_context(world, "halo.exchange", PARAMS)
    with patch.object(report, "find_message_path", lambda _: path):
        exchange.run(context)
    return gather_events(world, context)


def gather_events(world, context):
    """Return the limits and checks of all ranks."""
    events = select_events(context, "check", "metric")
    return world.comm.gather(
        [event for event in events if "measured_by" in event or "tolerance" in event]
    )


def run_late_device(world):
    install()
    install_ipc()
    params = PARAMS | {"device": "cuda", "transport": "cuda-ipc"}
    context = make_rank_context(world, "halo.exchange", params)
    with (
        patch.object(exchange, "choose_device", lambda _: torch.device("late", 0)),
        patch.object(choose, "find_unsupported", lambda _: {}),
    ):
        exchange.run(context)
    return gather_events(world, context)


def main():
    world = open_world()
    results = {path: gather_limits(world, path) for path in ("pinned", "pointers", "nccl")}
    results["cuda-ipc"] = run_late_device(world)
    if world.rank == 0:
        Path(sys.argv[1]).write_text(json.dumps(results))


main()
