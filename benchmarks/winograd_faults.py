"""Faults in windows over tiles, on ranks that convolve by Winograd's algorithm as a GPU may.

    python -m benchmarks.winograd_faults [--seeds N]

Each fault at full size that changes a window is planted with N seeds, and as many steps are right.
The table shows how often each fault is found, with its smallest error over the bound, and how many
right steps pass, with their largest error. The last row has the bounds of the CPU, which right
steps exceed. Takes about 15 minutes for 20 seeds on two cores. Ends with 1 if a fault is missed or
a right step fails.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from benchmarks.goals import argument_parser

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from mpi.winograd_steps import (
    FAULTS,
    check_winograd_steps,
    largest_error,
    winograd_step,
)

CHECKS = ("operators", "scales")


def main() -> int:
    """Take the steps and print the table."""
    parser = argument_parser(__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    seeds = range(parser.parse_args().seeds)
    complete = True
    print("| step | result | error over bound |\n| --- | --- | --- |")
    for fault, check in FAULTS.items():
        errors = _errors_of(seeds, (check,), fault)
        count = sum(error > 1 for error in errors)
        complete = complete and count == len(seeds)
        print(f"| {fault} | {count} of {len(seeds)} found | at least {min(errors):.3g} |")
    for name, on_gpu in (("right", True), ("right, bounds of the CPU", False)):
        errors = _errors_of(seeds, CHECKS, on_gpu=on_gpu)
        count = sum(error <= 1 for error in errors)
        complete = complete and (count == len(seeds) or not on_gpu)
        print(f"| {name} | {count} of {len(seeds)} pass | at most {max(errors):.3g} |")
    return 0 if complete else 1


def _errors_of(
    seeds: range, checks: tuple[str, ...], fault: str | None = None, *, on_gpu: bool = True
) -> list[float]:
    """Return by seed the largest error over its bound of any of the checks."""
    cases = [winograd_step(seed, fault, on_gpu=on_gpu) for seed in seeds]
    with tempfile.TemporaryDirectory(prefix="spw") as folder:
        results = check_winograd_steps(cases, Path(folder), seconds=60 + 30 * len(seeds))
    return [max(largest_error(ranks, check) for check in checks) for ranks in results]


if __name__ == "__main__":
    sys.exit(main())
