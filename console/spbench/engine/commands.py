"""The launch line of each job, and the standalone line of each of its cases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from spbench.engine.plan import (
    RunPlan,
    build_standalone_lines,
    find_added_environment,
    prepare_job,
    prepare_launches,
)
from spbench.launch.jobs import Job, Launch
from spbench.suites.case import Case
from spbench_core.credentials import (
    name_secrets,
    quote_args,
    quote_assignment,
    select_secrets,
)
from spbench_core.number_text import format_quantity


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
        launches: The number of times that the job is launched.
        secrets: Variables with credentials, which the shell must have.
    """

    job: Job
    version: str
    added: tuple[str, ...]
    launcher_line: str
    standalone: tuple[tuple[str, str], ...]
    launches: int = 1
    secrets: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """The launch line with its environment, quoted for a shell."""
        return " ".join([*self.added, self.launcher_line])

    @property
    def heading(self) -> str:
        """The job in one line: ranks, cases and launcher."""
        job = self.job
        launches = f"{self.launches} launches by turns, " if self.launches > 1 else ""
        ranks = format_quantity(job.np, "rank")
        cases = format_quantity(len(job.cases), "case")
        return f"job {job.number}: {ranks}, {launches}{cases}, {self.version}"


def build_commands(run: RunPlan) -> list[JobCommand]:
    """Return the commands of a run's jobs, in order.

    Raises:
        MissingError: A launcher, an MPI library or slots are missing.
        UsageError: A launcher cannot express a host or a setting.
    """
    return [
        _build_command(run, job, launch, job.cases)
        for job, launch in zip(run.jobs, prepare_launches(run), strict=True)
    ]


def build_case_command(run: RunPlan, case_id: str) -> JobCommand:
    """Return the command of a case's job, with the standalone line of only this case.

    Raises:
        SpbenchError: Like for `build_commands`.
    """
    job, case = next((job, c) for job in run.jobs for c in job.cases if c.id == case_id)
    return _build_command(run, job, prepare_job(run, job), (case,))


def _build_command(run: RunPlan, job: Job, launch: Launch, cases: tuple[Case, ...]) -> JobCommand:
    added = find_added_environment(run, launch)
    secrets = select_secrets(launch.spec.rank_env)
    for case in cases:
        secrets |= select_secrets(case.params.get("env") or {})
    assignments = tuple(quote_assignment(name, value, secrets) for name, value in added.items())
    lines = build_standalone_lines(run, launch, cases)
    secret_names = list(select_secrets(added))
    for argv in (launch.command.argv, *(line for _, line in lines)):
        secret_names += name_secrets(argv, secrets)
    standalone = tuple(
        (case.id, " ".join([*assignments, quote_args(line, secrets)])) for case, line in lines
    )
    return JobCommand(
        job,
        launch.version,
        added=assignments,
        launcher_line=quote_args(launch.command.argv, secrets),
        standalone=standalone,
        launches=sum(other.number == job.number for other in run.launch_order),
        secrets=tuple(dict.fromkeys(secret_names)),
    )


def format_commands(run: RunPlan) -> Iterator[str]:
    """Yield the commands as a script for people to read and run.

    Raises:
        SpbenchError: Like for `build_commands`.
    """
    for command in build_commands(run):
        yield f"# {command.heading}"
        if command.secrets:
            yield f"# set and export before you run these lines: {' '.join(command.secrets)}"
        yield command.line
        for case, line in command.standalone:
            yield f"#   by hand, {case}"
            yield line
