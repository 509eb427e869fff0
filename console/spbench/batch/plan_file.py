"""The plan of a batch job, ``spbench.batch/1``: what its run needs beside the events."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from spbench.errors import UsageError
from spbench.record.runs.files import read_file
from spbench.suites.settings import StrictModel
from spbench_core.events import fields
from spbench_core.events.run_events import CASE

PLAN_NAME = "plan.json"
LOG_NAME = "job.log"
"""The file of what the script prints, which the scheduler makes."""


class BatchLaunch(StrictModel):
    """One job: what each of its launches runs, and how.

    Attributes:
        cases: Ids, in the order in which they run.
        timeouts: Seconds for each case.
        library: The MPI library, as `Launcher.libraries` names them.
        env: Variables that may change numbers.
        asked: What is asked of the ranks' places, as `Launch.asked` tells it.
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
        mark: The end of the run's id, unlike any other's.
        file: The suite's file.
        system: The system of references in expectations; None: no expectation has any.
        environment: Facts of the machine that wrote the script.
        cases: As ``run_start`` describes them.
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
    jobs: tuple[BatchLaunch, ...] = Field(strict=False)

    def to_json(self) -> str:
        """Return the content of the file."""
        return self.model_dump_json(by_alias=True, indent=1) + "\n"


def read_plan(folder: Path) -> BatchPlan:
    """Return the plan of a batch job's folder.

    Raises:
        UsageError: The folder is none of a batch job, or its plan is damaged.
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
        place = ".".join(map(str, first["loc"]))
        raise _damaged(path, f"{place}: {first['msg']}" if place else first["msg"]) from None
    _check(plan, path)
    return plan


def _check(plan: BatchPlan, path: Path) -> None:
    try:
        for described in plan.cases:
            fields.check_fields("a case", described, CASE)
    except fields.EventError as error:
        raise _damaged(path, str(error)) from None
    planned = {case["id"]: case["np"] for case in plan.cases}
    for job in plan.jobs:
        for case in job.cases:
            if planned.get(case) != job.np or case not in job.timeouts:
                raise _damaged(path, f"job {job.number} has a case {case!r} that does not fit it")


def _damaged(path: Path, why: str) -> UsageError:
    return UsageError(f"{path} is damaged: {why}; write the job again with spbench script")
