"""Launch settings: the ``launch:`` keys of a suite, and the base model of files."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
)

from spbench.suites.launcher_names import AUTO, LauncherName
from spbench_core.events.rank_events import SILENCE_LIMIT

MIN_SILENCE_TIMEOUT = 4.0
"""The least `silence_timeout`: heartbeats come every second, and relays are reported first."""
SchedulerName = Literal["slurm", "pbs", "lsf", "flux"]
SCHEDULERS: tuple[SchedulerName, ...] = get_args(SchedulerName)
"""The scheduler modules of ``spbench.batch``."""

_ENV_NAME = r"^[A-Za-z_][A-Za-z0-9_]*$"


def _validate_variable(name: str) -> str:
    if name.startswith("SPBENCH_") or not re.fullmatch(_ENV_NAME, name):
        use = "letters, digits and _ with no digit first; SPBENCH_... is spbench's own"
        raise ValueError(f"{name!r} cannot name an environment variable: use {use}")
    return name


EnvName = Annotated[str, StringConstraints(pattern=_ENV_NAME), BeforeValidator(_validate_variable)]


def parse_time_limit(text: str) -> int:
    """Parse a time limit in seconds: ``45m``, ``1d``, ``1:30:00``, ``1-12:00:00``.

    Raises:
        ValueError: It is invalid. ``1:30`` is rejected, because its meaning depends on the
            scheduler.
    """
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    if short := re.fullmatch(r"(\d{1,6})([smhd])", text):
        seconds = int(short[1]) * units[short[2]]
    elif clock := re.fullmatch(r"(?:(\d{1,3})-)?(\d{1,3}):([0-5]\d):([0-5]\d)", text):
        days, hours, minutes, last = (int(part or 0) for part in clock.groups())
        seconds = ((days * 24 + hours) * 60 + minutes) * 60 + last
    else:
        seconds = 0
    if not seconds:
        raise ValueError(f"{text!r} is not a time limit: write it like 45m, 2h or 1:30:00")
    return seconds


def _validate_limit(text: str) -> str:
    parse_time_limit(text)
    return text


def _validate_word(text: str) -> str:
    if not re.fullmatch(r"[^\s'\"\\`$\x00-\x1f\x7f]+", text):
        raise ValueError(f"{text!r} must be one word without blanks, quotes, $ and backslashes")
    return text


def _validate_line(text: str) -> str:
    if not text.strip() or not text.isprintable():
        raise ValueError(f"{text!r} must be one line of text that is not empty")
    return text


Word = Annotated[str, AfterValidator(_validate_word)]
Line = Annotated[str, AfterValidator(_validate_line)]


class StrictModel(BaseModel):
    """A mapping in a file.

    Unknown keys are errors, and no value is converted to another type.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, defer_build=True
    )


def build_json_schema(model: type[BaseModel], **options: Any) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of the files of a model."""
    draft = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": draft, **model.model_json_schema(by_alias=True, **options)}


def _validate_mount(mount: str) -> str:
    if not re.fullmatch(r"/[^:]*(:/[^:]*(:[A-Za-z,]+)?)?", mount):
        raise ValueError(
            f"{mount!r} is not a mount: write PATH or PATH:INSIDE[:ro] with absolute paths"
        )
    return mount


class Container(StrictModel):
    """The container of the ranks: its runtime, image and mounted parts of the host."""

    image: str = Field(min_length=1, description="an image's name, or the path of a .sif file")
    runtime: Literal["apptainer", "podman", "docker"] = Field(
        default="apptainer", description="the program that starts it on each host"
    )
    mounts: tuple[Annotated[str, AfterValidator(_validate_mount)], ...] = Field(
        default=(),
        strict=False,
        description="PATH or PATH:INSIDE[:ro], in addition to the working folder and /tmp",
    )
    args: tuple[str, ...] = Field(
        default=(), strict=False, description="further arguments, such as --nv"
    )


class LaunchSettings(StrictModel):
    """The keys of ``launch:``, each with its default."""

    launcher: LauncherName = Field(
        default=AUTO,
        description="the program that starts the ranks; auto matches the MPI library",
    )
    ranks_per_host: int | None = Field(default=None, ge=1, description="ranks on each host")
    oversubscribe: bool | Literal["force"] = Field(
        default=True,
        description="whether ranks may share cores or GPUs; true rejects more than 4 ranks per "
        "core and more memory than this machine has, false (in suites of plans) rejects more ranks "
        "than cores or GPUs, and force rejects nothing",
    )
    bind: Literal["auto", "core", "numa", "none"] = Field(
        default="auto", description="the part of the host that a rank is bound to"
    )
    threads: Literal["auto"] | Annotated[int, Field(ge=1)] = Field(
        default="auto", description="OMP and torch threads per rank"
    )
    allocator: Literal["auto", "system", "tcmalloc"] = Field(
        default="auto",
        description="malloc of the ranks; auto is tcmalloc if this machine has it",
    )
    python: str | None = Field(default=None, description="interpreter on the compute nodes")
    setup: tuple[str, ...] = Field(
        default=(), strict=False, description="shell lines that run before the worker"
    )
    container: str | Container | None = Field(
        default=None,
        description="an image with its runtime, or a prefix such as 'apptainer exec image.sif'",
    )
    hostfile: str | None = Field(
        default=None, description="path of the hostfile; --hostfile replaces it"
    )
    env: dict[EnvName, str] = Field(default={}, description="environment of the ranks")
    args: tuple[str, ...] = Field(
        default=(), strict=False, description="further arguments of the launcher"
    )
    fan_in: Literal["auto", "flat", "node"] = Field(
        default="auto",
        description="one connection per rank (flat) or per node; auto chooses by number of ranks",
    )
    tunnel: Literal["none", "ssh"] = Field(
        default="none",
        description="how hosts reach the console if the network blocks direct connections",
    )
    start_timeout: float = Field(default=60, gt=0, description="seconds until every rank is ready")
    silence_timeout: float = Field(
        default=SILENCE_LIMIT,
        ge=MIN_SILENCE_TIMEOUT,
        description="seconds without a message after which a rank counts as hung",
    )
    timeout: float = Field(default=120, gt=0, description="time limit of a case, in seconds")


class BatchSettings(StrictModel):
    """The resources of a batch job: ``launch.batch:``, and ``batch:`` of a site file."""

    scheduler: SchedulerName | None = Field(
        default=None, description="the batch system; default: the one installed here"
    )
    account: Word | None = Field(default=None, description="the account to charge")
    partition: Word | None = Field(default=None, description="the partition or queue")
    qos: Word | None = Field(default=None, description="the quality of service")
    time: Annotated[str, AfterValidator(_validate_limit)] | None = Field(
        default=None, description="the time limit: 45m, 2h, 1:30:00", examples=["1:30:00"]
    )
    nodes: int | None = Field(default=None, ge=1, description="nodes of the allocation")
    gpus: int | None = Field(default=None, ge=1, description="GPUs on each node")
    modules: tuple[Word, ...] = Field(
        default=(), strict=False, description="modules to load before the first launch"
    )
    directives: tuple[Line, ...] = Field(
        default=(), strict=False, description="further options of the scheduler, one per line"
    )
    lines: tuple[Line, ...] = Field(
        default=(), strict=False, description="shell lines before the first launch"
    )


class SuiteLaunch(LaunchSettings):
    """The keys of a suite's own ``launch:``: a batch job is one for all its cases."""

    batch: BatchSettings = Field(
        default=BatchSettings(),
        description="resources that `spbench script` requests from the batch system",
    )
