"""The environment variables that are kept with a run: those that change numbers, no secrets."""

from __future__ import annotations

from collections.abc import Mapping

from spbench_core.events.rank_events import ENV_DEVICE

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


def notable(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that are worth keeping, sorted by name."""
    return {
        name: environ[name]
        for name in sorted(environ)
        if (name.startswith(_PREFIXES) or name in _NAMES)
        and not any(word in name.upper() for word in _SECRET)
    }
