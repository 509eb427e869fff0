"""Compare ``link.pingpong`` with the same loop in C, on the same MPI library.

    python -m benchmarks.pingpong [--rounds 5] [--iterations 50]

Two ranks run, each bound to one core. The C program and spbench are interleaved, so that other work
on the machine affects both. Prints medians over the rounds.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from pathlib import Path
from statistics import median

from benchmarks.commands import bind_options, build_program, find_program, run_command

SOURCE = Path(__file__).with_suffix(".c")
SIZES = (8, 1 << 10, 64 << 10, 1 << 20, 4 << 20)
LINE = re.compile(r"latency_us:(\S+) source=0 target=1 bytes=(\d+)")

Times = dict[int, float]
"""One-way microseconds by message size."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="runs of each program (default: 5)")
    parser.add_argument("--iterations", type=int, default=50, help="samples a size (default: 50)")
    options = parser.parse_args()
    mpicc = find_program("mpicc")
    mpirun = find_program("mpirun")
    with tempfile.TemporaryDirectory() as folder:
        program = build_program(mpicc, SOURCE, Path(folder))
        launch = [mpirun, *bind_options(mpirun), "-n", "2"]
        rounds = [run_round(launch, program, options.iterations) for _ in range(options.rounds)]
    print(format_table(rounds))


def run_round(launch: list[str], program: Path, iterations: int) -> dict[str, Times]:
    """Run all programs once, one after another."""
    sizes = [str(size) for size in SIZES]
    us_by_program = {}
    for mode in ("plain", "persistent"):
        output = run_command([*launch, str(program), mode, str(iterations), *sizes])
        pairs = (line.split() for line in output.splitlines())
        us_by_program[f"C {mode}"] = {int(size): float(us) for size, us in pairs}
    worker = [sys.executable, "-m", "mpi4py", "-m", "spbench_workers", "link.pingpong"]
    options = ["--sizes", ",".join(sizes), "--iterations", str(iterations)]
    output = run_command([*launch, *worker, *options])
    us_by_program["spbench"] = {int(size): float(us) for us, size in LINE.findall(output)}
    return us_by_program


def format_table(rounds: list[dict[str, Times]]) -> str:
    """Return medians over the rounds in us, one way, and the ratio to C."""
    names = list(rounds[0])
    headings = ["bytes", *names, "spbench/plain", "spbench-plain"]
    lines = [" ".join(f"{heading:>14}" for heading in headings)]
    for size in SIZES:
        medians_us = [
            median(us_by_program[name][size] for us_by_program in rounds) for name in names
        ]
        ratio = medians_us[-1] / medians_us[0]
        difference_us = medians_us[-1] - medians_us[0]
        cells = [f"{us:14.3f}" for us in medians_us]
        lines.append(f"{size:14d} {' '.join(cells)} {ratio:14.3f} {difference_us:+14.3f}")
    return "\n".join([f"one way in us, median of {len(rounds)} rounds", *lines])


if __name__ == "__main__":
    main()
