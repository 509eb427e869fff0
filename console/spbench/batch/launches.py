"""The launches of a batch job, planned before its hosts are known."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from spbench.batch.plan_file import LOG_NAME
from spbench.batch.schedulers.scheduler import Allocation, Scheduler
from spbench.batch.site import count_slots
from spbench.engine.plan import Request, RunPlan, build_settings, plan_suite
from spbench.errors import UsageError
from spbench.launch.allocator import preload_allocator
from spbench.launch.detect import detect_mpi_library, find_launcher
from spbench.launch.jobs import Job, Launch, build_job_environment, split_program_repeats
from spbench.launch.launcher import ALLOCATIONS, JobSpec, get_traits
from spbench.launch.program import build_worker_argv, find_interpreter
from spbench.suites.case import Case, Suite
from spbench.suites.loader import load_suite_file
from spbench.suites.settings import BatchSettings, Container
from spbench_core.events.rank_events import ENV_CASES, ENV_EVENTS_DIR

PRIVATE = dict.fromkeys((ENV_EVENTS_DIR, ENV_CASES), "")
"""The variables that each launch passes to its ranks; the script sets their values."""
HOSTFILE_NAME = "hostfile"


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """A batch job as requested on the command line."""

    run: Request
    scheduler: str | None = None
    site: Path | None = None


def load_suite(request: Request) -> Suite:
    """Load the suite of a request.

    Raises:
        UsageError: The suite cannot be read, or has errors.
    """
    return load_suite_file(request.suite, build_settings(request))


def plan_batch(request: Request, suite: Suite, settings: BatchSettings, folder: Path) -> RunPlan:
    """Return the plan of a suite on the hosts of an allocation.

    Args:
        request: The requested run.
        suite: Its suite.
        settings: The settings of the batch job.
        folder: The folder of the batch job, which is mounted into containers.

    Raises:
        UsageError: The request is invalid, or a case takes all slots of an unknown number of nodes.
        NothingSelected: No case is left.
    """
    cases = tuple(_fit_case(case, settings, folder) for case in suite.cases)
    plan = plan_suite(request, replace(suite, cases=cases))
    for case in (case for job in plan.jobs for case in job.cases):
        if case.np is None:
            raise UsageError(
                f"{case.id} runs on all slots, and how many there will be is not known: set "
                "launch.batch.nodes and launch.ranks_per_host, or np"
            )
        if case.at_once:
            raise UsageError(
                f"{suite.path}:{case.line}: {case.id} has a job on each host, and which hosts a "
                "batch job gets is not known: leave per_host out, or run it in an allocation"
            )
        if case.until is not None:
            raise UsageError(
                f"{suite.path}:{case.line}: {case.id} repeats until its median is known well, and "
                "a batch job runs a number of repeats: set repeat, and leave until out"
            )
    # Each launch of a batch job is a job of its run. For programs that is each repeat.
    jobs = enumerate(split_program_repeats(plan.jobs), 1)
    return replace(plan, jobs=tuple(replace(job, number=number) for number, job in jobs))


def _fit_case(case: Case, settings: BatchSettings, folder: Path) -> Case:
    """Return a case without a hostfile, and with its ranks if they are known."""
    launch_changes: dict[str, object] = {"hostfile": None}
    container = case.launch.container
    if isinstance(container, Container):
        mounts = (*container.mounts, str(folder))
        launch_changes["container"] = container.model_copy(update={"mounts": mounts})
    launch = case.launch.model_copy(update=launch_changes)
    np = case.np or count_slots(settings, case.launch.ranks_per_host)
    return replace(case, np=np, launch=launch)


def plan_allocation(plan: RunPlan, settings: BatchSettings, folder: Path) -> Allocation:
    """Return the allocation of the batch job, which is large enough for each launch.

    Raises:
        UsageError: A launch needs more nodes than ``launch.batch.nodes``.
    """
    widths = {job.settings.ranks_per_host for job in plan.jobs}
    for job in plan.jobs:
        _check_nodes(job, settings.nodes)
    if settings.nodes is None and len(widths) > 1:
        raise UsageError("the cases differ in ranks_per_host: set launch.batch.nodes")
    set_widths = [width for width in widths if width is not None]
    ranks_per_host = max(set_widths) if len(set_widths) == len(widths) else None
    np = max(job.np for job in plan.jobs)
    name = f"spbench-{plan.suite.name}"
    return Allocation(name, np, ranks_per_host, settings, folder / LOG_NAME)


def _check_nodes(job: Job, nodes: int | None) -> None:
    ranks_per_host = job.settings.ranks_per_host
    if ranks_per_host is None or nodes is None:
        return
    needed_nodes = math.ceil(job.np / ranks_per_host)
    if needed_nodes > nodes:
        raise UsageError(
            f"{job.cases[0].id} needs {needed_nodes} nodes at ranks_per_host {ranks_per_host}, "
            f"and launch.batch.nodes is {nodes}"
        )


def plan_launch(job: Job, scheduler: Scheduler, folder: Path, environ: Mapping[str, str]) -> Launch:
    """Return a job's launch inside an allocation.

    Args:
        job: The job.
        scheduler: The batch system of the allocation.
        folder: The job's folder.
        environ: The environment from `build_allocation_environment`.

    Raises:
        MissingError: The launcher or the MPI library is missing.
        UsageError: The launcher has no option for a setting.
    """
    settings = job.settings
    installed = None
    if settings.launcher == "auto":
        name, installed = scheduler.choose_launcher()
        settings = settings.model_copy(update={"launcher": name})
    library = detect_mpi_library(find_interpreter(settings), settings)
    installed = installed or find_launcher(settings, library, environ)
    launcher = installed.launcher
    if not job.starts_program:
        settings = preload_allocator(settings, launcher.name, (), environ, is_local_job=False)
    spec = JobSpec(
        np=job.np,
        placement=(),
        settings=settings,
        program=build_worker_argv(settings, job.worker),
        private_env=PRIVATE | build_job_environment(job, environ),
        oversubscribed=False,
        # Other launchers find the allocation without a hostfile.
        hostfile=folder / HOSTFILE_NAME if get_traits(launcher).needs_hostfile else None,
        library=library.name,
    )
    command = launcher.command(installed.executable, spec, environ)
    return Launch(installed, library, spec, command, None)


def build_allocation_environment(
    environ: Mapping[str, str], scheduler: Scheduler
) -> dict[str, str]:
    """Return the environment inside an allocation of this scheduler only."""
    other_variables = {name: value for name, value in environ.items() if name not in ALLOCATIONS}
    return other_variables | dict(scheduler.allocation_variables)


def find_added_variables(launch: Launch, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a launch adds or changes in the script's environment."""
    return {
        name: value
        for name, value in sorted(launch.command.env.items())
        if environ.get(name) != value and name not in PRIVATE
    }
