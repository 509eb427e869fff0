"""Preflight: check the hosts of a run, and drop unfit hosts on request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from spbench.engine.plan import HostFactsBySettings, RunPlan
from spbench.errors import Advice, MissingError
from spbench.launch.detect import load_traits
from spbench.launch.gpu_needs import survey_key
from spbench.launch.hosts.hostfiles import HostsFinder
from spbench.launch.hosts.hosts import Hosts
from spbench.launch.hosts.names import fold
from spbench.launch.jobs import group_cases
from spbench.launch.survey.facts import HostFacts, replace_host_name
from spbench.launch.survey.progress import Progress
from spbench.launch.survey.reach import find_unreachable
from spbench.launch.survey.survey import survey_hosts
from spbench.suites.settings import LaunchSettings
from spbench_core.number_text import format_quantity

_MAX_REASONS = 8
_OTHER_LIBRARY = "its MPI library is {}, and most hosts have {}"


@dataclass(frozen=True, slots=True)
class PreflightResult:
    """A run plan restricted to fit hosts.

    Attributes:
        plan: The plan to execute.
        excluded: One message per reason, with the hosts to which it applies.
        host_facts: Answers of the survey by settings and host; None without a survey.
    """

    plan: RunPlan
    excluded: tuple[str, ...] = ()
    host_facts: HostFactsBySettings | None = field(default=None, repr=False)


async def run_preflight(plan: RunPlan, progress: Progress) -> PreflightResult:
    """Check all hosts of a run and return the plan to execute.

    With ``preflight``, a host is fit if it has everything that ranks need, and the MPI library of
    most hosts. With only ``skip_bad_hosts``, a host is fit if ssh reaches it.

    Raises:
        MissingError: A host is unfit and ``skip_bad_hosts`` is not set, or no fit host is left.
    """
    request = plan.request
    if not request.preflight and not request.skip_bad_hosts:
        return PreflightResult(plan)

    hosts_by_settings = _group_hosts(plan)
    host_facts: dict[str, dict[str, HostFacts]] | None = None
    if request.preflight:
        host_facts = {}
        for settings, names in hosts_by_settings:
            answers = survey_hosts(names, settings, request.environ, progress)
            host_facts[survey_key(settings)] = {facts.host: facts async for facts in answers}
        reason_by_host = find_unfit_hosts(
            facts for by_host in host_facts.values() for facts in by_host.values()
        )
    else:
        reason_by_host = await find_unreachable(
            (name for _, names in hosts_by_settings for name in names), progress
        )
    if not reason_by_host:
        return PreflightResult(plan, (), host_facts)

    messages = group_by_reason(reason_by_host)
    if not request.skip_bad_hosts:
        hidden = len(messages) - _MAX_REASONS
        more = f"; and {format_quantity(hidden, 'more reason')}" if hidden > 0 else ""
        raise MissingError(
            f"not fit for this run: {'; '.join(messages[:_MAX_REASONS])}{more} "
            f"({Advice.FIX_OR_SKIP_HOSTS.value})"
        )
    excluded = tuple(f"left out: {message}" for message in messages)
    for line in excluded:
        progress(line)
    return PreflightResult(exclude_hosts(plan, reason_by_host), excluded, host_facts)


def find_unfit_hosts(hosts: Iterable[HostFacts]) -> dict[str, str]:
    """Return a reason for each host that is unfit, by host.

    Such a host is unreachable, lacks something, or has another MPI library than more than half of
    the hosts.
    """
    answers = list(hosts)
    reasons = {facts.host: facts.reason for facts in answers if not facts.status.is_fit}
    candidates = [facts for facts in answers if facts.mpi and facts.host not in reasons]
    libraries = [facts.mpi for facts in candidates]
    common = max(libraries, key=libraries.count, default="")
    if 2 * libraries.count(common) > len(libraries):
        reasons |= {
            facts.host: _OTHER_LIBRARY.format(facts.mpi, common)
            for facts in candidates
            if facts.mpi != common
        }
    return reasons


def group_by_reason(reasons: Mapping[str, str]) -> list[str]:
    """Return ``node[03-04]: no answer in 8 s`` for each reason, the largest first."""
    hosts_by_reason: dict[str, list[str]] = {}
    for host, reason in reasons.items():
        hosts_by_reason.setdefault(replace_host_name(reason, host), []).append(host)
    ordered = sorted(hosts_by_reason.items(), key=lambda group: -len(group[1]))
    return [
        f"{fold(sorted(hosts))}: {reason if len(hosts) > 1 else reasons[hosts[0]]}"
        for reason, hosts in ordered
    ]


def exclude_hosts(plan: RunPlan, names: Iterable[str]) -> RunPlan:
    """Return a run without these hosts.

    Raises:
        MissingError: No host is left.
    """
    hosts_finder = _exclude_from_finder(plan.hosts_finder, frozenset(names))
    cases = (case for job in plan.jobs for case in job.cases)
    return replace(plan, jobs=group_cases(cases, hosts_finder), hosts_finder=hosts_finder)


def _exclude_from_finder(hosts_finder: HostsFinder, names: frozenset[str]) -> HostsFinder:
    def find_hosts(settings: LaunchSettings) -> Hosts | None:
        hosts = hosts_finder(settings)
        if hosts is None:
            return None
        remaining = tuple(host for host in hosts.entries if host.name not in names)
        if not remaining:
            raise MissingError(f"no host of {hosts.source} is fit: spbench doctor says why")
        return Hosts(remaining, hosts.source)

    return find_hosts


def _group_hosts(plan: RunPlan) -> list[tuple[LaunchSettings, dict[str, None]]]:
    """Return hosts that ssh must reach, grouped by settings with the same survey key."""
    group_by_key: dict[str, tuple[LaunchSettings, dict[str, None]]] = {}
    for job in plan.jobs:
        hosts = plan.find_hosts(job)
        if hosts is not None and not load_traits(job.settings.launcher).places_ranks:
            _, names = group_by_key.setdefault(survey_key(job.settings), (job.settings, {}))
            names.update(dict.fromkeys(hosts.names))
    return list(group_by_key.values())
