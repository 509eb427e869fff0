"""Ranks that are not at the requested CPUs, host, adapter or GPU, with the remedy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from spbench.record.case_parts import CaseRank
from spbench.record.case_state import CaseState
from spbench.record.number_formatting import fold_numbers
from spbench.record.run_parts import JobState
from spbench_core.events.rank_events import RankFacts
from spbench_core.number_text import format_quantity

_Ranks = Mapping[int, CaseRank]


@dataclass(frozen=True, slots=True)
class _Misplacement:
    """The location of a rank that differs from the requested one, and a remedy."""

    rank: int
    actual: str
    requested: str
    remedy: str


def describe_misplaced(cases: Iterable[CaseState], jobs: Mapping[int, JobState]) -> list[str]:
    """Return a message for each request on the location of ranks that was not met.

    Each names the first such rank with its host, and counts the others.
    """
    ranks_by_job: dict[int, dict[int, CaseRank]] = {}
    for case in cases:
        for job, rank, state in _assign_ranks(case, jobs):
            job_ranks = ranks_by_job.setdefault(job.number, {})
            if rank not in job_ranks or state.is_near is False:
                job_ranks[rank] = state
    members_by_request: dict[tuple[str, str], dict[int, tuple[str, str]]] = {}
    for job_number, job_ranks in ranks_by_job.items():
        for misplacement in _find_misplaced(jobs[job_number], job_ranks):
            # Ranks of several jobs may have the same number and location: they count once.
            members = members_by_request.setdefault(
                (misplacement.requested, misplacement.remedy), {}
            )
            members.setdefault(
                misplacement.rank, (job_ranks[misplacement.rank].host, misplacement.actual)
            )
    return [
        _describe(requested, remedy, members)
        for (requested, remedy), members in members_by_request.items()
    ]


def _assign_ranks(
    case: CaseState, jobs: Mapping[int, JobState]
) -> Iterator[tuple[JobState, int, CaseRank]]:
    """Yield the ranks of a case, each with its last job.

    If the case has a job on each host, its ranks belong to different jobs.
    """
    unassigned = dict(case.measured.ranks)
    last_number = case.execution.job or 0
    for number in sorted(jobs, key=lambda number: (number == last_number, number), reverse=True):
        if not unassigned:
            return
        job = jobs[number]
        for rank in job.rank_range if case.id in job.cases else ():
            if rank in unassigned:
                yield job, rank, unassigned.pop(rank)


def _find_misplaced(job: JobState, ranks: _Ranks) -> Iterator[_Misplacement]:
    for rule in (_check_binding, _check_hosts, _check_adapters, _check_gpus):
        yield from rule(job, ranks)


def _describe(requested: str, remedy: str, members: Mapping[int, tuple[str, str]]) -> str:
    first_rank = min(members)
    host, actual = members[first_rank]
    num_others = len(members) - 1
    more = f" (and {format_quantity(num_others, 'more rank')})" if num_others else ""
    return f"rank {first_rank} on {host}{more} {actual}, but {requested}; {remedy}"


def _check_binding(job: JobState, ranks: _Ranks) -> Iterator[_Misplacement]:
    binding = str(job.requested_placement.get("bind"))
    with_cpus = {rank: state for rank, state in ranks.items() if state.facts.cpus}
    users_by_cpu = Counter(
        (state.host, cpu) for state in with_cpus.values() for cpu in state.facts.cpus
    )
    cpus_by_host: dict[str, set[int]] = {}
    for state in with_cpus.values():
        cpus_by_host.setdefault(state.host, set()).update(state.facts.cpus)
    requested = _REQUESTS.get(binding, "")
    remedy = _find_remedy(job)
    for rank, state in with_cpus.items():
        is_shared = any(users_by_cpu[state.host, cpu] > 1 for cpu in state.facts.cpus)
        if requested and (
            actual := _describe_binding(binding, state.facts, is_shared, cpus_by_host[state.host])
        ):
            yield _Misplacement(rank, actual, requested, remedy)


_REQUESTS = {
    "own": "each rank should have cores of its own",
    "core": "bind: core asks for one core of its own",
    "numa": "bind: numa asks for CPUs of one NUMA node",
    "none": "bind: none asks for all CPUs that ranks of its host have",
}


def _describe_binding(bind: str, facts: RankFacts, shared: bool, host_cpus: set[int]) -> str:
    """Return a rank's CPUs if ``bind`` requests others; otherwise empty."""
    cpus = f"may run on CPUs {fold_numbers(facts.cpus)}"
    match bind:
        case "numa":
            nodes = ", ".join(map(str, facts.nodes))
            return f"{cpus} of NUMA nodes {nodes}" if len(facts.nodes) > 1 else ""
        case "none":
            all_cpus = tuple(sorted(host_cpus))
            return (
                f"{cpus} of {fold_numbers(all_cpus)} only" if set(facts.cpus) != host_cpus else ""
            )
        case "core" if (facts.cores or 1) > 1:
            return f"{cpus}, which are {facts.cores} cores"
        case "own" if (facts.cores or 1) > 1 and len(facts.cpus) == facts.host_cpus:
            return f"{cpus}, all that its host has"
    return f"{cpus}, and so may another rank" if shared else ""


def _find_remedy(job: JobState) -> str:
    """Return the remedy for a binding: the variable that undoes it, or how to show it."""
    if job.requested_placement.get("undone_by"):
        undone_by = job.requested_placement["undone_by"]
        return f"remove {undone_by} from launch.env and from the environment"
    shown_by = job.requested_placement.get("shown_by")
    hint = f" ({shown_by} shows what {job.launcher} does)" if shown_by else ""
    return f"check launch.args, setup lines and the container{hint}"


def _check_hosts(job: JobState, ranks: _Ranks) -> Iterator[_Misplacement]:
    """Yield ranks of one line of the hostfile that are not on one host."""
    for line in _read_host_lines(job):
        counts = Counter(ranks[rank].host for rank in line.ranks if rank in ranks)
        expected = max(counts, key=lambda host: (host == line.host, counts[host]), default=None)
        for rank in line.ranks:
            if rank in ranks and ranks[rank].host != expected:
                requested = f"the hostfile places it on {line.host}"
                yield _Misplacement(
                    rank, "runs there", requested, "check launch.args and the allocation"
                )


def _check_adapters(job: JobState, ranks: _Ranks) -> Iterator[_Misplacement]:
    """Yield ranks on hosts without the adapter in the hostfile."""
    for line in _read_host_lines(job):
        adapter = str(line.adapter or "").partition(":")[0]
        for rank in line.ranks if adapter else ():
            fabric = ranks[rank].facts.fabric if rank in ranks else None
            if fabric is not None and adapter not in fabric.split(","):
                actual = f"has {'no adapter' if fabric == 'tcp' else f'adapters {fabric}'}"
                requested = f"the hostfile gives {adapter} to {line.host}"
                yield _Misplacement(rank, actual, requested, "name an adapter that it has, or none")


class _HostLine(NamedTuple):
    """A line of the hostfile: a host, its ranks, and their adapter (with a port)."""

    host: str
    ranks: list[int]
    adapter: str | None


def _read_host_lines(job: JobState) -> Iterator[_HostLine]:
    ranks = iter(job.rank_range)
    for host, count, adapter in job.requested_placement.get("hosts", ()):
        yield _HostLine(host, list(islice(ranks, count)), adapter)


def _check_gpus(job: JobState, ranks: _Ranks) -> Iterator[_Misplacement]:
    for rank, state in ranks.items():
        if state.is_near is False:
            cpus = fold_numbers(state.facts.cpus)
            actual = f"computes on {state.device} with CPUs {cpus} of another NUMA node"
            requested = "a GPU is faster with CPUs of its own NUMA node"
            remedy = "set launch.bind: numa, or order the GPUs by CUDA_VISIBLE_DEVICES"
            yield _Misplacement(rank, actual, requested, remedy)
