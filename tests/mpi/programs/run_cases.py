"""Runs a list of cases on the ranks of one launch and writes what each rank said.

    mpirun -n 6 python -m mpi4py run_cases.py CASES.json RESULTS.json

A case is ``{"benchmark", "ranks", "params", "inject", "sampled"}``; it runs on the first ``ranks``
ranks, and its tiles count as large where ``sampled`` is true. A result is one list of events a
rank, an exception as ``{"event": "exception", "message": ...}``.
"""

from contextlib import ExitStack
from dataclasses import replace
from unittest.mock import patch

from each_case import answer_each, cases

from spbench_core.catalog import BENCHMARKS
from spbench_workers.comm import open_world
from spbench_workers.context import Context
from spbench_workers.halo import sampling
from spbench_workers.session import load_runners


class RecordingChannel:
    def __init__(self, rank):
        self.rank = rank
        self.events = []

    def send(self, event, **fields):
        self.events.append({"event": event, **fields})


def run_case(world, case, runners):
    channel = RecordingChannel(world.rank)
    entry = BENCHMARKS[case["benchmark"]]
    context = Context(
        world,
        channel,
        case=entry.name,
        benchmark=entry.name,
        params=entry.complete(case["params"]),
        inject=case["inject"],
    )
    small = {"MOST_COMPARED": 0.0, "BORDER": 3, "SIDE": 5} if case.get("sampled") else {}
    try:
        with ExitStack() as stack:
            for name, value in small.items():
                stack.enter_context(patch.object(sampling, name, value))
            runners[entry.name](context)
    except Exception as error:
        if world.size > 1:
            raise
        channel.send("exception", message=str(error))
    return channel.events


def main():
    world, runners = open_world(), load_runners({case["benchmark"] for case in cases()})

    def answer_of(case, comm):
        return run_case(replace(world, comm=comm, size=comm.size), case, runners)

    answer_each(lambda case: case["ranks"], answer_of, idle=[])


main()
