"""Runs a list of cases on the ranks of one launch and writes what each rank said.

    mpirun -n 6 python -m mpi4py run_cases.py CASES.json RESULTS.json

A case is ``{"benchmark", "ranks", "params", "inject", "sampled"}``; it runs on the first ``ranks``
ranks, and its tiles count as large where ``sampled`` is true. A result is one list of events a
rank, an exception as ``{"event": "exception", "message": ...}``.
"""

from contextlib import ExitStack
from dataclasses import replace
from unittest.mock import patch

from spbench_workers.benchmarks.halo import sampling
from spbench_workers.comm import open_world
from spbench_workers.session import load_runners
from support.rank_cases import read_cases, run_each_case
from support.recording_context import make_rank_context, select_events


def run_case(world, case, runners):
    context = make_rank_context(world, case["benchmark"], case["params"], case["inject"])
    small = (
        {"MAX_COMPARED_FLOP": 0.0, "MIN_BORDER": 3, "BOX_SIDE": 5} if case.get("sampled") else {}
    )
    try:
        with ExitStack() as stack:
            for name, value in small.items():
                stack.enter_context(patch.object(sampling, name, value))
            runners[case["benchmark"]](context)
    except Exception as error:
        if world.size > 1:
            raise
        return [*select_events(context), {"event": "exception", "message": str(error)}]
    return select_events(context)


def main():
    world = open_world()
    runners = load_runners({case["benchmark"] for case in read_cases()})

    def answer_of(case, comm):
        return run_case(replace(world, comm=comm, size=comm.size), case, runners)

    run_each_case(lambda case: case["ranks"], answer_of, idle=[])


main()
