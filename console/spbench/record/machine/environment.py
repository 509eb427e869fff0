"""Facts about the machine of the console, recorded with every run."""

from __future__ import annotations

import hashlib
import os
import platform
import socket
import subprocess
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from spbench import __version__
from spbench.record.machine.machine_files import (
    read_cgroup_limits,
    read_governor,
    read_memory_kib,
    read_numa_nodes,
)
from spbench_core.credentials import holds_secret
from spbench_core.host_facts import read_processor

_GIT_TIMEOUT = 5.0
_PREFIXES = (
    "MV2_",
    "MVP_",
    "UCX_",
    "FI_",
    "OMPI_",
    "MPICH_",
    "I_MPI_",
    "SLURM_",
    "OMP_",
    "CUDA_",
    "NVIDIA_",
    "CUBLAS_",
    "NCCL_",
    "TORCH_",
    "PYTORCH_",
)
"""Prefixes of recorded variables. No others are recorded, because reports are passed on."""


def collect_facts(environ: Mapping[str, str], suite: Path, text: str) -> dict[str, Any]:
    """Return facts of the console's machine, the suite, and notable variables.

    Args:
        environ: The console's environment.
        suite: The suite's file; the git state is that of its folder.
        text: The suite as it was read, from which the hash is computed.
    """
    return {
        "host": socket.gethostname(),
        "system": platform.platform(),
        "kernel": platform.release(),
        "processor": read_processor() or platform.machine() or None,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(read_memory_kib() / 2**20, 1),
        "numa": read_numa_nodes(),
        "governor": read_governor(),
        "cgroup": read_cgroup_limits(),
        "load": read_load_average(),
        "python": platform.python_version(),
        "spbench": __version__,
        "git": _read_git(suite.parent),
        "suite_sha256": hashlib.sha256(text.encode()).hexdigest(),
        "env": select_variables(environ),
    }


def read_load_average() -> float:
    """Return the mean number of runnable processes over the last minute."""
    return round(os.getloadavg()[0], 2)


def _read_git(folder: Path) -> dict[str, Any] | None:
    """Return commit and cleanness of the checkout with a folder; None outside of one."""
    try:
        commit = _run_git(folder, "rev-parse", "HEAD")
        is_dirty = bool(_run_git(folder, "status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.SubprocessError):
        return None
    return {"commit": commit, "dirty": is_dirty}


def _run_git(folder: Path, *args: str) -> str:
    process = subprocess.run(
        ("git", "-C", str(folder), *args),
        capture_output=True,
        text=True,
        timeout=_GIT_TIMEOUT,
        check=True,
    )
    return process.stdout.strip()


def select_variables(environ: Mapping[str, str], chosen: Collection[str] = ()) -> dict[str, str]:
    """Return the environment variables that may change results, without secrets.

    Args:
        environ: An environment.
        chosen: Names that the user gave to a launch, which are kept with any prefix.
    """
    return {
        name: environ[name]
        for name in sorted(environ)
        if (name in chosen or name.startswith(_PREFIXES)) and not holds_secret(name, environ[name])
    }
