"""The launch line of each job, and the standalone line of each of its cases."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from spbench.engine.plan import PRIVATE_NAMES, RunPlan, prepare_job, prepare_launches
from spbench.launch.hosts.names import fold
from spbench.launch.jobs import Job, Launch
from spbench.launch.launcher import JobSpec
from spbench.launch.program import build_program_argv, build_standalone_args, wrap_argv
from spbench.suites.case import Case
from spbench_core.credentials import (
    list_secret_names,
    quote_args,
    quote_assignment,
    select_secrets,
)
from spbench_core.events.rank_events import ENV_FAN_IN
from spbench_core.number_text import format_quantity

_CONSOLE_VARIABLES = {*PRIVATE_NAMES, ENV_FAN_IN}
"""Variables that a rank without a console does not need."""


@dataclass(frozen=True, slots=True)
class JobCommand:
    """A job's launch line and environment, quoted for a shell.

    Credentials are left out: ``NAME="$NAME"`` takes them from the environment of the shell.

    Attributes:
        version: The launcher's program and version.
        added: Variables that the launch adds to the environment, ``NAME=value``.
        launcher_line: The launcher with its arguments, without values that only a running console
            knows.
        standalone: Ids of cases, each with the line that runs only this case without the console.
        num_launches: The number of times that the job is launched.
        secrets: Variables with credentials, which the shell must have.
        idle_hosts: The chosen hosts that get no rank, as far as known before the start.
    """

    job: Job
    version: str
    added: tuple[str, ...]
    launcher_line: str
    standalone: tuple[tuple[str, str], ...]
    num_launches: int = 1
    secrets: tuple[str, ...] = ()
    idle_hosts: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """The launch line with its environment, quoted for a shell."""
        return " ".join([*self.added, self.launcher_line])

    @property
    def heading(self) -> str:
        """The job in one line: ranks, cases and launcher."""
        job = self.job
        launches = f"{self.num_launches} interleaved launches, " if self.num_launches > 1 else ""
        ranks = format_quantity(job.np, "rank")
        cases = format_quantity(len(job.cases), "case")
        idle = f"{fold(self.idle_hosts)} without ranks, " if self.idle_hosts else ""
        return f"job {job.number}: {ranks}, {idle}{launches}{cases}, {self.version}"


def build_commands(plan: RunPlan) -> list[JobCommand]:
    """Return the commands of a run's jobs, in order.

    Raises:
        MissingError: A launcher, an MPI library or slots are missing.
        UsageError: A launcher cannot express a host or a setting.
    """
    return [
        _build_command(plan, job, launch, job.cases)
        for job, launch in zip(plan.jobs, prepare_launches(plan), strict=True)
    ]


def build_case_command(plan: RunPlan, case_id: str) -> JobCommand:
    """Return the command of a case's job, with the standalone line of only this case.

    Raises:
        SpbenchError: Like for `build_commands`.
    """
    job, case = next((job, c) for job in plan.jobs for c in job.cases if c.id == case_id)
    return _build_command(plan, job, prepare_job(plan, job), (case,))


def _build_command(plan: RunPlan, job: Job, launch: Launch, cases: tuple[Case, ...]) -> JobCommand:
    added = _find_added_environment(plan, launch)
    secrets = select_secrets(launch.spec.rank_env)
    for case in cases:
        secrets |= select_secrets(case.params.get("env") or {})
    assignments = tuple(quote_assignment(name, value, secrets) for name, value in added.items())
    lines = _build_standalone_lines(plan, launch, cases)
    secret_names = list(select_secrets(added))
    for argv in (launch.command.argv, *(line for _, line in lines)):
        secret_names += list_secret_names(argv, secrets)
    standalone = tuple(
        (case.id, " ".join([*assignments, quote_args(line, secrets)])) for case, line in lines
    )
    return JobCommand(
        job,
        launch.version,
        added=assignments,
        launcher_line=quote_args(launch.command.argv, secrets),
        standalone=standalone,
        num_launches=sum(other.number == job.number for other in plan.launch_order),
        secrets=tuple(dict.fromkeys(secret_names)),
        idle_hosts=_find_idle_hosts(plan, job, launch),
    )


def _find_idle_hosts(plan: RunPlan, job: Job, launch: Launch) -> tuple[str, ...]:
    hosts = plan.find_hosts(job)
    if hosts is None or not launch.placement:  # this machine, or the launcher places the ranks
        return ()
    used_names = {block.host for block in launch.placement}
    return tuple(name for name in hosts.names if name not in used_names)


def _build_standalone_lines(
    plan: RunPlan, launch: Launch, cases: Iterable[Case]
) -> list[tuple[Case, list[str]]]:
    """Return the lines that run cases of a launch one by one without the console.

    A program has a line only if it needs no placeholders of the rank. This line starts the program
    itself with the launcher.
    """
    private_env = {
        name: value
        for name, value in launch.spec.private_env.items()
        if name not in _CONSOLE_VARIABLES
    }
    spec = replace(launch.spec, private_env=private_env)
    lines = ((case, _build_standalone_line(plan, launch, spec, case)) for case in cases)
    return [(case, line) for case, line in lines if line is not None]


def _build_standalone_line(
    plan: RunPlan, launch: Launch, spec: JobSpec, case: Case
) -> list[str] | None:
    is_program = case.entry.starts_program
    args = build_program_argv(case) if is_program else build_standalone_args(case)
    if args is None:
        return None
    program = wrap_argv(spec.settings, ()) if is_program else spec.program
    spec = replace(spec, program=(*program, *args))
    command = launch.launcher.command(launch.installed.executable, spec, plan.request.environ)
    return list(command.argv)


def _find_added_environment(plan: RunPlan, launch: Launch) -> dict[str, str]:
    """Return the variables that a launch adds to the environment, or changes."""
    environ = plan.request.environ
    return {
        name: value
        for name, value in sorted(launch.command.env.items())
        if environ.get(name) != value and name not in _CONSOLE_VARIABLES
    }


def format_commands(plan: RunPlan) -> Iterator[str]:
    """Yield the commands as a script for people to read and run.

    Raises:
        SpbenchError: Like for `build_commands`.
    """
    for command in build_commands(plan):
        yield f"# {command.heading}"
        if command.secrets:
            yield f"# set and export before you run these lines: {' '.join(command.secrets)}"
        yield command.line
        for case, line in command.standalone:
            yield f"#   by hand, {case}"
            yield line
