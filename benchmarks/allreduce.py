"""Compare ``allreduce.sweep`` with a loop in C, and with the MPI's algorithms.

    python -m benchmarks.allreduce [--rounds 5] [--iterations 50]

Two ranks run, each bound to one core: the C program, mpi4py's calls in a bare loop, and spbench.
They are interleaved, so that other work on the machine affects all of them. Medians over the rounds
are printed. Then one suite runs on 2, 3 and 4 ranks and measures each algorithm interleaved with
the MPI's allreduce. An algorithm is called faster only if the difference is significant.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.commands import bind_options, build_program, find_program, run_command
from benchmarks.goals import Figure, format_figures, make_argument_parser

SOURCE = Path(__file__).with_suffix(".c")
RANKS_OF_MPI4PY = SOURCE.with_name("allreduce_ranks.py")
SIZES = (8, 32 << 10, 64 << 10, 1 << 20, 4 << 20)
SHORT = 1 << 10
"""Bytes of messages below which the calls, not the bytes, take the time."""
RANKS = (2, 3, 4)
COMPARED = (8, 4 << 10, 64 << 10, 1 << 20)
ALGORITHMS = (
    *("ring", "bidirectional_ring", "recursive_doubling", "rabenseifner", "binomial"),
    *("two_level", "chain", "flat"),
)

Times = dict[int, float]
"""Microseconds of an allreduce by size in bytes."""


def main() -> None:
    parser = make_argument_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="runs of each program (default: 5)")
    parser.add_argument("--iterations", type=int, default=50, help="samples a size (default: 50)")
    options = parser.parse_args()
    mpirun = find_program("mpirun")
    with tempfile.TemporaryDirectory() as folder:
        program = build_program(find_program("mpicc"), SOURCE, Path(folder))
        launch = [mpirun, *bind_options(mpirun), "-n", "2"]
        rounds = [run_round(launch, program, options.iterations) for _ in range(options.rounds)]
        print(f"native allreduce of floats on 2 ranks, median of {len(rounds)} rounds")
        print(format_figures(list(compare_with_c(rounds))))
        print(compare_with_native(Path(folder), options.iterations))


def run_round(launch: list[str], program: Path, iterations: int) -> dict[str, Times]:
    """Run all programs once, one after the other.

    Each size is a separate process, because its memory affects the time.
    """
    sizes = [str(size) for size in SIZES]
    pairs = [run_command([*launch, str(program), str(iterations), size]) for size in sizes]
    us_by_program = {"C": {int(size): float(us) for size, us in map(str.split, pairs)}}
    short_sizes = [size for size in SIZES if size < SHORT]
    us_by_program["mpi4py"] = {
        size: measure_fastest_call(launch, iterations, size) for size in short_sizes
    }
    worker = [sys.executable, "-m", "mpi4py", "-m", "spbench_workers", "allreduce.sweep"]
    options = ["--device", "cpu", "--iterations", str(iterations), "--size"]
    rows = [run_command([*launch, *worker, *options, size]) for size in sizes]
    us_by_program["spbench"] = dict(map(parse_row, rows))
    return us_by_program


def measure_fastest_call(launch: list[str], iterations: int, size: int) -> float:
    """Return the time in us of the fastest of mpi4py's calls."""
    command = [*launch, sys.executable, str(RANKS_OF_MPI4PY), str(iterations), str(size)]
    return min(float(line.split()[0]) for line in run_command(command).splitlines())


def parse_row(output: str) -> tuple[int, float]:
    """Return the size in bytes and the time in us of a table with one row."""
    row = next(line for line in output.splitlines() if not line.startswith("#")).split()
    return int(row[0]), float(row[5])


def compare_with_c(rounds: list[dict[str, Times]]) -> list[Figure]:
    figures = []
    for size in SIZES:
        spbench_us, c_us = (
            median(us_by_program[name][size] for us_by_program in rounds)
            for name in ("spbench", "C")
        )
        figures += [Figure(f"{size} B in C", c_us, "us"), Figure(f"{size} B", spbench_us, "us")]
        if size < SHORT:
            mpi4py_us = median(us_by_program["mpi4py"][size] for us_by_program in rounds)
            figures.append(Figure(f"{size} B, mpi4py's fastest call", mpi4py_us, "us"))
            figures.append(Figure(f"{size} B, mpi4py more than C", mpi4py_us - c_us, "us"))
            figures.append(
                Figure(f"{size} B, more than mpi4py", spbench_us - mpi4py_us, "us", maximum=0.1)
            )
        else:
            figures.append(Figure(f"{size} B, over C", spbench_us / c_us, "times", maximum=1.03))
    return figures


def compare_with_native(folder: Path, iterations: int) -> str:
    """Run all algorithms on 2, 3 and 4 ranks; compare each with the MPI's allreduce."""
    suite = folder / "algorithms.json"
    report = folder / "report.json"
    suite.write_text(json.dumps(build_suite(iterations)))
    command = [sys.executable, "-m", "spbench", "run", str(suite), "--headless", "-q"]
    command += ["--home", str(folder / "home"), "--json", str(report)]
    completed = subprocess.run(command, check=False)
    if completed.returncode:
        sys.exit(f"allreduce: {' '.join(command)}: exit {completed.returncode}")
    cases = json.loads(report.read_text())["cases"]
    return "\n".join(["each algorithm alternating with native", HEADING, *map(format_case, cases)])


def build_suite(iterations: int) -> dict[str, Any]:
    """Return a suite of all algorithms and sizes; JSON is YAML too."""
    params = {"device": "cpu", "iterations": iterations, "algorithm": list(ALGORITHMS)}
    cases = [
        {
            "name": f"on{ranks}",
            "benchmark": "allreduce.sweep",
            "np": ranks,
            "params": params,
            "matrix": {"size": list(COMPARED)},
        }
        for ranks in RANKS
    ]
    return {"schema": "spbench.suite/1", "name": "algorithms", "cases": cases}


HEADING = f"{'case':52} {'us':>10} {'native':>10} {'model':>10}  against native"


def format_case(case: dict[str, Any]) -> str:
    """Return a case's times in us, and its comparison with the MPI's allreduce."""
    names = ("time_ms", "native_ms", "predicted_ms")
    times_us = [1000 * case["metrics"][name]["value"] for name in names]
    choice = case["choices"]["against native"]
    cells = " ".join(f"{us:10.2f}" for us in times_us)
    return f"{case['id']:52} {cells}  {choice['value']} ({choice['reason']})"


if __name__ == "__main__":
    main()
