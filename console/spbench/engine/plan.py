"""The plan of a run: from a request to jobs, and all checks before a launch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from spbench.engine.case_check import check_cases
from spbench.engine.connections.descriptors import FILES_OF_JOB, check_connections
from spbench.engine.connections.endpoint import check_tunnel, parse_addresses, parse_ports
from spbench.errors import Advice, MissingError, UsageError, did_you_mean
from spbench.launch.choice import DEFAULT_CHOICE, LaunchChoice
from spbench.launch.devices import check_devices
from spbench.launch.gpu_needs import check_gpus
from spbench.launch.hosts.hostfiles import HostsFinder, make_hosts_finder, read_host_options
from spbench.launch.hosts.hosts import Hosts
from spbench.launch.hosts.names import fold, is_local
from spbench.launch.jobs import (
    Job,
    Launch,
    count_connections,
    group_cases,
    interleave_repeats,
    may_choose_hosts,
    prepare_launch,
    split_program_repeats,
)
from spbench.launch.launcher import get_traits
from spbench.launch.survey.facts import HostFacts
from spbench.launch.survey.progress import Progress, ignore_progress
from spbench.launch.survey.reach import find_unreachable, find_unresolved
from spbench.record.hidden_values import hide_override, restore_suite
from spbench.record.runs.folder import RunFolder
from spbench.suites.case import Suite
from spbench.suites.expectations import choose_references, depends_on_system
from spbench.suites.inject import check_fault_rank, inject_faults
from spbench.suites.launcher_names import AUTO, list_launcher_names
from spbench.suites.loader import load_suite_file
from spbench.suites.select import select_matching, select_named
from spbench.suites.shipped import resolve_shipped_path
from spbench.suites.site_file import find_system
from spbench_core.events.rank_events import ENV_COLLECTOR, ENV_RUN, ENV_TOKEN

HostFactsBySettings = Mapping[str, Mapping[str, HostFacts]]
"""The answers of hosts, by `gpu_needs.survey_key` of the settings of the query."""
PRIVATE_NAMES = dict.fromkeys((ENV_COLLECTOR, ENV_TOKEN, ENV_RUN), "")
"""Variables that every launch passes to its ranks, with values that are known at its start."""
_MAX_HOSTS = 8


@dataclass(frozen=True, slots=True)
class Request:
    """A run as requested on the command line.

    Attributes:
        inject: The faults to plant, ``FAULT[,rank=RANK][@CASE]``, at most one per case.
        preflight: Whether all hosts are surveyed before anything starts.
        skip_bad_hosts: Whether the run continues without unfit hosts.
        shared: Whether other users may read the run's folder.
        system: The system of references in expectations; None means that of the site file or host.
        retries: The number of further attempts of a case that did not pass.
        fail_on_flaky: Whether a run fails if a case passed only after another attempt.
    """

    suite: Path
    home: Path
    environ: Mapping[str, str]
    argv: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    keyword: str | None = None
    cases: tuple[str, ...] = ()
    inject: tuple[str, ...] = ()
    launch_choice: LaunchChoice = DEFAULT_CHOICE
    budget: float | None = None
    preflight: bool = False
    skip_bad_hosts: bool = False
    shared: bool = False
    system: str | None = None
    retries: int = 0
    fail_on_flaky: bool = False

    def to_record(self) -> dict[str, Any]:
        """Return the part of run.json from which the same run can be requested again."""
        options = {
            option.name: getattr(self.launch_choice, option.name)
            for option in fields(self.launch_choice)
        }
        return {
            "overrides": [hide_override(text) for text in self.overrides],
            "keyword": self.keyword,
            "cases": list(self.cases),
            "inject": list(self.inject),
            "retries": self.retries,
            "fail_on_flaky": self.fail_on_flaky,
            "chosen": {name: str(option) for name, option in options.items() if option is not None},
        }


@dataclass(frozen=True, slots=True)
class RunPlan:
    """A validated run: suite loaded, cases selected, jobs grouped.

    Attributes:
        resumed: The folder of the run to continue; None for a new run.
    """

    request: Request
    suite: Suite
    jobs: tuple[Job, ...]
    hosts_finder: HostsFinder
    resumed: RunFolder | None = None

    @property
    def launch_order(self) -> tuple[Job, ...]:
        """The jobs in the order in which they run, one per launch."""
        return self.order_jobs(self.jobs)

    def order_jobs(self, jobs: tuple[Job, ...]) -> tuple[Job, ...]:
        """Return these jobs, or parts of them, in the order in which they run."""
        repeated = any(case.repeat > 1 for job in jobs for case in job.cases)
        if self.suite.order == "together" or not repeated:
            return tuple(split_program_repeats(jobs))
        return tuple(interleave_repeats(jobs))

    def find_hosts(self, job: Job) -> Hosts | None:
        """Return the hosts of a job; None means this machine."""
        hosts = self.hosts_finder(job.settings)
        return hosts if hosts is None or job.host is None else hosts.select(job.host)


def runs_locally(plan: RunPlan, job: Job) -> bool:
    """Whether all ranks of a job are on this machine, as far as known."""
    hosts = plan.find_hosts(job)
    if hosts is None:
        return not may_choose_hosts(job.settings, hosts, plan.request.environ)
    return all(is_local(name) for name in hosts.names)


def plan_run(request: Request, warn: Progress = ignore_progress) -> RunPlan:
    """Read the suite and the hosts, select cases, plant faults and group jobs.

    ``warn`` takes a message for each site file that was skipped.

    Raises:
        UsageError: The suite or an option is invalid.
        NothingSelected: No case is left.
    """
    return plan_suite(request, load_suite_file(request.suite, build_settings(request)), warn)


def build_settings(request: Request) -> tuple[str, ...]:
    """Return the settings of a request in the form of ``--set``.

    Raises:
        UsageError: The launcher is unknown.
    """
    settings = list(request.overrides)
    launcher = request.launch_choice.launcher
    if launcher is not None:
        _check_launcher_name(launcher)
        settings.append(f"launch.launcher={launcher}")
    if request.launch_choice.oversubscribe:
        settings.append("launch.oversubscribe=force")
    return tuple(settings)


def merge_overrides(overrides: Iterable[str], added: Sequence[str]) -> tuple[str, ...]:
    """Return ``KEY=VALUE`` texts, where added ones replace those with their keys."""
    keys = {text.partition("=")[0] for text in added}
    return (*(text for text in overrides if text.partition("=")[0] not in keys), *added)


def _check_launcher_name(name: str) -> None:
    # checked here, so that the message names the option and not a line of the suite
    names = (AUTO, *list_launcher_names())
    if name not in names:
        suggestion = did_you_mean(name, names)
        raise UsageError(
            f"--launcher {name}: unknown launcher{suggestion}; known are {', '.join(names)} "
            "(spbench script writes jobs for batch systems)"
        )


def plan_suite(request: Request, suite: Suite, warn: Progress = ignore_progress) -> RunPlan:
    """Return the plan of a suite that was read with the settings of the request.

    ``warn`` takes a message for each site file that was skipped.

    Raises:
        UsageError: An option is invalid.
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

    choice = request.launch_choice
    # parsed here only to reject invalid options before the first launch
    parse_ports(choice.port_range)
    parse_addresses(choice.console_address)
    hosts = read_host_options(choice.hostfile, choice.hosts)
    hosts_finder = make_hosts_finder(
        hosts, resolve_shipped_path(suite.path).parent, choice.exclude_hosts
    )
    jobs = group_cases(cases, hosts_finder)
    for job in jobs:
        for case in job.cases:
            check_fault_rank(case, job.np)
    return RunPlan(request, suite, jobs, hosts_finder)


def prepare_launches(plan: RunPlan) -> list[Launch]:
    """Return the launch of each job, without values that only a running console knows.

    Raises:
        MissingError: A launcher, an MPI library or slots are missing.
        UsageError: A launcher cannot express a host or a setting.
    """
    return [prepare_job(plan, job) for job in plan.jobs]


def prepare_job(plan: RunPlan, job: Job) -> Launch:
    """Return a job's launch. When it starts, `PRIVATE_NAMES` get their values.

    Raises:
        SpbenchError: Like for `prepare_launches`.
    """
    request = plan.request
    hosts = plan.find_hosts(job)
    assume = request.launch_choice.assume
    return prepare_launch(job, hosts, request.home, PRIVATE_NAMES, request.environ, assume)


async def check_before_start(
    plan: RunPlan,
    launches: list[Launch],
    progress: Progress = ignore_progress,
    host_facts: HostFactsBySettings | None = None,
) -> None:
    """Reject a run that is certain to fail.

    Reasons are more connections than open files, more ranks than devices if each needs its own,
    cases that the workers cannot run, hosts that ssh does not reach, and missing GPUs.

    Args:
        plan: The plan of the run.
        launches: The launch of each job.
        progress: Takes lines on the progress.
        host_facts: Answers of hosts that were surveyed; these are not queried again.

    Raises:
        MissingError: The message names the missing resource and its host.
        UsageError: Tunnels would lead to unknown hosts, or a case cannot run.
    """
    environ = plan.request.environ
    for job in plan.jobs:
        has_unknown_hosts = may_choose_hosts(job.settings, plan.find_hosts(job), environ)
        check_tunnel(job.settings.tunnel, has_unknown_hosts=has_unknown_hosts)
    check_devices([(job, plan.find_hosts(job)) for job in plan.jobs], environ)
    for number in count_concurrent_connections(plan.jobs, launches):
        check_connections(number)
    for message in await check_networks(plan, progress):
        progress(f"{message}; the ranks find out")
    if host_facts is None:
        await check_hosts(plan, launches, progress)
    await _reject_ssh_aliases(launches)
    jobs = [
        (job, launch, plan.find_hosts(job)) for job, launch in zip(plan.jobs, launches, strict=True)
    ]
    await check_gpus(jobs, environ, progress, host_facts)


async def check_networks(plan: RunPlan, progress: Progress = ignore_progress) -> list[str]:
    """Reject cases that the workers cannot run; return messages on unchecked ones.

    Raises:
        SuiteError: Cases cannot run.
    """
    cases = [case for job in plan.jobs for case in job.cases]
    on_other_hosts = not all(runs_locally(plan, job) for job in plan.jobs)
    environ = plan.request.environ
    return await check_cases(plan.suite, cases, environ, progress, on_other_hosts=on_other_hosts)


def count_concurrent_connections(jobs: Iterable[Job], launches: list[Launch]) -> Iterator[int]:
    """Yield the number of connections that the console has while each job runs.

    For a job on its own host, the number includes the connections and files of the jobs of the
    same cases that run at the same time. These are at worst the largest jobs so far.
    """
    connections_by_cases: dict[frozenset[str], list[int]] = {}
    for job, launch in zip(jobs, launches, strict=True):
        num_connections = count_connections(job.settings, job.np, launch.placement)
        if job.host is None:
            yield num_connections
        else:
            connections_of_jobs = connections_by_cases.setdefault(
                frozenset(case.id for case in job.cases), []
            )
            connections_of_jobs.append(num_connections + FILES_OF_JOB)
            yield sum(sorted(connections_of_jobs)[-job.max_concurrent_hosts :])


async def check_hosts(
    plan: RunPlan, launches: list[Launch], progress: Progress = ignore_progress
) -> None:
    """Reject hosts that ssh cannot reach.

    Raises:
        MissingError: The message names the hosts and the reasons.
    """
    hosts_to_reach: dict[str, None] = {}
    for launch in launches:
        if not get_traits(launch.launcher).places_ranks:
            hosts_to_reach.update(dict.fromkeys(block.host for block in launch.placement))
    reason_by_host = await find_unreachable(hosts_to_reach, progress)
    if reason_by_host:
        shown_reasons = sorted(reason_by_host.items())[:_MAX_HOSTS]
        problems = "; ".join(f"{host}: {reason}" for host, reason in shown_reasons)
        hidden = len(reason_by_host) - len(shown_reasons)
        more = f" and {hidden} more" if hidden else ""
        raise MissingError(
            f"cannot reach {problems}{more}; check the hostfile and that ssh needs no password, "
            f"{Advice.LEAVE_HOSTS_OUT.value}"
        )


async def _reject_ssh_aliases(launches: list[Launch]) -> None:
    """Reject aliases of ssh if the launcher resolves the names of hosts itself."""
    for launch in launches:
        names = [block.host for block in launch.placement]
        aliases = await find_unresolved(names) if launch.launcher.resolves_names else []
        if aliases:
            launcher = launch.launcher.name
            raise MissingError(
                f"{launcher} cannot reach {fold(aliases)}: the name is an alias of ssh's "
                "configuration, and this launcher asks the resolver, which does not know it; give "
                "the host's own name or address"
            )
