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

from benchmarks.planted_faults import NONE, Combination, combinations, params_of
from benchmarks.trial_log import TrialLog
from mpi4py import MPI

from spbench_core.catalog import BENCHMARKS
from spbench_parallel.engine import Engine
from spbench_parallel.errors import CannotRunError, FaultWithoutEffectError
from spbench_parallel.groups import sleep_at_barrier
from spbench_workers.benchmarks.model import fault_injection
from spbench_workers.benchmarks.model import run as benchmark
from spbench_workers.benchmarks.model.regimes import FULL_SIZE
from spbench_workers.channel.base import Channel
from spbench_workers.comm import World, open_world
from spbench_workers.context import Context

Row = dict[str, Any]


class _Channel(Channel):
    """Keeps the names of the checks that failed, and the errors of all checks."""

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
        """Note the outcome of a check."""
        if event != "check":
            return
        self.errors.setdefault(fields["name"], []).append(fields["max_abs_error"])
        if not fields["passed"]:
            self.failed.add(fields["name"])


class _Planting:
    """Plants faults, and keeps the reason if a layout has nothing that the fault could change."""

    def __init__(self) -> None:
        self.refusal: str | None = None

    def __call__(self, context: Context, engine: Engine, *, prefix: str = "") -> None:
        try:
            _PLANT(context, engine, prefix=prefix)
        except FaultWithoutEffectError as error:
            self.refusal = str(error)


_PLANT = fault_injection.inject_fault


def outcome(world: World, combination: Combination) -> Row:
    """Run a combination. All ranks of its case must call it."""
    model, layout, precision, fault = combination
    params = params_of(model, layout, precision)
    assert params is not None, "it is one that the catalog allows"
    channel = _Channel()
    planting = _Planting()
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
        patch.object(fault_injection, "inject_fault", planting),
    ):
        try:
            benchmark.run(context)
        except CannotRunError as error:
            refusal = str(error)
    answers = world.comm.allgather((channel.failed, refusal or planting.refusal))
    failed = sorted({name for failed, _ in answers for name in failed})
    refusals = [why for _, why in answers if why is not None]
    errors = world.comm.allgather(channel.errors)
    row: Row = {"combination": combination, "failed": failed, "errors": errors}
    if fault == NONE:
        return row | {"outcome": "FALSE ALARM" if failed else "passed", "reason": str(failed)}
    if refusals:
        return row | {"outcome": "refused", "reason": refusals[-1]}
    if fault.startswith("full:") and not set(failed) <= set(FULL_SIZE):
        return row | {"outcome": "FALSE ALARM", "reason": f"by {failed}"}
    if failed:
        return row | {"outcome": "noticed", "reason": ", ".join(failed)}
    return row | {"outcome": "NOT NOTICED", "reason": "no check failed"}


def main() -> None:
    """Run the combinations that the log has not."""
    path, models, layouts, formats, seconds = sys.argv[1:]
    world = open_world()
    begun = monotonic()
    log = TrialLog(Path(path)) if world.rank == 0 else None
    known = {tuple(line["combination"]) for line in log.lines} if log is not None else None
    done = world.comm.bcast(known)
    for combination in combinations(models, layouts, formats):
        if combination in done:
            continue
        if world.comm.bcast(monotonic() - begun > float(seconds)):
            return
        params = params_of(*combination[:3])
        assert params is not None, "it is one that the catalog allows"
        ranks = BENCHMARKS[f"model.{combination[0]}"].ranks(params).exact
        assert ranks is not None, "a model's layout says how many ranks it takes"
        takes_part = world.rank < ranks
        part = world.comm.Split(0 if takes_part else MPI.UNDEFINED)
        row = None
        if takes_part:
            assert isinstance(part, MPI.Intracomm), "it is split off one"
            row = outcome(replace(world, comm=part, size=part.size), combination)
        sleep_at_barrier(world.comm)
        if takes_part:
            part.Free()
        if log is not None:
            assert row is not None, "rank 0 takes part in each case"
            log.add(row)
            print(f"{' '.join(combination)}: {row['outcome']}", flush=True)


if __name__ == "__main__":
    main()
