"""The look at a run's hosts before it starts, and the run without those that are not fit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from spbench.engine.plan import RunPlan, Told
from spbench.errors import MissingError
from spbench.launch.detect import traits_named
from spbench.launch.gpu_needs import asked_alike
from spbench.launch.hosts.hosts import Hosts
from spbench.launch.hosts.names import fold
from spbench.launch.jobs import HostsOf, group
from spbench.launch.survey.facts import HostFacts, nameless
from spbench.launch.survey.progress import Say
from spbench.launch.survey.reach import unreachable
from spbench.launch.survey.survey import survey
from spbench.suites.settings import LaunchSettings

_GROUPS = 8
_FOREIGN = "its MPI library is {}, and most hosts have {}"


@dataclass(frozen=True, slots=True)
class Looked:
    """A run after the look at its hosts.

    Attributes:
        plan: The run on hosts that are fit.
        left_out: One sentence for each reason, with the hosts that it is true of.
        told: What the hosts have told; None where they were not asked for it.
    """

    plan: RunPlan
    left_out: tuple[str, ...] = ()
    told: Told | None = field(default=None, repr=False)


async def look(run: RunPlan, say: Say) -> Looked:
    """Ask the hosts of a run, all of a hostfile, as far as the request wants it.

    With ``preflight`` hosts are fit if they lack nothing that ranks need and have the MPI library
    of most; else if ssh reaches them.

    Raises:
        MissingError: A host is not fit, and the run is not to go on without it; or none is left.
    """
    request = run.request
    if not request.preflight and not request.skip_bad_hosts:
        return Looked(run)
    asked = _asked(run)
    told: dict[str, dict[str, HostFacts]] | None = None
    if request.preflight:
        told = {}
        for settings, names in asked:
            answers = survey(names, settings, request.environ, say)
            told[asked_alike(settings)] = {facts.host: facts async for facts in answers}
        bad = unfit(facts for of_hosts in told.values() for facts in of_hosts.values())
    else:
        bad = await unreachable((name for _, names in asked for name in names), say)
    if not bad:
        return Looked(run, (), told)
    sentences = by_reason(bad)
    if not request.skip_bad_hosts:
        more = f"; and {len(sentences) - _GROUPS} reasons more" * (len(sentences) > _GROUPS)
        raise MissingError(
            f"not fit for this run: {'; '.join(sentences[:_GROUPS])}{more} (spbench doctor says "
            "how to fix it, --skip-bad-hosts continues without them)"
        )
    for sentence in sentences:
        say(f"left out: {sentence}")
    return Looked(without(run, bad), tuple(f"left out: {text}" for text in sentences), told)


def unfit(hosts: Iterable[HostFacts]) -> dict[str, str]:
    """Return host -> why it is not fit: it lacks something, or has not the MPI library of most."""
    known = list(hosts)
    bad = {
        facts.host: facts.reason for facts in known if facts.status in ("missing", "unreachable")
    }
    libraries = [facts.mpi for facts in known if facts.mpi and facts.host not in bad]
    usual = max(libraries, key=libraries.count, default="")
    if 2 * libraries.count(usual) > len(libraries):
        foreign = (facts for facts in known if facts.mpi and facts.mpi != usual)
        bad |= {facts.host: _FOREIGN.format(facts.mpi, usual) for facts in foreign}
    return bad


def by_reason(bad: Mapping[str, str]) -> list[str]:
    """Return ``node[03-04]: no answer in 8 s`` for each reason, that of most hosts first."""
    groups: dict[str, list[str]] = {}
    for host, why in bad.items():
        groups.setdefault(nameless(why, host), []).append(host)
    ordered = sorted(groups.items(), key=lambda item: -len(item[1]))
    return [
        f"{fold(sorted(hosts))}: {why if len(hosts) > 1 else bad[hosts[0]]}"
        for why, hosts in ordered
    ]


def without(run: RunPlan, bad: Iterable[str]) -> RunPlan:
    """Return a run on the hosts that are left.

    Raises:
        MissingError: None is left.
    """
    hosts_of = _remaining(run.hosts_of, frozenset(bad))
    cases = (case for job in run.jobs for case in job.cases)
    return replace(run, jobs=group(cases, hosts_of), hosts_of=hosts_of)


def _remaining(hosts_of: HostsOf, bad: frozenset[str]) -> HostsOf:
    def resolve(settings: LaunchSettings) -> Hosts | None:
        hosts = hosts_of(settings)
        if hosts is None:
            return None
        left = tuple(host for host in hosts.entries if host.name not in bad)
        if not left:
            raise MissingError(f"no host of {hosts.source} is fit: spbench doctor says why")
        return Hosts(left, hosts.source)

    return resolve


def _asked(run: RunPlan) -> list[tuple[LaunchSettings, dict[str, None]]]:
    """Return the hosts that ssh is to reach, by settings with which they give the same answer."""
    asked: dict[str, tuple[LaunchSettings, dict[str, None]]] = {}
    for job in run.jobs:
        hosts = run.hosts(job)
        if hosts is not None and not traits_named(job.settings.launcher).places_ranks:
            _, names = asked.setdefault(asked_alike(job.settings), (job.settings, {}))
            names.update(dict.fromkeys(hosts.names))
    return list(asked.values())
