"""Jobs with more ranks than cores, which have disturbed times."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from spbench.record.case_state import CaseState
from spbench.record.messages.enumeration import enumerate_names, format_case_count
from spbench.record.run_parts import JobState
from spbench.record.state import RunState
from spbench_core.number_text import format_quantity

_EFFECT = "times and efficiencies are not those of the hardware"


def shares_cores(job: JobState) -> bool:
    """Whether ranks of a job share cores, as far as they reported their CPUs."""
    return job.oversubscribed or bool(_find_crowded_hosts(job))


def is_crowded(case: CaseState, jobs: Mapping[int, JobState]) -> bool:
    """Whether ranks of a case shared cores in any of its jobs."""
    numbers = case.measured.jobs.values()
    return any(number in jobs and shares_cores(jobs[number]) for number in numbers)


def describe_sharing(job: JobState) -> str | None:
    """Return ``4 ranks share 2 cores: ...`` for a table's heading, or None."""
    sharing = _describe_ranks_and_cores(job)
    return f"{sharing}: {_EFFECT}" if sharing is not None else None


def summarize_sharing(state: RunState) -> str | None:
    """Return one message on shared cores over all jobs of a run; None without sharing."""
    jobs = [job for job in state.jobs.values() if shares_cores(job)]
    job_numbers = {job.number for job in jobs}
    launched_cases = [case for case in state.cases.values() if case.measured.jobs]
    affected_ids = [
        case.id for case in launched_cases if job_numbers & set(case.measured.jobs.values())
    ]
    if not affected_ids:
        return None
    largest = max(jobs, key=lambda job: job.np)
    up_to = "up to " if len({job.np for job in jobs}) > 1 else ""
    cases_text = (
        ""
        if len(affected_ids) == len(launched_cases)
        else f" {format_case_count(affected_ids, len(launched_cases))}"
    )
    return f"{up_to}{_describe_ranks_and_cores(largest)}{cases_text}: {_EFFECT}"


def _describe_ranks_and_cores(job: JobState) -> str | None:
    crowded = _find_crowded_hosts(job)
    if not crowded:
        return (
            f"{format_quantity(job.np, 'rank')} share fewer cores" if job.oversubscribed else None
        )
    host, load = max(crowded.items(), key=lambda host_load: host_load[1].ranks_per_core)
    hosts = {facts.host for facts in job.ranks.values()}
    location = ""
    if len(hosts) > 1:
        others = [other for other in crowded if other != host]
        location = f" on {enumerate_names([host, *others], 'hosts')}"
    ranks = format_quantity(load.ranks, "rank")
    return f"{ranks} share {format_quantity(load.cores, 'core')}{location}"


class _CoreLoad(NamedTuple):
    """The numbers of ranks and of the cores that they share."""

    ranks: int
    cores: int

    @property
    def ranks_per_core(self) -> float:
        return self.ranks / self.cores


def _find_crowded_hosts(job: JobState) -> dict[str, _CoreLoad]:
    """Return the load of the hosts with more ranks than cores.

    If a host has enough CPUs but some of its ranks share the same ones, only these count.
    """
    if len(job.ranks) < job.np:
        return {}  # ranks that are not ready may have other CPUs
    ranks_by_cpus: dict[str, Counter[tuple[int, ...]]] = defaultdict(Counter)
    for facts in job.ranks.values():
        if facts.cpus:
            ranks_by_cpus[facts.host][facts.cpus] += 1
    load_by_crowded_host: dict[str, _CoreLoad] = {}
    for host, ranks in ranks_by_cpus.items():
        host_load = _CoreLoad(ranks.total(), len({cpu for cpus in ranks for cpu in cpus}))
        shared_loads = [_CoreLoad(count, len(cpus)) for cpus, count in ranks.items()]
        highest = max([host_load, *shared_loads], key=lambda load: load.ranks_per_core)
        if highest.ranks > highest.cores:
            load_by_crowded_host[host] = highest
    return load_by_crowded_host
