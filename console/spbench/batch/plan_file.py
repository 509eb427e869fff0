"""The plan of a batch job, ``spbench.batch/1``, from which its run is collected."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from spbench.errors import UsageError
from spbench.record.runs.files import read_file
from spbench.suites.settings import StrictModel
from spbench_core.events import fields
from spbench_core.events.run_events import CASE_FIELDS

PLAN_NAME = "plan.json"
LOG_NAME = "job.log"
"""The file of the script's output, which the scheduler writes."""


class PlannedJob(StrictModel):
    """A planned job: its cases, and the command of each of its launches.

    Attributes:
        cases: Case ids, in the order in which they run.
        timeouts: Seconds for each case.
        library: The MPI library, by a name of `Launcher.libraries`.
        env: Environment variables that may affect the results.
        asked: The requested placement of ranks, from `Launch.requested_placement`.
    """

    number: int = Field(ge=1)
    np: int = Field(ge=1)
    cases: tuple[str, ...] = Field(strict=False)
    timeouts: dict[str, float]
    start_timeout: float
    launcher: str
    version: str
    library: str
    argv: tuple[str, ...] = Field(strict=False)
    env: dict[str, str]
    asked: dict[str, Any]


class BatchPlan(StrictModel):
    """A whole plan.

    Attributes:
        mark: The unique end of the run's id.
        file: The suite's file.
        system: The system of references in expectations; None: no expectation has references.
        environment: Facts of the machine that wrote the script.
        cases: The cases in the form of the event ``run_start``.
    """

    schema_: Literal["spbench.batch/1"] = Field(alias="schema")
    mark: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,40}$")
    spbench: str
    scheduler: str
    suite: str
    description: str
    file: str
    argv: tuple[str, ...] = Field(strict=False)
    cwd: str
    seed: int | None
    system: str | None = None
    environment: dict[str, Any]
    cases: tuple[dict[str, Any], ...] = Field(strict=False)
    jobs: tuple[PlannedJob, ...] = Field(strict=False)

    def to_json(self) -> str:
        """Return the content of the plan's file."""
        return self.model_dump_json(by_alias=True, indent=1) + "\n"


def read_plan(folder: Path) -> BatchPlan:
    """Read the plan in a batch job's folder.

    Raises:
        UsageError: The folder does not belong to a batch job, or its plan is damaged.
    """
    path = folder / PLAN_NAME
    try:
        plan = BatchPlan.model_validate_json(read_file(path))
    except OSError as error:
        raise UsageError(
            f"cannot read {path}: {error.strerror}; name a folder that spbench script has written"
        ) from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise _damage_error(path, f"{field}: {first['msg']}" if field else first["msg"]) from None
    _check(plan, path)
    return plan


def _check(plan: BatchPlan, path: Path) -> None:
    try:
        for case in plan.cases:
            fields.check_fields("a case", case, CASE_FIELDS)
    except fields.EventError as error:
        raise _damage_error(path, str(error)) from None
    np_by_case = {case["id"]: case["np"] for case in plan.cases}
    for job in plan.jobs:
        for id_ in job.cases:
            if np_by_case.get(id_) != job.np or id_ not in job.timeouts:
                message = f"job {job.number} has a case {id_!r} that does not fit it"
                raise _damage_error(path, message)


def _damage_error(path: Path, reason: str) -> UsageError:
    return UsageError(f"{path} is damaged: {reason}; write the job again with spbench script")
