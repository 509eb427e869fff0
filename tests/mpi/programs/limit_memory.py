"""Runs a case on ranks that may take little more memory.

    mpirun -n 4 python -m mpi4py limit_memory.py CASE.json RESULTS.json

The case is as for ``run_cases.py``, with ``megabytes`` that each rank may take beyond what it has
once everything is imported. The result is one list of events a rank.
"""

import json
import resource
import sys
from pathlib import Path

from spbench_workers.comm import open_world
from spbench_workers.session import load_runners
from support.recording_context import make_rank_context, select_events


def taken():
    """The bytes that the system counts against the limit."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = [one for one in lines if one.startswith("VmData:")]
    return 1024 * int(line.split()[1])


def main():
    wanted, results = map(Path, sys.argv[1:])
    case = json.loads(wanted.read_text())
    world = open_world()
    run = load_runners({case["benchmark"]})[case["benchmark"]]
    # Threads, libraries and buffers that are made at first use are no part of a step.
    run(make_rank_context(world, case["benchmark"], case["params"] | {"image_size": 64}))
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (taken() + case["megabytes"] * 10**6, hard))
    context = make_rank_context(world, case["benchmark"], case["params"])
    run(context)
    said = world.comm.gather(select_events(context))
    if world.rank == 0:
        results.write_text(json.dumps(said))


main()
