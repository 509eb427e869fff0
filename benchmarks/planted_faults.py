"""Plant every fault of the model benchmarks, in every layout and format.

    python -m benchmarks.planted_faults [--models M,...] [--layouts L,...] [--formats F,...]

Counts the detected faults. Each combination that the catalog allows is run at a tiny size on up to
5 ranks, with only the part that must notice the fault: the comparison with one process, or the step
at full size. Each layout also runs without a fault, and must pass.

Each outcome is printed and kept in --log. If you interrupt the command, run it again to continue;
--again deletes earlier outcomes. The command exits with 1 if a fault was neither noticed nor
refused, if a check failed without a fault, or if a combination is left.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.format_check import format_table
from benchmarks.goals import make_argument_parser
from benchmarks.mpi_ranks import run_ranks
from benchmarks.trial_log import Line, TrialLog

from spbench_core.catalog import BENCHMARKS

OUTCOMES = ("noticed", "refused", "NOT NOTICED", "passed", "FALSE ALARM")
WRONG = ("NOT NOTICED", "FALSE ALARM")
RANKS = 5
NONE = "none"
_SHORT = {"warmup": 0, "iterations": 1, "num_classes": 5, "batch_size": 4, "baseline": False}
MODELS: Mapping[str, dict[str, Any]] = {
    "resnet": {"version": 1, "depth": 8, "image_size": 32, **_SHORT},
    "amoebanet": {"num_layers": 3, "num_filters": 16, "image_size": 64, **_SHORT},
    "network": {
        "network": "spbench_parallel.models.imported.example:UNet",
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
"""Model, layout, format and fault."""


def main() -> int:
    """Run the combinations, and print the outcomes by layout and format."""
    parser = make_argument_parser(__doc__)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--layouts", default=",".join(LAYOUTS))
    parser.add_argument("--formats", default=",".join(FORMATS))
    parser.add_argument("--seconds", type=float, default=3600.0, help="begin nothing after these")
    parser.add_argument("--log", type=Path, default=Path(".spbench/planted_faults.jsonl"))
    parser.add_argument("--again", action="store_true", help="delete earlier outcomes")
    options = parser.parse_args()
    selection = (options.models, options.layouts, options.formats)
    for names, all_names in zip(selection, (MODELS, LAYOUTS, FORMATS), strict=True):
        if unknown := [name for name in names.split(",") if name not in all_names]:
            parser.error(f"unknown {unknown[0]}; choose from {', '.join(all_names)}")
    if options.again:
        options.log.unlink(missing_ok=True)
    arguments = (options.log, *selection, options.seconds)
    if code := run_ranks("benchmarks.planted_faults_ranks", RANKS, *arguments):
        return code
    rows = TrialLog(options.log).lines
    print(format_table([["model", "layout", "format", *OUTCOMES], *_count_outcomes(rows)]))
    wrong = [row for row in rows if row["outcome"] in WRONG]
    for row in wrong:
        print(f"{row['outcome']}: {' '.join(row['combination'])}: {row['reason']}")
    left = set(list_combinations(*selection)) - {tuple(row["combination"]) for row in rows}
    if left:
        print(f"{len(left)} combinations are left: run the command again")
    return int(bool(wrong or left or not rows))


def _count_outcomes(rows: list[Line]) -> list[list[str]]:
    counts: dict[tuple[str, ...], Counter[str]] = {}
    for row in rows:
        counts.setdefault(tuple(row["combination"][:3]), Counter())[row["outcome"]] += 1
    return [
        [*setting, *(str(outcomes[name]) for name in OUTCOMES)]
        for setting, outcomes in counts.items()
    ]


def complete_params(model: str, layout: str, precision: str) -> dict[str, Any] | None:
    """Return the complete parameters of a case; None if the catalog rejects them."""
    params = MODELS[model] | LAYOUTS[layout] | {"precision": precision}
    if params["scheme"] != "sequential":
        params["balance"] = "estimated"
    try:
        return BENCHMARKS[f"model.{model}"].complete(params)
    except ExceptionGroup:
        return None


def list_combinations(models: str, layouts: str, formats: str) -> Iterator[Combination]:
    """Yield the combinations that the catalog allows, first without a fault."""
    for precision in formats.split(","):
        for model in models.split(","):
            for layout in layouts.split(","):
                params = complete_params(model, layout, precision)
                if params is None:
                    continue
                for fault in (NONE, *BENCHMARKS[f"model.{model}"].list_faults(params)):
                    yield model, layout, precision, fault


if __name__ == "__main__":
    sys.exit(main())
