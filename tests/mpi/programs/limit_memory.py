"""Runs a case on ranks with limited memory.

    mpirun -n 4 python -m mpi4py limit_memory.py CASE.json RESULTS.json

The case is one of ``run_cases.py``, with the ``megabytes`` that each rank may allocate after all
imports. The result has a list of events per rank.
"""

import json
import resource
import sys
from pathlib import Path

from spbench_workers.comm import open_world
from spbench_workers.session import load_runners
from support.recording_context import make_rank_context, select_events


def read_data_bytes():
    """Return the bytes that count against the limit."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith("VmData:")]
    return 1024 * int(line.split()[1])


def main():
    case_path, result_path = map(Path, sys.argv[1:])
    case = json.loads(case_path.read_text())
    world = open_world()
    run = load_runners({case["benchmark"]})[case["benchmark"]]
    # A small step first, because threads, libraries and buffers are created at their first use.
    run(make_rank_context(world, case["benchmark"], case["params"] | {"image_size": 64}))
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (read_data_bytes() + case["megabytes"] * 10**6, hard))
    context = make_rank_context(world, case["benchmark"], case["params"])
    run(context)
    rank_events = world.comm.gather(select_events(context))
    if world.rank == 0:
        result_path.write_text(json.dumps(rank_events))


main()
