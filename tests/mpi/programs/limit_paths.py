"""Runs halo.exchange once for each path that its limit may go over, on memory of the host.

    mpirun -n 3 python -m mpi4py limit_paths.py RESULTS.json

The result is, by path, what each rank said of its limits. MPI is given the host's memory in place
of a GPU's, and gloo carries what NCCL would.
"""

import json
import sys
from pathlib import Path
from unittest.mock import patch

from spbench_workers.comm import open_world
from spbench_workers.halo import exchange, report
from unit.recorded import context_on, events_of

PARAMS = {"image_size": 32, "grid": "1x3", "iterations": 2, "warmup": 1, "device": "cpu"}


def limits_of(world, path):
    context = context_on(world, "halo.exchange", PARAMS)
    with patch.object(report, "path_of", lambda _: path):
        exchange.run(context)
    return world.comm.gather([one for one in events_of(context) if "measured_by" in one])


def main():
    world = open_world()
    results = {path: limits_of(world, path) for path in ("pinned", "pointers", "nccl")}
    if world.rank == 0:
        Path(sys.argv[1]).write_text(json.dumps(results))


main()
