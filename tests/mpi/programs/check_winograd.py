"""Checks full-size steps on ranks that use Winograd convolutions, like a GPU.

    mpirun -n 2 python -m mpi4py check_winograd.py CASES.json RESULTS.json

The cases are those of `support.winograd_steps`. Only windows that the algorithm computes are
checked, so that no other window detects a fault. A result has a dictionary per rank:

- ``forward``, ``backward``: the number of convolutions with the algorithm
- ``errors``: the largest error relative to its bound by check, infinite if it is NaN
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
    """Run the step of a case, and return the result of this rank."""
    context = make_rank_context(world, case["benchmark"], case["params"], case["inject"])
    model_case = build_case(context)
    plan = check.full_size_plan(model_case.make_small_plan(context.params["batch_size"]))
    inject_fault = partial(fault_injection.inject_fault, prefix="full:")
    with (
        patch.object(windows, "may_use_winograd", lambda *_: case["on_gpu"]),
        patch.object(check, "WindowCheck", WinogradWindowCheck),
        WinogradConvolutions() as convolutions,
    ):
        check_full_size(context, plan, model_case.training, inject_fault)
    fault_injection.remove_faults()
    errors = {event["name"]: event["max_abs_error"] for event in find_events(context, "check")}
    return {
        "forward": convolutions.forward,
        "backward": convolutions.backward,
        "errors": {name: math.inf if error is None else error for name, error in errors.items()},
    }


def main():
    """Run all cases."""
    world = open_world()

    def run_case(case, comm):
        return check_step(replace(world, comm=comm, rank=comm.rank, size=comm.size), case)

    run_each_case(lambda case: case["ranks"], run_case)


main()
