r"""The ranks of `benchmarks.planted_faults`: one combination after another.

    mpiexec -n 5 python -m mpi4py -m benchmarks.planted_faults_ranks \
        LOG MODELS LAYOUTS FORMATS SECONDS

Rank 0 adds a line to LOG for each combination of model, layout, format and fault.
"""

from __future__ import annotations

import json
import sys
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any
from unittest.mock import patch

from mpi4py import MPI

from spbench_core.catalog import BENCHMARKS
from spbench_core.catalog.model.entries import FULL_SIZE
from spbench_workers.channel import Channel
from spbench_workers.comm import World, open_world, rest
from spbench_workers.context import Context
from spbench_workers.errors import CannotRunError, NothingToSpoilError
from spbench_workers.parallel import benchmark
from spbench_workers.parallel.engine import Engine
from spbench_workers.parallel.validation import fault_injection

RANKS = 5
NONE = "none"
_SHORT = {"warmup": 0, "iterations": 1, "num_classes": 5, "batch_size": 4, "baseline": False}
MODELS: Mapping[str, dict[str, Any]] = {
    "resnet": {"version": 1, "depth": 8, "image_size": 32, **_SHORT},
    "amoebanet": {"num_layers": 3, "num_filters": 16, "image_size": 64, **_SHORT},
    "network": {
        "network": "spbench_workers.models.imported.example:UNet",
        "network_args": {"width": 8},
        "image_size": 32,
        **{key: value for key, value in _SHORT.items() if key != "num_classes"},
    },
}
LAYOUTS: Mapping[str, dict[str, Any]] = {
    "sequential": {"scheme": "sequential", "parts": 2},
    "lp": {"scheme": "lp", "parts": 2},
    "lp-gpipe": {"scheme": "lp", "parts": 2, "schedule": "gpipe"},
    "lp-zb-h1": {"scheme": "lp", "parts": 2, "schedule": "zb-h1"},
    "lp-interleaved": {"scheme": "lp", "parts": 2, "schedule": "interleaved", "split_size": 4},
    "lp-local-dp": {"scheme": "lp", "local_DP": 2},
    "lp-replicas": {"scheme": "lp", "replicas": 2},
    "lp-sync-batchnorm": {"scheme": "lp", "replicas": 2, "sync_batchnorm": "replicas"},
    "lp-recompute": {"scheme": "lp", "recompute": "stage"},
    "gems": {"scheme": "gems", "parts": 2},
    "gems-one-way": {"scheme": "gems", "enable_master_comm_opt": True},
    "sp": {"scheme": "sp", "split_size": 1, "grid": "1x2"},
    "sp-lp": {"scheme": "sp", "grid": "1x2"},
    "sp-d2": {"scheme": "sp", "grid": "1x2", "halo_D2": True},
    "gems-sp": {"scheme": "gems_sp", "split_size": 3, "grid": "1x2"},
    "lp-inference": {"scheme": "lp", "enable_evaluation": True},
    "sp-inference": {"scheme": "sp", "split_size": 1, "grid": "1x2", "enable_evaluation": True},
}
FORMATS = ("fp32", "bf16", "fp16", "fp64")
Combination = tuple[str, str, str, str]
Row = dict[str, Any]


class _Channel(Channel):
    """Keeps the checks of a case."""

    rank = None

    def __init__(self) -> None:
        self.failed: set[str] = set()

    def receive_cases(self) -> list[dict[str, Any]]:
        """Return no cases: there is no console."""
        return []

    def close(self) -> None:
        """Do nothing: there is no connection."""

    def send(self, event: str, **fields: Any) -> None:
        """Note a check that failed."""
        if event == "check" and not fields["passed"]:
            self.failed.add(fields["name"])


class _Planting:
    """Plants faults, and takes a refusal for a fault that is not there."""

    def __init__(self) -> None:
        self.refusal: str | None = None

    def __call__(self, context: Context, engine: Engine, *, prefix: str = "") -> None:
        try:
            _PLANT(context, engine, prefix=prefix)
        except NothingToSpoilError as error:
            self.refusal = str(error)


_PLANT = fault_injection.plant


def params_of(model: str, layout: str, precision: str) -> dict[str, Any] | None:
    """Return the complete parameters of a case; None if the catalog refuses them."""
    given = MODELS[model] | LAYOUTS[layout] | {"precision": precision}
    if given["scheme"] != "sequential":
        given["balance"] = "estimated"
    try:
        return BENCHMARKS[f"model.{model}"].complete(given)
    except ExceptionGroup:
        return None


def combinations(models: str, layouts: str, formats: str) -> Iterator[Combination]:
    """Yield the combinations that the catalog allows, first without a fault."""
    for precision in formats.split(","):
        for model in models.split(","):
            for layout in layouts.split(","):
                params = params_of(model, layout, precision)
                faults = BENCHMARKS[f"model.{model}"].faults_of(params) if params else ()
                for fault in (NONE, *faults) if params else ():
                    yield model, layout, precision, fault


def outcome(world: World, combination: Combination) -> Row:
    """Run a combination. All ranks of its case must call it."""
    model, layout, precision, fault = combination
    params = params_of(model, layout, precision)
    assert params is not None, "it is one that the catalog allows"
    channel, planting = _Channel(), _Planting()
    context = Context(
        world,
        channel,
        case="case",
        benchmark=f"model.{model}",
        params=params,
        inject=None if fault == NONE else fault,
    )
    refusal = None
    skipped: dict[str, Any] = {"_time": lambda *_: (array("d", [1.0]), 0.0)}
    if fault.startswith("full:"):
        skipped["_validate"] = lambda *_: None
    elif fault != NONE:
        skipped["_check_full_size"] = lambda *_: None
    with patch.multiple(benchmark, **skipped), patch.object(fault_injection, "plant", planting):
        try:
            benchmark.run(context)
        except CannotRunError as error:
            refusal = str(error)
    found = world.comm.allgather((channel.failed, refusal or planting.refusal))
    failed = sorted({name for failed, _ in found for name in failed})
    refusals = [why for _, why in found if why is not None]
    row: Row = {"combination": combination, "failed": failed}
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
    log, models, layouts, formats, seconds = sys.argv[1:]
    world, begun = open_world(), monotonic()
    lines = Path(log).read_text().splitlines() if Path(log).exists() else []
    done = world.comm.bcast({tuple(json.loads(line)["combination"]) for line in lines})
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
        rest(world.comm)
        if takes_part:
            part.Free()
        if world.rank == 0:
            with Path(log).open("a") as file:
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
