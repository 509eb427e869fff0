"""How a job is launched: the ``launch:`` keys of a suite, merged and checked."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

LAUNCHERS = ("mpirun_rsh", "hydra", "openmpi", "srun")
"""The launcher modules of ``spbench.launch``."""


def _not_ours(name: str) -> str:
    if name.startswith("SPBENCH_"):
        raise ValueError("names that begin with SPBENCH_ are spbench's own")
    return name


EnvName = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$"), AfterValidator(_not_ours)
]


class LaunchSettings(BaseModel):
    """The keys of ``launch:``, each with its default."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    launcher: Literal["auto", "mpirun_rsh", "hydra", "openmpi", "srun"] = Field(
        default="auto",
        description="the program that starts the ranks; auto matches the MPI library",
    )
    ranks_per_host: int | None = Field(default=None, ge=1, description="ranks on each host")
    bind: Literal["auto", "core", "numa", "none"] = Field(
        default="auto", description="what a rank is bound to"
    )
    threads: Literal["auto"] | Annotated[int, Field(ge=1)] = Field(
        default="auto", description="OMP and torch threads a rank"
    )
    python: str | None = Field(default=None, description="interpreter on the compute nodes")
    setup: tuple[str, ...] = Field(
        default=(), strict=False, description="shell lines before the worker"
    )
    container: str | None = Field(
        default=None, description="a prefix such as 'apptainer exec image.sif'"
    )
    hostfile: str | None = Field(default=None, description="a path; --hostfile wins")
    env: dict[EnvName, str] = Field(default={}, description="environment of the ranks")
    args: tuple[str, ...] = Field(
        default=(), strict=False, description="further arguments of the launcher"
    )
    start_timeout: float = Field(default=60, gt=0, description="seconds until every rank is ready")
    timeout: float = Field(default=120, gt=0, description="seconds for one case")
