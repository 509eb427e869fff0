"""Runs cases on the ranks of one launch, and writes the events of each rank.

    mpirun -n 6 python -m mpi4py run_cases.py CASES.json RESULTS.json

A case is ``{"benchmark", "ranks", "params", "inject", "sampled"}``. It runs on the first ``ranks``
ranks. If ``sampled`` is true, its tiles count as large. A result has a list of events per rank; an
exception is ``{"event": "exception", "message": ...}``.
"""

from dataclasses import replace

from spbench_workers.benchmarks.halo.sampling import SamplingLimits
from spbench_workers.comm import open_world
from spbench_workers.session import load_runners
from support.rank_cases import read_cases, run_each_case
from support.recording_context import make_rank_context, select_events

SMALL_BOXES = SamplingLimits(max_compared_flop=0.0, min_border_pixels=3, box_side_pixels=5)


def run_case(world, case, runners):
    context = make_rank_context(world, case["benchmark"], case["params"], case["inject"])
    kwargs = {"sampling_limits": SMALL_BOXES} if case.get("sampled") else {}
    try:
        runners[case["benchmark"]](context, **kwargs)
    except Exception as error:
        if world.size > 1:
            raise
        return [*select_events(context), {"event": "exception", "message": str(error)}]
    return select_events(context)


def main():
    world = open_world()
    runners = load_runners({case["benchmark"] for case in read_cases()})

    def run_case_on_ranks(case, comm):
        return run_case(replace(world, comm=comm, size=comm.size), case, runners)

    run_each_case(lambda case: case["ranks"], run_case_on_ranks, idle=[])


main()
