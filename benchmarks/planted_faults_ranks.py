r"""The ranks of `benchmarks.planted_faults`: one combination after another.

    mpiexec -n 5 python -m mpi4py -m benchmarks.planted_faults_ranks \
        LOG MODELS LAYOUTS FORMATS SECONDS

Rank 0 prints and adds to LOG the outcome of each combination of model, layout, format and fault,
with the errors of each rank's checks.
"""

from __future__ import annotations

import sys
from array import array
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any
from unittest.mock import patch

from benchmarks.planted_faults import NONE, Combination, complete_params, list_combinations
from benchmarks.trial_log import TrialLog
from mpi4py import MPI

from spbench_core.catalog import BENCHMARKS
from spbench_parallel.engine import Engine
from spbench_parallel.errors import CannotRunError, FaultWithoutEffectError
from spbench_parallel.groups import sleep_at_barrier
from spbench_workers.benchmarks.model import fault_injection
from spbench_workers.benchmarks.model import run as benchmark
from spbench_workers.benchmarks.model.regimes import FULL_SIZE_CHECKS
from spbench_workers.channel.base import Channel
from spbench_workers.comm import World, open_world
from spbench_workers.context import Context

Row = dict[str, Any]


class _CheckChannel(Channel):
    """A channel that stores the failed checks and the errors of all checks."""

    rank = None

    def __init__(self) -> None:
        self.failed: set[str] = set()
        self.errors: dict[str, list[float | None]] = {}

    def receive_cases(self) -> list[dict[str, Any]]:
        """Return no cases: there is no console."""
        return []

    def close(self) -> None:
        """Do nothing: there is no connection."""

    def send(self, event: str, **fields: Any) -> None:
        """Store the result of a check."""
        if event != "check":
            return
        self.errors.setdefault(fields["name"], []).append(fields["max_abs_error"])
        if not fields["passed"]:
            self.failed.add(fields["name"])


class _FaultPlanter:
    """Plants faults, and stores the reason if a fault has no effect in a layout."""

    def __init__(self) -> None:
        self.refusal: str | None = None

    def __call__(self, context: Context, engine: Engine, *, prefix: str = "") -> None:
        try:
            _INJECT_FAULT(context, engine, prefix=prefix)
        except FaultWithoutEffectError as error:
            self.refusal = str(error)


_INJECT_FAULT = fault_injection.inject_fault


def run_combination(world: World, combination: Combination) -> Row:
    """Run a combination. All ranks of its case must call it."""
    model, layout, precision, fault = combination
    params = complete_params(model, layout, precision)
    assert params is not None, "it is one that the catalog allows"
    channel = _CheckChannel()
    planter = _FaultPlanter()
    context = Context(
        world,
        channel,
        case="case",
        benchmark=f"model.{model}",
        params=params,
        inject=None if fault == NONE else fault,
    )
    refusal = None
    skipped: dict[str, Any] = {"_time_steps": lambda *_: (array("d", [1.0]), 0.0)}
    if fault.startswith("full:"):
        skipped["_validate"] = lambda *_: None
    elif fault != NONE:
        skipped["_check_full_size"] = lambda *_: None
    with (
        patch.multiple(benchmark, **skipped),
        patch.object(fault_injection, "inject_fault", planter),
    ):
        try:
            benchmark.run(context)
        except CannotRunError as error:
            refusal = str(error)
    answers = world.comm.allgather((channel.failed, refusal or planter.refusal))
    failed = sorted({name for failed, _ in answers for name in failed})
    refusals = [reason for _, reason in answers if reason is not None]
    errors = world.comm.allgather(channel.errors)
    outcome, reason = _judge_outcome(fault, failed, refusals)
    return {
        "combination": combination,
        "failed": failed,
        "errors": errors,
        "outcome": outcome,
        "reason": reason,
    }


def _judge_outcome(fault: str, failed: list[str], refusals: list[str]) -> tuple[str, str]:
    """Return the outcome and its reason from the failed checks and the refusals."""
    if fault == NONE:
        return "FALSE ALARM" if failed else "passed", str(failed)
    if refusals:
        return "refused", refusals[-1]
    if fault.startswith("full:") and not set(failed) <= set(FULL_SIZE_CHECKS):
        return "FALSE ALARM", f"by {failed}"
    if failed:
        return "noticed", ", ".join(failed)
    return "NOT NOTICED", "no check failed"


def main() -> None:
    """Run the combinations that are missing from the log."""
    path, models, layouts, formats, seconds = sys.argv[1:]
    world = open_world()
    started = monotonic()
    log = TrialLog(Path(path)) if world.rank == 0 else None
    combinations_of_log = (
        {tuple(line["combination"]) for line in log.lines} if log is not None else None
    )
    done = world.comm.bcast(combinations_of_log)
    for combination in list_combinations(models, layouts, formats):
        if combination in done:
            continue
        if world.comm.bcast(monotonic() - started > float(seconds)):
            return
        params = complete_params(*combination[:3])
        assert params is not None, "it is one that the catalog allows"
        ranks = BENCHMARKS[f"model.{combination[0]}"].ranks(params).exact
        assert ranks is not None, "a model's layout says how many ranks it takes"
        is_member = world.rank < ranks
        part = world.comm.Split(0 if is_member else MPI.UNDEFINED)
        row = None
        if is_member:
            assert isinstance(part, MPI.Intracomm), "it is split off one"
            row = run_combination(replace(world, comm=part, size=part.size), combination)
        sleep_at_barrier(world.comm)
        if is_member:
            part.Free()
        if log is not None:
            assert row is not None, "rank 0 takes part in each case"
            log.add(row)
            print(f"{' '.join(combination)}: {row['outcome']}", flush=True)


if __name__ == "__main__":
    main()
