"""Compare ``link.pingpong`` with the same loop in C, on the same MPI library.

    python -m benchmarks.pingpong [--rounds 5] [--iterations 50]

Two ranks, each bound to a core of its own; the C program and spbench run by turns, so that a noisy
neighbour troubles all alike. Prints medians over the rounds.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

SOURCE = Path(__file__).with_suffix(".c")
SIZES = (8, 1 << 10, 64 << 10, 1 << 20, 4 << 20)
LINE = re.compile(r"latency_us:(\S+) source=0 target=1 bytes=(\d+)")
MISSING_STATUS = 3

Times = dict[int, float]
"""One-way microseconds by message size."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="runs of each program (default: 5)")
    parser.add_argument("--iterations", type=int, default=50, help="samples a size (default: 50)")
    words = parser.parse_args()
    mpicc = find("mpicc")
    mpirun = find("mpirun")
    with tempfile.TemporaryDirectory() as folder:
        program = build(mpicc, Path(folder) / "pingpong")
        launch = [mpirun, *binding(mpirun), "-n", "2"]
        rounds = [one_round(launch, program, words.iterations) for _ in range(words.rounds)]
    print(table(rounds))


def find(name: str) -> str:
    """Return the program's path: beside this interpreter first, then PATH."""
    path = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    return path or missing(f"{name} is neither beside {sys.executable} nor in PATH")


def missing(what: str) -> str:
    sys.stderr.write(f"pingpong: {what}\n")
    sys.exit(MISSING_STATUS)


def build(mpicc: str, program: Path, source: Path = SOURCE) -> Path:
    command = [mpicc, "-O2", "-std=c99", str(source), "-o", str(program)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if built.returncode:
        missing(f"{mpicc} cannot build {source.name} (is a C compiler there?): {built.stderr}")
    return program


def binding(mpirun: str) -> list[str]:
    """Return the words that bind a rank to a core: Open MPI spells them with two dashes."""
    version = subprocess.run([mpirun, "--version"], capture_output=True, text=True, check=False)
    open_mpi = re.search("Open MPI|Open RTE|PRTE", version.stdout + version.stderr)
    return ["--bind-to", "core"] if open_mpi else ["-bind-to", "core"]


def one_round(launch: list[str], program: Path, iterations: int) -> dict[str, Times]:
    """Run all programs once, one after another."""
    sizes = [str(size) for size in SIZES]
    times = {}
    for mode in ("plain", "persistent"):
        output = run([*launch, str(program), mode, str(iterations), *sizes])
        pairs = (line.split() for line in output.splitlines())
        times[f"C {mode}"] = {int(size): float(time) for size, time in pairs}
    worker = [sys.executable, "-m", "mpi4py", "-m", "spbench_workers", "link.pingpong"]
    words = ["--sizes", ",".join(sizes), "--iterations", str(iterations)]
    output = run([*launch, *worker, *words])
    times["spbench"] = {int(size): float(time) for time, size in LINE.findall(output)}
    return times


def run(command: list[str]) -> str:
    allow_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    environment = {"OMPI_MCA_osc": "^ucx"} | os.environ | allow_root
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if ended.returncode:
        sys.exit(f"pingpong: {' '.join(command)}: exit {ended.returncode}\n{ended.stderr}")
    return ended.stdout


def table(rounds: list[dict[str, Times]]) -> str:
    """Return medians over the rounds, one way in us, and how spbench compares with C."""
    names = list(rounds[0])
    heads = ["bytes", *names, "spbench/plain", "spbench-plain"]
    lines = [" ".join(f"{head:>14}" for head in heads)]
    for size in SIZES:
        times = [median(one[name][size] for one in rounds) for name in names]
        ratio = times[-1] / times[0]
        difference = times[-1] - times[0]
        cells = [f"{time:14.3f}" for time in times]
        lines.append(f"{size:14d} {' '.join(cells)} {ratio:14.3f} {difference:+14.3f}")
    return "\n".join([f"one way in us, median of {len(rounds)} rounds", *lines])


if __name__ == "__main__":
    main()
