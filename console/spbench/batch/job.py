"""Write the folder of a batch job, with its script, and submit the job."""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from spbench import __version__
from spbench.batch.launches import (
    BatchRequest,
    build_allocation_environment,
    load_suite,
    plan_allocation,
    plan_batch,
    plan_launch,
)
from spbench.batch.plan_file import PLAN_NAME, BatchPlan, PlannedJob
from spbench.batch.schedulers.scheduler import Scheduler, choose_scheduler
from spbench.batch.script import BatchScript
from spbench.batch.site import collect_batch_settings
from spbench.engine.job_listener import build_payload
from spbench.engine.plan import RunPlan
from spbench.engine.run_metadata import build_run_start
from spbench.errors import FailedRunError, MissingError, UsageError
from spbench.launch.jobs import Job, Launch
from spbench.record.hidden_values import hide_suite
from spbench.record.machine.environment import collect_facts, select_variables
from spbench.record.runs.files import write_file
from spbench.record.runs.folder import find_working_folder
from spbench.suites.shipped import resolve_shipped_path
from spbench.suites.site_file import read_site_file
from spbench_core.credentials import hide_credentials, select_secrets
from spbench_core.events.batch_files import CASES_FILE

SCRIPT_NAME = "job.sh"
SUBMIT_TIMEOUT = 120.0
"""Seconds in which a scheduler must answer."""


@dataclass(frozen=True, slots=True)
class BatchJob:
    """A batch job that is ready to be submitted."""

    folder: Path
    scheduler: Scheduler
    num_cases: int
    num_jobs: int
    unused_hostfile: bool

    @property
    def script(self) -> Path:
        """The path of the script."""
        return self.folder / SCRIPT_NAME


def write_batch(request: BatchRequest, out: Path | None, warn: Callable[[str], None]) -> BatchJob:
    """Write the folder of a batch job.

    Args:
        request: The requested batch job.
        out: The folder, which must be new or empty; None: one under the home.
        warn: Receives a message for each site file that was skipped.

    Raises:
        SpbenchError: The request is invalid, a launcher is missing, or the folder cannot be
            written. No file was written then.
    """
    run = request.run
    suite = load_suite(run)
    settings = collect_batch_settings(suite, run.overrides, request.site, run.home, warn)
    if run.system is None and request.site is not None:
        run = replace(run, system=read_site_file(request.site).name)
    scheduler = choose_scheduler(request.scheduler, settings, run.environ.get("PATH"))
    mark = f"{_make_slug(suite.name)}-{secrets.token_hex(2)}"
    folder = (out or run.home / "batch" / _add_timestamp(mark)).absolute()
    _check_unused(folder)

    plan = plan_batch(run, suite, settings, folder)
    environ = build_allocation_environment(run.environ, scheduler)
    launches = [
        (job, plan_launch(job, scheduler, folder / "jobs" / str(job.number), environ))
        for job in plan.jobs
    ]
    allocation = plan_allocation(plan, settings, folder)
    cwd = find_working_folder()
    script = BatchScript(suite.name, scheduler, allocation, folder, cwd, launches, environ)

    text_by_name = {
        "suite.yaml": hide_suite(suite.text),
        PLAN_NAME: _make_plan(plan, mark, scheduler, launches).to_json(),
        **{
            f"jobs/{job.number}/{CASES_FILE}": json.dumps(_describe_cases(job)) for job in plan.jobs
        },
        SCRIPT_NAME: script.render(),
    }
    # The script needs the values of launch.env, and cases.json those of a program's environment.
    # With secrets among them, only the user may read the files.
    have_secrets = any(_has_secrets(job, launch) for job, launch in launches)
    file_mode, script_mode = (0o600, 0o700) if have_secrets else (0o666, 0o777)
    for name, text in text_by_name.items():
        mode = script_mode if name == SCRIPT_NAME else file_mode
        write_file(folder / name, text, mode=mode, root=folder)
    num_cases = sum(len(job.cases) for job in plan.jobs)
    has_hostfile = any(case.launch.hostfile for case in suite.cases)
    return BatchJob(folder, scheduler, num_cases, len(launches), unused_hostfile=has_hostfile)


def _has_secrets(job: Job, launch: Launch) -> bool:
    environments = [launch.spec.rank_env, *(case.params.get("env") or {} for case in job.cases)]
    return any(select_secrets(environment) for environment in environments)


def _make_slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:24].strip("-") or "run"


def _add_timestamp(mark: str) -> str:
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{mark}"


def _check_unused(folder: Path) -> None:
    if re.search(r"[\s\"'%\\]", str(folder)):  # the path appears in a directive
        raise UsageError(
            f"--output {str(folder)!r}: name a folder without blanks, quotes, % and \\"
        )
    if folder.is_dir() and not any(folder.iterdir()):
        return
    if os.path.lexists(folder):
        raise UsageError(f"--output {folder} is there already; name a new folder")


def _describe_cases(job: Job) -> list[dict[str, Any]]:
    """Return the cases for the ranks, with the deadlines that a console would keep."""
    timeouts = {case.id: case.launch.timeout for case in job.cases}
    limits = {"start_timeout": 2 * job.settings.start_timeout}
    return [{**case, "timeout": timeouts[case["id"]], **limits} for case in build_payload(job)]


def _make_plan(
    plan: RunPlan, mark: str, scheduler: Scheduler, launches: Sequence[tuple[Job, Launch]]
) -> BatchPlan:
    environment = collect_facts(
        plan.request.environ, resolve_shipped_path(plan.suite.path), plan.suite.text
    )
    run_start = build_run_start(plan, "", environment)
    return BatchPlan(
        schema="spbench.batch/1",
        mark=mark,
        spbench=__version__,
        scheduler=scheduler.name,
        suite=run_start["suite"],
        description=run_start["description"],
        file=str(plan.request.suite),
        argv=tuple(run_start["argv"]),
        cwd=find_working_folder(),
        seed=run_start["seed"],
        system=plan.request.system,
        environment=environment,
        cases=tuple(run_start["cases"]),
        jobs=tuple(_describe_launch(job, launch, scheduler) for job, launch in launches),
    )


def _describe_launch(job: Job, launch: Launch, scheduler: Scheduler) -> PlannedJob:
    env = select_variables(launch.command.env, launch.spec.hidden_env)
    return PlannedJob(
        number=job.number,
        np=job.np,
        cases=tuple(case.id for case in job.cases),
        timeouts={case.id: case.launch.timeout for case in job.cases},
        start_timeout=job.settings.start_timeout,
        launcher=launch.launcher.name,
        version=launch.version,
        library=launch.library.version_text,
        argv=tuple(hide_credentials(launch.command.argv, select_secrets(launch.spec.rank_env))),
        env={
            name: value for name, value in env.items() if name not in scheduler.allocation_variables
        },
        asked=dict(launch.requested_placement),
    )


def submit_job(job: BatchJob, environ: Mapping[str, str]) -> str:
    """Submit a job and return the scheduler's output, usually the job's number.

    Raises:
        MissingError: The scheduler is not installed here.
        FailedRunError: The scheduler rejected the job, or did not answer.
    """
    scheduler = job.scheduler
    program = scheduler.submit_command[0]
    command = list(scheduler.submit_command)
    if not scheduler.takes_stdin:
        command.append(str(job.script))
    try:
        with job.script.open("rb") as script:
            process = subprocess.run(
                command,
                env=dict(environ),
                stdin=script if scheduler.takes_stdin else subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=SUBMIT_TIMEOUT,
                check=False,
            )
    except (FileNotFoundError, PermissionError):
        raise MissingError(
            f"{program} is not installed here: submit {job.script} where it is"
        ) from None
    except subprocess.TimeoutExpired:
        raise FailedRunError(
            f"{program} did not answer in {SUBMIT_TIMEOUT:g} s; submit {job.script} by hand"
        ) from None
    if process.returncode != 0:
        output = " ".join((process.stderr or process.stdout).split()) or "it said nothing"
        raise FailedRunError(f"{program} refused {job.script}: {output}")
    return process.stdout.strip()
