"""Programs that benchmarks run, and errors that end a benchmark."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

MISSING_STATUS = 3


def exit_with_error(message: str, status: int = 1) -> NoReturn:
    """End the benchmark with an error message that starts with its name."""
    sys.stderr.write(f"{Path(sys.argv[0]).stem}: {message.rstrip()}\n")
    sys.exit(status)


def find_program(name: str) -> str:
    """Return the program's path, from this interpreter's folder or from PATH."""
    path = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if path is None:
        exit_with_error(f"{name} is neither next to {sys.executable} nor in PATH", MISSING_STATUS)
    return path


def build_program(mpicc: str, source: Path, folder: Path) -> Path:
    """Compile a program in C into a folder; return its path."""
    program = folder / source.stem
    command = [mpicc, "-O2", "-std=c99", str(source), "-o", str(program)]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    if completed.returncode:
        exit_with_error(
            f"{mpicc} cannot build {source.name}; check that a C compiler is installed: "
            f"{completed.stderr}",
            MISSING_STATUS,
        )
    return program


def bind_options(mpirun: str) -> list[str]:
    """Return the options that bind a rank to a core; only Open MPI uses two dashes."""
    version = subprocess.run([mpirun, "--version"], capture_output=True, text=True, check=False)
    open_mpi = re.search("Open MPI|Open RTE|PRTE", version.stdout + version.stderr)
    return ["--bind-to", "core"] if open_mpi else ["-bind-to", "core"]


def run_command(command: list[str]) -> str:
    """Run a command; return its output, or exit with an error if it failed.

    Open MPI may start ranks as root.
    """
    allow_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    environment = {"OMPI_MCA_osc": "^ucx"} | os.environ | allow_root
    completed = subprocess.run(
        command, capture_output=True, text=True, env=environment, check=False
    )
    if completed.returncode:
        exit_with_error(
            f"{' '.join(command)}: exit {completed.returncode}\n"
            f"{completed.stdout}{completed.stderr}"
        )
    return completed.stdout
