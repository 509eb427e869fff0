"""The launch line of each job exactly as run, and the line by hand of each of its cases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from spbench.engine.plan import RunPlan, added_environment, launch_of, launches, standalone
from spbench.launch.jobs import Job, Launch
from spbench.suites.case import Case
from spbench_core.credentials import (
    name_secrets,
    quote_assignment,
    quote_words,
    select_secrets,
)
from spbench_core.quantities import format_quantity


@dataclass(frozen=True, slots=True)
class JobCommand:
    """A job's launch line and environment, in words that a shell takes.

    A credential is not in them: ``NAME="$NAME"`` takes it from the environment of the shell.

    Attributes:
        version: The launcher's program and version.
        secrets: Variables with credentials, which the shell must have.
        added: What the launch adds to the environment, ``NAME=value``.
        launcher_line: The launcher with its arguments; what only a running console knows is not
            in it.
        launches: The number of times that it is started.
        standalone: Ids of cases, each with the line that runs it alone and without the console.
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
        """The launch line with its environment, as a shell takes it."""
        return " ".join([*self.added, self.launcher_line])

    @property
    def heading(self) -> str:
        """The job in one line: its ranks, its cases, its launcher."""
        job = self.job
        often = f"{self.launches} launches by turns, " if self.launches > 1 else ""
        ranks = format_quantity(job.np, "rank")
        cases = format_quantity(len(job.cases), "case")
        return f"job {job.number}: {ranks}, {often}{cases}, {self.version}"


def commands(run: RunPlan) -> list[JobCommand]:
    """Return the commands of a run's jobs, in their order.

    Raises:
        MissingError: A launcher, an MPI library or slots are missing.
        UsageError: A launcher cannot express something.
    """
    return [
        _command(run, job, launch, job.cases)
        for job, launch in zip(run.jobs, launches(run), strict=True)
    ]


def case_command(run: RunPlan, case_id: str) -> JobCommand:
    """Return the command of the job that a case runs in, and of its cases that one's by hand.

    Raises:
        SpbenchError: As for `commands`.
    """
    job, case = next((job, c) for job in run.jobs for c in job.cases if c.id == case_id)
    return _command(run, job, launch_of(run, job), (case,))


def _command(run: RunPlan, job: Job, launch: Launch, cases: tuple[Case, ...]) -> JobCommand:
    added = added_environment(run, launch)
    secrets = select_secrets(launch.spec.rank_env)
    for case in cases:
        secrets |= select_secrets(case.params.get("env") or {})
    words = [quote_assignment(name, value, secrets) for name, value in added.items()]
    lines = standalone(run, launch, cases)
    names = list(select_secrets(added))
    for argv in (launch.command.argv, *(line for _, line in lines)):
        names += name_secrets(argv, secrets)
    by_id = [(case.id, " ".join([*words, quote_words(line, secrets)])) for case, line in lines]
    line = quote_words(launch.command.argv, secrets)
    launches = sum(turn.number == job.number for turn in run.turns)
    return JobCommand(
        job, launch.version, tuple(words), line, tuple(by_id), launches, tuple(dict.fromkeys(names))
    )


def command_lines(run: RunPlan) -> Iterator[str]:
    """Yield the commands as a script that may be read and run.

    Raises:
        SpbenchError: As for `commands`.
    """
    for command in commands(run):
        yield f"# {command.heading}"
        if command.secrets:
            yield f"# set and export before you run these lines: {' '.join(command.secrets)}"
        yield command.line
        for case, line in command.standalone:
            yield f"#   by hand, {case}"
            yield line
