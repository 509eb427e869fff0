"""Runs push and pull over made-up lists of arrays, and writes what each rank said.

    mpirun -n 6 python -m mpi4py push_pull_all.py CASES.json RESULTS.json

A case is ``{"ranks", "elements", "params", "inject"}``; it runs on the first ``ranks`` ranks, and
``elements`` takes the place of the network's arrays. A result is one list of events a rank.
"""

from dataclasses import replace
from unittest import mock

from mpi.programs.each_case import answer_each
from spbench_workers.benchmarks.kvstore import case as cases_of_kvstore
from spbench_workers.comm import open_world
from spbench_workers.session import load_runners
from unit.recorded import context_on, events_of

NAME = "kvstore.push_pull"


def run_case(world, case, runner):
    context = context_on(world, NAME, {"network": "lenet", **case["params"]}, case["inject"])
    elements = tuple(case["elements"])
    with mock.patch.object(cases_of_kvstore, "_count_elements", return_value=elements):
        runner(context)
    return events_of(context, "check", "metric", "samples", "log", "choice")


def main():
    world = open_world()
    runner = load_runners([NAME])[NAME]

    def answer_of(case, comm):
        return run_case(replace(world, comm=comm, size=comm.size), case, runner)

    answer_each(lambda case: case["ranks"], answer_of, idle=[])


main()
