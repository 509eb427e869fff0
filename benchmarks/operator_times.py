"""The times of a training step by operator: on one process, two tiles, two stages and both.

    python -m benchmarks.operator_times [--depth 110] [--image-size 256] [--batch 2] [--steps 3]

Prints, for each layout of a ResNet v2 with one thread a rank, the time of a plain step, and of a
timed one the ms of each kind of operator, as the mean over the ranks that share the same work. The
steps are timed apart from the plain ones: a step in which each operator is timed takes longer.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from statistics import mean
from typing import Any

from benchmarks.goals import argument_parser
from benchmarks.mpi_ranks import ENVIRONMENT, find_mpiexec

from spbench.report.text_tables import align_columns

ALONE = "one process"
LAYOUTS: dict[str, tuple[int, dict[str, str]]] = {
    ALONE: (1, {"scheme": "sequential"}),
    "2 tiles": (2, {"scheme": "sp", "split_size": "1", "grid": "1x2"}),
    "2 stages": (2, {"scheme": "lp", "split_size": "2"}),
    "2 tiles + 1 stage": (3, {"scheme": "sp", "split_size": "2", "grid": "1x2"}),
}
"""Ranks and parameters."""


def main() -> int:
    """Run each layout, and print the table."""
    parser = argument_parser(__doc__)
    parser.add_argument("--depth", type=int, default=110)
    parser.add_argument("--image-size", type=int, default=256)
    parser.add_argument("--batch", type=int, default=2, help="images; stages take them one by one")
    parser.add_argument("--steps", type=int, default=3, help="plain ones, and as many timed ones")
    parser.add_argument("--precision", default="fp32", help="fp32 or bf16")
    parser.add_argument("--memory-format", default="contiguous", help="or channels_last")
    parser.add_argument("--layouts", default=",".join(LAYOUTS), help="some of them, with commas")
    words = parser.parse_args()
    mpiexec = find_mpiexec()
    if mpiexec is None:
        return 3
    given = {"depth": words.depth, "image_size": words.image_size, "batch_size": words.batch}
    given |= {"precision": words.precision, "memory_format": words.memory_format}
    columns: dict[str, dict[str, float]] = {}
    for name in words.layouts.split(","):
        ranks, params = LAYOUTS[name]
        if params["scheme"] != "sequential":
            params = params | {"parts": str(words.batch) if params["scheme"] == "lp" else "1"}
        columns[name] = _means(_run(mpiexec, ranks, words.steps, {**given, **params}))
        print(f"{name}: {columns[name]['step']:.2f} s a step", file=sys.stderr, flush=True)
    kinds = next(iter(columns.values()))
    rows = [("ms a rank", *columns)]
    rows += [(kind, *(f"{1000 * of[kind]:.0f}" for of in columns.values())) for kind in kinds]
    print("\n".join(align_columns(rows, set(range(1, len(columns) + 1)))))
    return 0


def _run(mpiexec: str, ranks: int, steps: int, params: dict[str, Any]) -> list[dict[str, float]]:
    """Return the seconds of each rank, by kind."""
    bind = ["--bind-to", "core"] if ranks <= (os.cpu_count() or 1) else ["--oversubscribe"]
    program = [sys.executable, "-m", "mpi4py", "-m", "benchmarks.operator_times_ranks", str(steps)]
    argv = [mpiexec, *bind, "-n", str(ranks), *program]
    argv += [f"{name}={value}" for name, value in params.items()]
    env = os.environ | ENVIRONMENT
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"operator_times: {' '.join(argv)}: exit {done.returncode}\n{done.stderr}")
    rows: list[dict[str, float]] = json.loads(done.stdout.splitlines()[-1])
    return rows


def _means(rows: list[dict[str, float]]) -> dict[str, float]:
    return {kind: mean(row[kind] for row in rows) for kind in rows[0]}


if __name__ == "__main__":
    sys.exit(main())
