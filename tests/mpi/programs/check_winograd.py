"""Checks steps at full size on ranks that convolve by Winograd's algorithm, as a GPU may.

    mpirun -n 2 python -m mpi4py check_winograd.py CASES.json RESULTS.json

The cases are those of `support.winograd_steps`. Of the windows only those are checked that the
algorithm computes, so that no other window notices a fault in their place. A result is a list with
one dictionary for each rank:

- ``forward``, ``backward``: the number of convolutions that were computed by the algorithm
- ``errors``: by check the largest error over its bound, infinite if it is not a number
"""

import math
from dataclasses import replace
from functools import partial
from unittest.mock import patch

from spbench_parallel.full_size import check, windows
from spbench_parallel.full_size.windows import WindowCheck
from spbench_parallel.full_size.winograd import fits_winograd
from spbench_workers.benchmarks.model import fault_injection
from spbench_workers.benchmarks.model.case import build_case
from spbench_workers.benchmarks.model.regime_checks import check_full_size
from spbench_workers.comm import open_world
from standins.winograd import WinogradConvolutions
from support.rank_cases import run_each_case
from support.recording_context import find_events, make_rank_context


class WinogradWindowCheck(WindowCheck):
    """Checks a window if the algorithm computes it."""

    def check(self, call):
        if fits_winograd(self._window.axes):
            super().check(call)


def check_step(world, case):
    """Take the step of a case; return what this rank has of its result."""
    context = make_rank_context(world, case["benchmark"], case["params"], case["inject"])
    model_case = build_case(context)
    plan = check.full_size_plan(model_case.make_small_plan(context.params["batch_size"]))
    plant = partial(fault_injection.inject_fault, prefix="full:")
    with (
        patch.object(windows, "may_use_winograd", lambda *_: case["on_gpu"]),
        patch.object(check, "WindowCheck", WinogradWindowCheck),
        WinogradConvolutions() as convolutions,
    ):
        check_full_size(context, plan, model_case.training, plant)
    fault_injection.remove_faults()
    errors = {event["name"]: event["max_abs_error"] for event in find_events(context, "check")}
    return {
        "forward": convolutions.forward,
        "backward": convolutions.backward,
        "errors": {name: math.inf if error is None else error for name, error in errors.items()},
    }


def main():
    """Answer all cases."""
    world = open_world()

    def answer_of(case, comm):
        return check_step(replace(world, comm=comm, rank=comm.rank, size=comm.size), case)

    run_each_case(lambda case: case["ranks"], answer_of)


main()
