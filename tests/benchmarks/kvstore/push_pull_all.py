"""Run push and pull over synthetic arrays, and write the events of each rank.

    mpirun -n 6 python -m mpi4py push_pull_all.py CASES.json RESULTS.json

A case is ``{"ranks", "elements", "params", "inject"}``. It runs on the first ``ranks`` ranks, and
``elements`` replaces the network's arrays. A result is one list of events per rank.
"""

from dataclasses import replace
from unittest import mock

from spbench_workers.benchmarks.kvstore import case as cases_of_kvstore
from spbench_workers.comm import open_world
from spbench_workers.session import load_runners
from support.rank_cases import run_each_case
from support.recording_context import make_rank_context, select_events

NAME = "kvstore.push_pull"


def run_case(world, case, runner):
    context = make_rank_context(world, NAME, {"network": "lenet", **case["params"]}, case["inject"])
    elements = tuple(case["elements"])
    with mock.patch.object(cases_of_kvstore, "_count_elements", return_value=elements):
        runner(context)
    return select_events(context, "check", "metric", "samples", "log", "choice")


def main():
    world = open_world()
    runner = load_runners([NAME])[NAME]

    def run_case_on_ranks(case, comm):
        return run_case(replace(world, comm=comm, size=comm.size), case, runner)

    run_each_case(lambda case: case["ranks"], run_case_on_ranks, idle=[])


main()
