"""From what the user asked for to jobs: everything that can be refused before a launch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from spbench.engine.address import addresses_of, check_tunnel, ports_of
from spbench.engine.checked_cases import check_cases
from spbench.engine.connections.descriptors import FILES_OF_JOB, check_connections
from spbench.errors import MissingError, UsageError, did_you_mean
from spbench.launch.choice import NOTHING_CHOSEN, LaunchChoice
from spbench.launch.devices import check_devices
from spbench.launch.fan_in import connections
from spbench.launch.gpu_needs import check_gpus
from spbench.launch.hosts.hostfiles import given_hosts
from spbench.launch.hosts.hosts import Hosts
from spbench.launch.hosts.names import fold, is_local
from spbench.launch.jobs import (
    HostsOf,
    Job,
    Launch,
    by_turns,
    chosen_elsewhere,
    each_repeat,
    group,
    hosts_for,
    prepare,
)
from spbench.launch.launcher import JobSpec, traits_of
from spbench.launch.program import program_by_hand, standalone_arguments, wrapped
from spbench.launch.survey.facts import HostFacts
from spbench.launch.survey.progress import Say, nobody
from spbench.launch.survey.reach import unreachable, unresolved
from spbench.record.hidden_values import hide_override, restore_suite
from spbench.record.runs.folder import RunFolder
from spbench.suites.case import Case, Suite
from spbench.suites.inject import inject_faults
from spbench.suites.launcher_names import AUTO, list_launcher_names
from spbench.suites.loader import load_suite_file
from spbench.suites.select import select_matching, select_named
from spbench.suites.shipped import locate_suite_file
from spbench.suites.site_file import find_system
from spbench.suites.systems import choose_references, depends_on_system
from spbench_core.events.rank_events import ENV_COLLECTOR, ENV_FAN_IN, ENV_RUN, ENV_TOKEN

Told = Mapping[str, Mapping[str, HostFacts]]
"""The answers of hosts, by `gpu_needs.asked_alike` of the settings that they were asked with."""
PRIVATE_NAMES = dict.fromkeys((ENV_COLLECTOR, ENV_TOKEN, ENV_RUN), "")
"""The variables that every launch hands to its ranks; their values are known when it starts."""
_OF_CONSOLE = {*PRIVATE_NAMES, ENV_FAN_IN}
"""The variables that a rank without a console has no use for."""


@dataclass(frozen=True, slots=True)
class Request:
    """A run as asked for on the command line.

    Attributes:
        inject: The faults to plant, ``FAULT`` or ``FAULT@CASE``; each case takes one at most.
        preflight: Whether all hosts are asked what they have, before anything starts.
        skip_bad_hosts: Whether the run goes on without hosts that are not fit.
        shared: Whether others may read the run's folder.
        system: The system of references in expectations; None: that of the site file or the host.
        retries: How often a case that did not pass is tried again.
        fail_on_flaky: Whether a run fails whose cases did not all pass at once.
    """

    suite: Path
    home: Path
    environ: Mapping[str, str]
    argv: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    keyword: str | None = None
    cases: tuple[str, ...] = ()
    inject: tuple[str, ...] = ()
    chosen: LaunchChoice = NOTHING_CHOSEN
    budget: float | None = None
    preflight: bool = False
    skip_bad_hosts: bool = False
    shared: bool = False
    system: str | None = None
    retries: int = 0
    fail_on_flaky: bool = False

    def noted(self) -> dict[str, Any]:
        """Return what run.json keeps, so that the same can be asked for again."""
        given = ((field.name, getattr(self.chosen, field.name)) for field in fields(self.chosen))
        return {
            "overrides": [hide_override(text) for text in self.overrides],
            "keyword": self.keyword,
            "cases": list(self.cases),
            "inject": list(self.inject),
            "retries": self.retries,
            "fail_on_flaky": self.fail_on_flaky,
            "chosen": {name: str(value) for name, value in given if value is not None},
        }


@dataclass(frozen=True, slots=True)
class RunPlan:
    """A run that nothing speaks against so far.

    Attributes:
        resumed: The folder of the run that goes on; None: it is a new run.
    """

    request: Request
    suite: Suite
    jobs: tuple[Job, ...]
    hosts_of: HostsOf
    resumed: RunFolder | None = None

    @property
    def turns(self) -> tuple[Job, ...]:
        """The jobs in the order in which they run, numbered as in ``jobs``: one a launch."""
        return self.turns_of(self.jobs)

    def turns_of(self, jobs: tuple[Job, ...]) -> tuple[Job, ...]:
        """The same of some of the jobs, or of some of their cases."""
        repeated = any(case.repeat > 1 for job in jobs for case in job.cases)
        if self.suite.order == "together" or not repeated:
            return tuple(each_repeat(jobs))
        return tuple(by_turns(jobs))

    def hosts(self, job: Job) -> Hosts | None:
        """The hosts of a job; None: this machine."""
        hosts = self.hosts_of(job.settings)
        return hosts if hosts is None or job.host is None else hosts.only(job.host)


def runs_here(run: RunPlan, job: Job) -> bool:
    """Return whether all ranks of a job are on this machine, so far as that is known."""
    hosts = run.hosts(job)
    if hosts is None:
        return not chosen_elsewhere(job.settings, hosts, run.request.environ)
    return all(is_local(name) for name in hosts.names)


def plan(request: Request, warn: Say = nobody) -> RunPlan:
    """Read the suite and the hosts, select cases, plant faults and group jobs.

    ``warn`` takes a message for each site file that was skipped.

    Raises:
        UsageError: Something of it is wrong.
        NothingSelected: No case is left.
    """
    return plan_suite(request, load_suite_file(request.suite, settings_of(request)), warn)


def settings_of(request: Request) -> tuple[str, ...]:
    """Return what a request sets in its suite, as ``--set`` takes it.

    Raises:
        UsageError: Its launcher is none.
    """
    launcher = request.chosen.launcher
    chosen = [] if launcher is None else [f"launch.launcher={_known(launcher)}"]
    if request.chosen.oversubscribe:
        chosen.append("launch.oversubscribe=force")
    return (*request.overrides, *chosen)


def _known(launcher: str) -> str:
    """Return the name of a launcher, which is an option here, and no line of the suite."""
    known = (AUTO, *list_launcher_names())
    if launcher not in known:
        near = did_you_mean(launcher, known)
        told = f"--launcher {launcher}: unknown launcher{near}; known are {', '.join(known)}"
        raise UsageError(f"{told} (spbench script writes jobs for batch systems)")
    return launcher


def plan_suite(request: Request, suite: Suite, warn: Say = nobody) -> RunPlan:
    """Return the plan of a suite that was read with `settings_of` the request.

    ``warn`` takes a message for each site file that was skipped.

    Raises:
        UsageError: Something of the request is wrong.
        NothingSelected: No case is left.
    """
    suite = restore_suite(suite, request.environ)
    if depends_on_system(suite.cases):
        system = request.system or find_system(request.home, warn)
        request = replace(request, system=system)
        suite = replace(suite, cases=choose_references(suite.cases, system))
    cases = select_named(suite.cases, request.cases) if request.cases else suite.cases
    cases = select_matching(cases, request.keyword) if request.keyword else cases
    cases = inject_faults(cases, request.inject)
    chosen = request.chosen
    ports_of(chosen.port_range)
    addresses_of(chosen.console_address)
    given = given_hosts(chosen.hostfile, chosen.hosts)
    hosts_of = hosts_for(given, locate_suite_file(suite.path).parent, chosen.exclude_hosts)
    return RunPlan(request, suite, group(cases, hosts_of), hosts_of)


def launches(run: RunPlan) -> list[Launch]:
    """Return the launch of each job, without what only a running console knows.

    Raises:
        MissingError: A launcher, an MPI library or slots are missing.
        UsageError: A launcher cannot express something.
    """
    return [launch_of(run, job) for job in run.jobs]


def launch_of(run: RunPlan, job: Job) -> Launch:
    """Return a job's launch; when it starts, `PRIVATE_NAMES` get their values.

    Raises:
        SpbenchError: As for `launches`.
    """
    request = run.request
    hosts = run.hosts(job)
    assume = request.chosen.assume
    return prepare(job, hosts, request.home, PRIVATE_NAMES, request.environ, assume)


def standalone(run: RunPlan, launch: Launch, cases: Iterable[Case]) -> list[tuple[Case, list[str]]]:
    """Return the lines that run cases of a launch one by one without the console.

    A program's is the launcher's line with the program itself, where it needs no placeholders.
    """
    given = launch.spec.private_env.items()
    kept = {name: value for name, value in given if name not in _OF_CONSOLE}
    spec = replace(launch.spec, private_env=kept)
    lines = ((case, _by_hand(run, launch, spec, case)) for case in cases)
    return [(case, line) for case, line in lines if line is not None]


def _by_hand(run: RunPlan, launch: Launch, spec: JobSpec, case: Case) -> list[str] | None:
    is_program = case.entry.starts_program
    words = program_by_hand(case) if is_program else standalone_arguments(case)
    if words is None:
        return None
    program = wrapped(spec.settings, ()) if is_program else spec.program
    spec = replace(spec, program=(*program, *words))
    command = launch.launcher.command(launch.found.executable, spec, run.request.environ)
    return list(command.argv)


def added_environment(run: RunPlan, launch: Launch) -> dict[str, str]:
    """Return what a launch adds to the console's environment, or changes in it."""
    given = run.request.environ
    return {
        name: value
        for name, value in sorted(launch.command.env.items())
        if given.get(name) != value and name not in _OF_CONSOLE
    }


async def check_before(
    run: RunPlan, prepared: list[Launch], say: Say = nobody, told: Told | None = None
) -> None:
    """Refuse what can be seen beforehand.

    These are more ranks than open files, more ranks than devices where each wants its own, cases
    that the workers cannot run, hosts that ssh does not reach, and GPUs that are missing.

    ``say`` takes lines on how far it is; hosts that have told all there is are not asked again.

    Raises:
        MissingError: naming what is missing, and where.
        UsageError: Tunnels would lead to hosts that are not known, or a case cannot run.
    """
    for job in run.jobs:
        unknown = chosen_elsewhere(job.settings, run.hosts(job), run.request.environ)
        check_tunnel(job.settings.tunnel, unknown=unknown)
    check_devices([(job, run.hosts(job)) for job in run.jobs], run.request.environ)
    for number in connections_at_once(run.jobs, prepared):
        check_connections(number)
    for sentence in await check_networks(run, say):
        say(f"{sentence}; the ranks find out")
    if told is None:
        await check_hosts(run, prepared, say)
    await _check_names(prepared)
    jobs = [(job, launch, run.hosts(job)) for job, launch in zip(run.jobs, prepared, strict=True)]
    await check_gpus(jobs, run.request.environ, say, told)


async def check_networks(run: RunPlan, say: Say = nobody) -> list[str]:
    """Refuse cases that the workers cannot run; return a message for each unchecked group.

    Raises:
        SuiteError: Cases cannot run.
    """
    cases = [case for job in run.jobs for case in job.cases]
    return await check_cases(run.suite, cases, run.request.environ, say)


def connections_at_once(jobs: Iterable[Job], prepared: list[Launch]) -> Iterator[int]:
    """Yield the connections of each job; of those on hosts of their own, all that run at once."""
    of_hosts: dict[frozenset[str], list[int]] = {}
    for job, launch in zip(jobs, prepared, strict=True):
        number = connections(job.settings, job.np, launch.placement)
        if job.host is None:
            yield number
        else:
            beside = of_hosts.setdefault(frozenset(case.id for case in job.cases), [])
            beside.append(number + FILES_OF_JOB)
            yield sum(sorted(beside)[-job.at_once :])


async def check_hosts(run: RunPlan, prepared: list[Launch], say: Say = nobody) -> None:
    """Refuse hosts that ssh cannot reach.

    Raises:
        MissingError: naming each of them, and why.
    """
    names: dict[str, None] = {}
    for launch in prepared:
        if not traits_of(launch.launcher).places_ranks:
            names.update(dict.fromkeys(placed.host for placed in launch.placement))
    reasons = await unreachable(names, say)
    if reasons:
        told = "; ".join(f"{host}: {why}" for host, why in sorted(reasons.items())[:8])
        more = f" and {len(reasons) - 8} more" if len(reasons) > 8 else ""
        raise MissingError(
            f"cannot reach {told}{more}; check the hostfile and that ssh needs no password, "
            "or leave hosts out with --exclude-hosts, or all of these with --skip-bad-hosts"
        )


async def _check_names(prepared: list[Launch]) -> None:
    """Refuse names that ssh alone knows, where the launcher resolves them itself."""
    for launch in prepared:
        names = [placed.host for placed in launch.placement]
        aliases = await unresolved(names) if launch.launcher.resolves_names else []
        if aliases:
            name = launch.launcher.name
            raise MissingError(
                f"{name} cannot reach {fold(aliases)}: the name is an alias of ssh's "
                "configuration, and this launcher asks the resolver, which does not know it; give "
                "the host's own name or address"
            )
