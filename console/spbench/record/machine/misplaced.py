"""Ranks that are not where their job asked for: CPUs, host, adapter and GPU, and what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from spbench.record.case_state import CaseRank, CaseState
from spbench.record.machine.cores import fold_numbers
from spbench.record.run_parts import JobState
from spbench_core.events.rank_facts import RankFacts
from spbench_core.quantities import format_quantity

_Ranks = Mapping[int, CaseRank]


@dataclass(frozen=True, slots=True)
class _Amiss:
    """The place of a rank that is not as asked, and how to correct it."""

    rank: int
    found: str
    asked: str
    remedy: str


def describe_misplaced(cases: Iterable[CaseState], jobs: Mapping[int, JobState]) -> list[str]:
    """Return a sentence for each thing that jobs asked of their ranks' places and did not get.

    Each names the first such rank with its host, and counts the others.
    """
    ranks: dict[int, dict[int, CaseRank]] = {}
    for case in cases:
        for rank, part in case.measured.ranks.items():
            of_job = ranks.setdefault(case.verdict.job or 0, {})
            if rank not in of_job or part.near is False:
                of_job[rank] = part
    groups: dict[tuple[str, str], dict[int, tuple[str, str]]] = {}
    for number, of_job in ranks.items():
        for amiss in _rules(jobs[number], of_job) if number in jobs else ():
            # Jobs have ranks of the same numbers in the same places: each counts once.
            members = groups.setdefault((amiss.asked, amiss.remedy), {})
            members.setdefault(amiss.rank, (of_job[amiss.rank].host, amiss.found))
    return [_describe(asked, remedy, members) for (asked, remedy), members in groups.items()]


def _rules(job: JobState, ranks: _Ranks) -> Iterator[_Amiss]:
    for rule in (_bound, _on_hosts, _with_adapters, _near_gpus):
        yield from rule(job, ranks)


def _describe(asked: str, remedy: str, members: Mapping[int, tuple[str, str]]) -> str:
    first = min(members)
    host, found = members[first]
    others = len(members) - 1
    more = f" (and {format_quantity(others, 'more rank')})" if others else ""
    return f"rank {first} on {host}{more} {found}, but {asked}; {remedy}"


def _bound(job: JobState, ranks: _Ranks) -> Iterator[_Amiss]:
    bind = str(job.requested_placement.get("bind"))
    bound = {rank: part for rank, part in ranks.items() if part.facts.cpus}
    on_cpu = Counter((part.host, cpu) for part in bound.values() for cpu in part.facts.cpus)
    hosts: dict[str, set[int]] = {}
    for part in bound.values():
        hosts.setdefault(part.host, set()).update(part.facts.cpus)
    asked = _ASKED.get(bind, "")
    remedy = _remedy(job)
    for rank, part in bound.items():
        shared = any(on_cpu[part.host, cpu] > 1 for cpu in part.facts.cpus)
        if asked and (found := _found(bind, part.facts, shared, hosts[part.host])):
            yield _Amiss(rank, found, asked, remedy)


_ASKED = {
    "own": "each rank should have cores of its own",
    "core": "bind: core asks for one core of its own",
    "numa": "bind: numa asks for CPUs of one NUMA node",
    "none": "bind: none asks for all CPUs that ranks of its host have",
}


def _found(bind: str, facts: RankFacts, shared: bool, of_host: set[int]) -> str:
    """Return a rank's CPUs as words, where they are not what ``bind`` asks for; else nothing."""
    cpus = f"may run on CPUs {fold_numbers(facts.cpus)}"
    match bind:
        case "numa":
            nodes = ", ".join(map(str, facts.nodes))
            return f"{cpus} of NUMA nodes {nodes}" if len(facts.nodes) > 1 else ""
        case "none":
            whole = tuple(sorted(of_host))
            return f"{cpus} of {fold_numbers(whole)} only" if set(facts.cpus) != of_host else ""
        case "core" if (facts.cores or 1) > 1:
            return f"{cpus}, which are {facts.cores} cores"
        case "own" if (facts.cores or 1) > 1 and len(facts.cpus) == facts.host_cpus:
            return f"{cpus}, all that its host has"
    return f"{cpus}, and so may another rank" if shared else ""


def _remedy(job: JobState) -> str:
    """Return what mends a binding: the variable that undoes it, else what shows where it fails."""
    if job.requested_placement.get("undone_by"):
        undone_by = job.requested_placement["undone_by"]
        return f"remove {undone_by} from launch.env and from the environment"
    shown = job.requested_placement.get("shown_by")
    hint = f" ({shown} shows what {job.launcher} does)" if shown else ""
    return f"check launch.args, setup lines and the container{hint}"


def _on_hosts(job: JobState, ranks: _Ranks) -> Iterator[_Amiss]:
    """Ranks of one line of the hostfile that are not all on one host."""
    for name, members, _ in _lines(job):
        there = Counter(ranks[rank].host for rank in members if rank in ranks)
        usual = max(there, key=lambda host: (host == name, there[host]), default=None)
        for rank in members:
            if rank in ranks and ranks[rank].host != usual:
                asked = f"the hostfile places it on {name}"
                yield _Amiss(rank, "runs there", asked, "check launch.args and the allocation")


def _with_adapters(job: JobState, ranks: _Ranks) -> Iterator[_Amiss]:
    """Ranks on hosts that lack the adapter which the hostfile names."""
    for name, members, hca in _lines(job):
        wanted = str(hca or "").partition(":")[0]
        for rank in members if wanted else ():
            fabric = ranks[rank].facts.fabric if rank in ranks else None
            if fabric is not None and wanted not in fabric.split(","):
                found = f"has {'no adapter' if fabric == 'tcp' else f'adapters {fabric}'}"
                asked = f"the hostfile gives {wanted} to {name}"
                yield _Amiss(rank, found, asked, "name an adapter that it has, or none")


def _lines(job: JobState) -> Iterator[tuple[str, list[int], str | None]]:
    """Yield host, ranks and adapter of each line of the hostfile."""
    left = iter(range(job.np))
    for name, count, hca in job.requested_placement.get("hosts", ()):
        yield name, list(islice(left, count)), hca


def _near_gpus(job: JobState, ranks: _Ranks) -> Iterator[_Amiss]:
    for rank, part in ranks.items():
        if part.near is False:
            cpus = fold_numbers(part.facts.cpus)
            found = f"computes on {part.device} with CPUs {cpus} of another NUMA node"
            asked = "a GPU is faster with CPUs of its own NUMA node"
            remedy = "set launch.bind: numa, or order the GPUs by CUDA_VISIBLE_DEVICES"
            yield _Amiss(rank, found, asked, remedy)
