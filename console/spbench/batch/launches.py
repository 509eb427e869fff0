"""The launches of a batch job: inside an allocation whose hosts are not known yet."""

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
"""The variables that each launch hands to its ranks; the script knows their values."""
HOSTFILE_NAME = "hostfile"


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """A batch job as asked for on the command line."""

    run: Request
    scheduler: str | None = None
    site: Path | None = None


def load_suite(request: Request) -> Suite:
    """Return the suite of a request.

    Raises:
        UsageError: It cannot be read, or has errors.
    """
    return load_suite_file(request.suite, build_settings(request))


def plan_batch(request: Request, suite: Suite, settings: BatchSettings, folder: Path) -> RunPlan:
    """Return the plan of a suite on the hosts of an allocation.

    Args:
        request: The run that was asked for.
        suite: Its suite.
        settings: What the batch job asks for.
        folder: The folder of the batch job, which ranks in containers see too.

    Raises:
        UsageError: Something of it is wrong; a case takes all slots of an unknown number of nodes.
        NothingSelected: No case is left.
    """
    cases = tuple(_sized(case, settings, folder) for case in suite.cases)
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
    # in a batch job each launch is a job: of a program, each of its repeats
    jobs = enumerate(split_program_repeats(plan.jobs), 1)
    return replace(plan, jobs=tuple(replace(job, number=number) for number, job in jobs))


def _sized(case: Case, settings: BatchSettings, folder: Path) -> Case:
    """Return a case with its ranks, if known, and no hostfile: the allocation is its hosts."""
    changed: dict[str, object] = {"hostfile": None}
    container = case.launch.container
    if isinstance(container, Container):
        mounts = (*container.mounts, str(folder))
        changed["container"] = container.model_copy(update={"mounts": mounts})
    launch = case.launch.model_copy(update=changed)
    np = case.np or count_slots(settings, case.launch.ranks_per_host)
    return replace(case, np=np, launch=launch)


def plan_allocation(plan: RunPlan, settings: BatchSettings, folder: Path) -> Allocation:
    """Return what the batch job asks for: room for the largest of its launches.

    Raises:
        UsageError: A launch needs more nodes than are asked for.
    """
    widths = {job.settings.ranks_per_host for job in plan.jobs}
    known = [width for width in widths if width is not None]
    for job in plan.jobs:
        _check_room(job, settings.nodes)
    if settings.nodes is None and len(widths) > 1:
        raise UsageError("the cases differ in ranks_per_host: set launch.batch.nodes")
    width = max(known) if known and len(known) == len(widths) else None
    np = max(job.np for job in plan.jobs)
    return Allocation(f"spbench-{plan.suite.name}", np, width, settings, folder / LOG_NAME)


def _check_room(job: Job, nodes: int | None) -> None:
    most = job.settings.ranks_per_host
    if most is not None and nodes is not None and nodes * most < job.np:
        raise UsageError(
            f"{job.cases[0].id} needs {math.ceil(job.np / most)} nodes at ranks_per_host {most}, "
            f"and launch.batch.nodes is {nodes}"
        )


def plan_launch(job: Job, scheduler: Scheduler, folder: Path, environ: Mapping[str, str]) -> Launch:
    """Return a job's launch inside an allocation.

    Args:
        job: The job.
        scheduler: The batch system of the allocation.
        folder: The job's folder.
        environ: As `allocated` returns it.

    Raises:
        MissingError: The launcher or the MPI library is missing.
        UsageError: The launcher cannot express something.
    """
    settings = job.settings
    name, found = scheduler.choose_launcher()
    if settings.launcher == "auto":
        settings = settings.model_copy(update={"launcher": name})
    else:
        found = None
    library = detect_mpi_library(find_interpreter(settings), settings)
    found = found or find_launcher(settings, library, environ)
    if not job.starts_program:
        settings = preload_allocator(settings, found.launcher.name, (), environ, here=False)
    spec = JobSpec(
        np=job.np,
        placement=(),
        settings=settings,
        program=build_worker_argv(settings, job.worker),
        private_env=PRIVATE | build_job_environment(job, environ),
        oversubscribed=False,
        # the others find the allocation by themselves
        hostfile=folder / HOSTFILE_NAME if get_traits(found.launcher).needs_hostfile else None,
        library=library.name,
    )
    command = found.launcher.command(found.executable, spec, environ)
    return Launch(found, library, spec, command, None)


def allocation_environment(environ: Mapping[str, str], scheduler: Scheduler) -> dict[str, str]:
    """Return an environment as it will be inside an allocation of this scheduler, and no other."""
    kept = {name: value for name, value in environ.items() if name not in ALLOCATIONS}
    return kept | dict(scheduler.allocation_variables)


def added_variables(launch: Launch, environ: Mapping[str, str]) -> dict[str, str]:
    """Return what a launch adds to the environment of the script, or changes in it."""
    return {
        name: value
        for name, value in sorted(launch.command.env.items())
        if environ.get(name) != value and name not in PRIVATE
    }
