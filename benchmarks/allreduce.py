"""Compare ``allreduce.sweep`` with the same loop in C, and our algorithms with the MPI's own.

    python -m benchmarks.allreduce [--rounds 5] [--iterations 50]

Two ranks, each bound to a core of its own: the C program, mpi4py's own calls in a bare loop, and
spbench run by turns, so that a noisy neighbour troubles all alike; medians over the rounds. Then
one run of a suite on 2, 3 and 4 ranks, in which each algorithm is measured by turns with the MPI's
own; it is called faster only where the difference is significant.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.goals import Figure, argument_parser, table
from benchmarks.pingpong import binding, build, find, run

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
    parser = argument_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="runs of each program (default: 5)")
    parser.add_argument("--iterations", type=int, default=50, help="samples a size (default: 50)")
    words = parser.parse_args()
    mpirun = find("mpirun")
    with tempfile.TemporaryDirectory() as folder:
        program = build(find("mpicc"), Path(folder) / "allreduce", SOURCE)
        launch = [mpirun, *binding(mpirun), "-n", "2"]
        rounds = [one_round(launch, program, words.iterations) for _ in range(words.rounds)]
        print(f"native allreduce of floats on 2 ranks, median of {len(rounds)} rounds")
        print(table(list(against_c(rounds))))
        print(against_native(Path(folder), words.iterations))


def one_round(launch: list[str], program: Path, iterations: int) -> dict[str, Times]:
    """Run all programs once, one after the other; each size by itself, as memory differs else."""
    sizes = [str(size) for size in SIZES]
    pairs = [run([*launch, str(program), str(iterations), size]) for size in sizes]
    times = {"C": {int(size): float(time) for size, time in map(str.split, pairs)}}
    short = [size for size in SIZES if size < SHORT]
    times["mpi4py"] = {size: fastest_call(launch, iterations, size) for size in short}
    worker = [sys.executable, "-m", "mpi4py", "-m", "spbench_workers", "allreduce.sweep"]
    words = ["--device", "cpu", "--iterations", str(iterations), "--size"]
    rows = [run([*launch, *worker, *words, size]) for size in sizes]
    times["spbench"] = dict(map(row_of, rows))
    return times


def fastest_call(launch: list[str], iterations: int, size: int) -> float:
    """Return the us of the fastest of mpi4py's own calls."""
    command = [*launch, sys.executable, str(RANKS_OF_MPI4PY), str(iterations), str(size)]
    return min(float(line.split()[0]) for line in run(command).splitlines())


def row_of(output: str) -> tuple[int, float]:
    """Return the size in bytes and the time in us of a table with one row."""
    row = next(line for line in output.splitlines() if not line.startswith("#")).split()
    return int(row[0]), float(row[5])


def against_c(rounds: list[dict[str, Times]]) -> list[Figure]:
    figures = []
    for size in SIZES:
        ours, theirs = (median(one[name][size] for one in rounds) for name in ("spbench", "C"))
        figures += [Figure(f"{size} B in C", theirs, "us"), Figure(f"{size} B", ours, "us")]
        if size < SHORT:
            bare = median(one["mpi4py"][size] for one in rounds)
            figures.append(Figure(f"{size} B, mpi4py's fastest call", bare, "us"))
            figures.append(Figure(f"{size} B, mpi4py more than C", bare - theirs, "us"))
            figures.append(Figure(f"{size} B, more than mpi4py", ours - bare, "us", most=0.1))
        else:
            figures.append(Figure(f"{size} B, over C", ours / theirs, "times", most=1.03))
    return figures


def against_native(folder: Path, iterations: int) -> str:
    """Run all algorithms on some numbers of ranks; return how each stands beside the MPI's own."""
    suite = folder / "algorithms.json"
    report = folder / "report.json"
    suite.write_text(json.dumps(suite_of(iterations)))
    command = [sys.executable, "-m", "spbench", "run", str(suite), "--headless", "-q"]
    command += ["--home", str(folder / "home"), "--json", str(report)]
    ended = subprocess.run(command, check=False)
    if ended.returncode:
        sys.exit(f"allreduce: {' '.join(command)}: exit {ended.returncode}")
    cases = json.loads(report.read_text())["cases"]
    return "\n".join(["each algorithm by turns with native", HEADING, *map(verdict_line, cases)])


def suite_of(iterations: int) -> dict[str, Any]:
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


def verdict_line(case: dict[str, Any]) -> str:
    """Return one case's times in us, and what its ranks found about the MPI's own."""
    names = ("time_ms", "native_ms", "predicted_ms")
    times = [1000 * case["metrics"][name]["value"] for name in names]
    choice = case["choices"]["against native"]
    cells = " ".join(f"{time:10.2f}" for time in times)
    return f"{case['id']:52} {cells}  {choice['value']} ({choice['reason']})"


if __name__ == "__main__":
    main()
