"""Compare ``link.pingpong`` with the same loop in C, on the same MPI library.

    python -m benchmarks.pingpong [--rounds 5] [--iterations 50]

Two ranks run, each bound to one core. The C program and spbench are interleaved, so that other work
on the machine affects both. Prints medians over the rounds.
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
    options = parser.parse_args()
    mpicc = find_program("mpicc")
    mpirun = find_program("mpirun")
    with tempfile.TemporaryDirectory() as folder:
        program = build_program(mpicc, Path(folder) / "pingpong")
        launch = [mpirun, *bind_options(mpirun), "-n", "2"]
        rounds = [run_round(launch, program, options.iterations) for _ in range(options.rounds)]
    print(format_table(rounds))


def find_program(name: str) -> str:
    """Return the program's path, from this interpreter's folder or from PATH."""
    path = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    return path or exit_without(f"{name} is neither beside {sys.executable} nor in PATH")


def exit_without(message: str) -> str:
    sys.stderr.write(f"pingpong: {message}\n")
    sys.exit(MISSING_STATUS)


def build_program(mpicc: str, program: Path, source: Path = SOURCE) -> Path:
    command = [mpicc, "-O2", "-std=c99", str(source), "-o", str(program)]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    if completed.returncode:
        exit_without(
            f"{mpicc} cannot build {source.name} (is a C compiler there?): {completed.stderr}"
        )
    return program


def bind_options(mpirun: str) -> list[str]:
    """Return the options that bind a rank to a core; only Open MPI uses two dashes."""
    version = subprocess.run([mpirun, "--version"], capture_output=True, text=True, check=False)
    open_mpi = re.search("Open MPI|Open RTE|PRTE", version.stdout + version.stderr)
    return ["--bind-to", "core"] if open_mpi else ["-bind-to", "core"]


def run_round(launch: list[str], program: Path, iterations: int) -> dict[str, Times]:
    """Run all programs once, one after another."""
    sizes = [str(size) for size in SIZES]
    us_by_program = {}
    for mode in ("plain", "persistent"):
        output = run([*launch, str(program), mode, str(iterations), *sizes])
        pairs = (line.split() for line in output.splitlines())
        us_by_program[f"C {mode}"] = {int(size): float(us) for size, us in pairs}
    worker = [sys.executable, "-m", "mpi4py", "-m", "spbench_workers", "link.pingpong"]
    options = ["--sizes", ",".join(sizes), "--iterations", str(iterations)]
    output = run([*launch, *worker, *options])
    us_by_program["spbench"] = {int(size): float(us) for us, size in LINE.findall(output)}
    return us_by_program


def run(command: list[str]) -> str:
    allow_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    environment = {"OMPI_MCA_osc": "^ucx"} | os.environ | allow_root
    completed = subprocess.run(
        command, capture_output=True, text=True, env=environment, check=False
    )
    if completed.returncode:
        sys.exit(f"pingpong: {' '.join(command)}: exit {completed.returncode}\n{completed.stderr}")
    return completed.stdout


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
