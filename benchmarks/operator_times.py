"""The times of a training step by operator, in several layouts.

    python -m benchmarks.operator_times [--depth 110] [--image-size 256] [--batch 2] [--steps 3]

The layouts are one process, two tiles, two stages and both. For each layout of a ResNet v2 with one
thread per rank, prints the time of a plain step, and the ms of each kind of operator in a timed
step. These are means over the ranks that share the same work. Plain and timed steps are separate,
because timing each operator makes a step longer.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from statistics import mean
from typing import Any

from benchmarks.goals import make_argument_parser
from benchmarks.mpi_ranks import ENVIRONMENT, find_mpiexec

from spbench.report.text_tables import align_columns

SINGLE_PROCESS = "one process"
LAYOUTS: dict[str, tuple[int, dict[str, str]]] = {
    SINGLE_PROCESS: (1, {"scheme": "sequential"}),
    "2 tiles": (2, {"scheme": "sp", "split_size": "1", "grid": "1x2"}),
    "2 stages": (2, {"scheme": "lp", "split_size": "2"}),
    "2 tiles + 1 stage": (3, {"scheme": "sp", "split_size": "2", "grid": "1x2"}),
}
"""Ranks and parameters."""


def main() -> int:
    """Run each layout, and print the table."""
    parser = make_argument_parser(__doc__)
    parser.add_argument("--depth", type=int, default=110)
    parser.add_argument("--image-size", type=int, default=256)
    parser.add_argument("--batch", type=int, default=2, help="images; stages take them one by one")
    parser.add_argument("--steps", type=int, default=3, help="plain ones, and as many timed ones")
    parser.add_argument("--precision", default="fp32", help="fp32 or bf16")
    parser.add_argument("--memory-format", default="contiguous", help="or channels_last")
    parser.add_argument("--layouts", default=",".join(LAYOUTS), help="some of them, with commas")
    options = parser.parse_args()
    layouts = options.layouts.split(",")
    if unknown := [name for name in layouts if name not in LAYOUTS]:
        parser.error(f"unknown layout {unknown[0]!r}; choose from {', '.join(LAYOUTS)}")
    mpiexec = find_mpiexec()
    if mpiexec is None:
        return 3
    shared = {"depth": options.depth, "image_size": options.image_size, "batch_size": options.batch}
    shared |= {"precision": options.precision, "memory_format": options.memory_format}
    columns: dict[str, dict[str, float]] = {}
    for name in layouts:
        ranks, params = LAYOUTS[name]
        if params["scheme"] != "sequential":
            params = params | {"parts": str(options.batch) if params["scheme"] == "lp" else "1"}
        columns[name] = _average(_run_layout(mpiexec, ranks, options.steps, {**shared, **params}))
        print(f"{name}: {columns[name]['step']:.2f} s a step", file=sys.stderr, flush=True)
    kinds = next(iter(columns.values()))
    rows = [("ms a rank", *columns)]
    rows += [
        (kind, *(f"{1000 * seconds[kind]:.0f}" for seconds in columns.values())) for kind in kinds
    ]
    print("\n".join(align_columns(rows, set(range(1, len(columns) + 1)))))
    return 0


def _run_layout(
    mpiexec: str, ranks: int, steps: int, params: dict[str, Any]
) -> list[dict[str, float]]:
    """Return the seconds of each rank, by kind."""
    binding = ["--bind-to", "core"] if ranks <= (os.cpu_count() or 1) else ["--oversubscribe"]
    program = [sys.executable, "-m", "mpi4py", "-m", "benchmarks.operator_times_ranks", str(steps)]
    argv = [mpiexec, *binding, "-n", str(ranks), *program]
    argv += [f"{name}={value}" for name, value in params.items()]
    env = os.environ | ENVIRONMENT
    completed = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    if completed.returncode:
        sys.exit(
            f"operator_times: {' '.join(argv)}: exit {completed.returncode}\n{completed.stderr}"
        )
    rows: list[dict[str, float]] = json.loads(completed.stdout.splitlines()[-1])
    return rows


def _average(rows: list[dict[str, float]]) -> dict[str, float]:
    return {kind: mean(row[kind] for row in rows) for kind in rows[0]}


if __name__ == "__main__":
    sys.exit(main())
