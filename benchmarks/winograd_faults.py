"""Faults in windows over tiles, on ranks with Winograd's algorithm, like on a GPU.

    python -m benchmarks.winograd_faults [--seeds N]

Each fault at full size that changes a window is planted with N seeds, and as many steps are
correct. The table shows how often each fault is detected, with its smallest error over the bound,
and how many correct steps pass, with their largest error. The last row has the bounds of the CPU,
which correct steps exceed. Takes about 15 minutes for 20 seeds on two cores. The exit code is 1 if
a fault is missed or a correct step fails.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from benchmarks.goals import make_argument_parser

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.winograd_steps import (
    FAULTS,
    find_largest_error,
    make_winograd_case,
    run_winograd_cases,
)

CHECKS = ("operators", "scales")


def main() -> int:
    """Run the steps and print the table."""
    parser = make_argument_parser(__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    seeds = range(parser.parse_args().seeds)
    complete = True
    print("| step | result | error over bound |\n| --- | --- | --- |")
    for fault, check in FAULTS.items():
        errors = _measure_errors(seeds, (check,), fault)
        count = sum(error > 1 for error in errors)
        complete = complete and count == len(seeds)
        print(f"| {fault} | {count} of {len(seeds)} found | at least {min(errors):.3g} |")
    for name, on_gpu in (("right", True), ("right, bounds of the CPU", False)):
        errors = _measure_errors(seeds, CHECKS, on_gpu=on_gpu)
        count = sum(error <= 1 for error in errors)
        complete = complete and (count == len(seeds) or not on_gpu)
        print(f"| {name} | {count} of {len(seeds)} pass | at most {max(errors):.3g} |")
    return 0 if complete else 1


def _measure_errors(
    seeds: range, checks: tuple[str, ...], fault: str | None = None, *, on_gpu: bool = True
) -> list[float]:
    """Return the largest error over its bound of any check, by seed."""
    cases = [make_winograd_case(seed, fault, on_gpu=on_gpu) for seed in seeds]
    with tempfile.TemporaryDirectory(prefix="spw") as folder:
        results = run_winograd_cases(cases, Path(folder), seconds=60 + 30 * len(seeds))
    return [max(find_largest_error(ranks, check) for check in checks) for ranks in results]


if __name__ == "__main__":
    sys.exit(main())
