"""Runs push and pull over made-up lists of arrays, and writes what each rank said.

    mpirun -n 6 python -m mpi4py push_pull_all.py CASES.json RESULTS.json

A case is ``{"ranks", "elements", "params", "inject"}``; it runs on the first ``ranks`` ranks, and
``elements`` takes the place of the network's arrays. A result is one list of events a rank.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path
from unittest import mock

from spbench_core.catalog import BENCHMARKS
from spbench_workers.comm import open_world, rest
from spbench_workers.context import Context
from spbench_workers.kvstore import case as cases_of_kvstore
from spbench_workers.session import load_runners

NAME = "kvstore.push_pull"


class RecordingChannel:
    def __init__(self, rank):
        self.rank = rank
        self.events = []

    def send(self, event, **fields):
        if event in ("check", "metric", "samples", "log"):
            self.events.append({"event": event, **fields})


def run_case(world, case, runner):
    channel = RecordingChannel(world.rank)
    entry = BENCHMARKS[NAME]
    params = entry.complete({"network": "lenet", **case["params"]})
    context = Context(
        world, channel, case=NAME, benchmark=NAME, params=params, inject=case["inject"]
    )
    elements = tuple(case["elements"])
    with mock.patch.object(cases_of_kvstore, "_elements", return_value=elements):
        runner(context)
    return channel.events


def main():
    world = open_world()
    runner = load_runners([NAME])[NAME]
    results = []
    for case in json.loads(Path(sys.argv[1]).read_text()):
        takes_part = world.rank < case["ranks"]
        comm = world.comm.Split(0 if takes_part else 1, world.rank)
        events = []
        if takes_part:
            events = run_case(replace(world, comm=comm, size=comm.size), case, runner)
        rest(world.comm)
        comm.Free()
        results.append(world.comm.gather(events))
    if world.rank == 0:
        Path(sys.argv[2]).write_text(json.dumps(results))


main()
