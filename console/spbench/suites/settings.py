"""Launch settings: the ``launch:`` keys of a suite, and models of files in general."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
)

LAUNCHERS = ("mpirun_rsh", "hydra", "openmpi", "srun")
"""The launcher modules of ``spbench.launch``."""

_ENV_NAME = r"^[A-Za-z_][A-Za-z0-9_]*$"


def _variable(name: str) -> str:
    if name.startswith("SPBENCH_") or not re.fullmatch(_ENV_NAME, name):
        use = "letters, digits and _ with no digit first; SPBENCH_... is spbench's own"
        raise ValueError(f"{name!r} cannot name an environment variable: use {use}")
    return name


EnvName = Annotated[str, StringConstraints(pattern=_ENV_NAME), BeforeValidator(_variable)]


class StrictModel(BaseModel):
    """A mapping in a file: unknown keys are errors, and no value is converted to another type."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def json_schema(model: type[BaseModel], **options: Any) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of the files that a model reads or writes."""
    draft = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": draft, **model.model_json_schema(by_alias=True, **options)}


def _mount(mount: str) -> str:
    if not re.fullmatch(r"/[^:]*(:/[^:]*(:[A-Za-z,]+)?)?", mount):
        raise ValueError(f"{mount!r} is no mount: write PATH or PATH:INSIDE[:ro], whole paths")
    return mount


class Container(StrictModel):
    """The container of the ranks: a runtime, its image and what of the host is seen inside."""

    image: str = Field(min_length=1, description="an image's name, or the path of a .sif file")
    runtime: Literal["apptainer", "podman", "docker"] = Field(
        default="apptainer", description="the program that starts it on each host"
    )
    mounts: tuple[Annotated[str, AfterValidator(_mount)], ...] = Field(
        default=(),
        strict=False,
        description="PATH or PATH:INSIDE[:ro], beside working folder, /tmp",
    )
    args: tuple[str, ...] = Field(
        default=(), strict=False, description="further arguments, such as --nv"
    )


class LaunchSettings(StrictModel):
    """The keys of ``launch:``, each with its default."""

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
    container: str | Container | None = Field(
        default=None,
        description="an image with its runtime, or a prefix such as 'apptainer exec image.sif'",
    )
    hostfile: str | None = Field(default=None, description="a path; --hostfile wins")
    env: dict[EnvName, str] = Field(default={}, description="environment of the ranks")
    args: tuple[str, ...] = Field(
        default=(), strict=False, description="further arguments of the launcher"
    )
    fan_in: Literal["auto", "flat", "node"] = Field(
        default="auto",
        description="a connection for each rank, or one for each node; auto goes by their number",
    )
    start_timeout: float = Field(default=60, gt=0, description="seconds until every rank is ready")
    timeout: float = Field(default=120, gt=0, description="seconds for one case")
