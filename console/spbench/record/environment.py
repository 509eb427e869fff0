"""Facts of the machine that the console runs on, kept with every run."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spbench import __version__
from spbench_core.events.rank_events import ENV_DEVICE

_GIT_PATIENCE = 5.0
_PREFIXES = (
    "MV2_",
    "MVP_",
    "OMPI_",
    "PMIX_",
    "PRTE_",
    "MPICH_",
    "MPIR_",
    "I_MPI_",
    "UCX_",
    "FI_",
    "CUDA_",
    "NVIDIA_",
    "CUBLAS_",
    "CUDNN_",
    "NCCL_",
    "GLOO_",
    "TORCH_",
    "PYTORCH_",
    "OMP_",
    "MKL_",
    "KMP_",
    "SLURM_",
    "GOMP_",
)
_NAMES = {
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "PYTHONNOUSERSITE",
    "SPBENCH_CUDA_AWARE",
    ENV_DEVICE,
}
_SECRET = ("TOKEN", "KEY", "SECRET", "PASSWORD", "COOKIE")


def facts(environ: Mapping[str, str]) -> dict[str, Any]:
    """Return host, system, processor, memory, load, versions, git state and notable variables."""
    return {
        "host": socket.gethostname(),
        "system": platform.platform(),
        "kernel": platform.release(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(_memory_kib() / 2**20, 1),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "spbench": __version__,
        "git": _git(),
        "env": notable(environ),
    }


def _processor() -> str | None:
    for line in _lines("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine() or None


def _memory_kib() -> int:
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemTotal"):
            return int(line.split()[1])
    return 0


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def _git() -> dict[str, Any] | None:
    """Commit and cleanness of the working directory's checkout; None outside of one."""
    try:
        commit = _ask_git("rev-parse", "HEAD")
        dirty = bool(_ask_git("status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.SubprocessError):
        return None
    return {"commit": commit, "dirty": dirty}


def _ask_git(*words: str) -> str:
    done = subprocess.run(
        ("git", *words), capture_output=True, text=True, timeout=_GIT_PATIENCE, check=True
    )
    return done.stdout.strip()


def notable(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that may change numbers, by name; no secrets."""
    return {
        name: environ[name]
        for name in sorted(environ)
        if (name.startswith(_PREFIXES) or name in _NAMES)
        and not any(word in name.upper() for word in _SECRET)
    }
