"""The local rank by the launcher's environment. Standard library only.

A launcher sets it before MPI starts, and whatever MPI makes of the host: with MVAPICH2's ch3:sock
each rank is alone in MPI's communicator of ranks that share memory.
"""

from __future__ import annotations

from collections.abc import Mapping

VARIABLES = (
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "MVP_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "PALS_LOCAL_RANKID",
    "SLURM_LOCALID",
)
"""Variables of Open MPI, MVAPICH2, MVAPICH, Hydra with Intel MPI, PALS and srun. srun comes last: a
Slurm script hands its own on to the ranks of other launchers."""
_SLURM_STEP = ("SLURM_STEP_ID", "SLURM_STEPID")


def told_local_rank(environ: Mapping[str, str]) -> tuple[int, str] | None:
    """Return the local rank and the variable that tells it; None where no launcher sets one."""
    for name in VARIABLES:
        value = environ.get(name, "")
        stale = name == "SLURM_LOCALID" and not any(step in environ for step in _SLURM_STEP)
        if value.isdigit() and not stale:
            return int(value), name
    return None
