"""Noise: cases with times that other work on their cores has disturbed.

A rank that spins while it waits for a message keeps its core. If it waited for a core anyway,
something else ran there. Ranks that share CPUs wait for each other, for a share that follows from
the number of their CPUs. Only waits beyond that are due to other work. A rank that waits for a
straggler has spare time, so its waits for a core do not make the times noisy.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from statistics import fmean

from spbench.record.case_parts import CaseRank, Disturbance, DisturbanceCause
from spbench.record.case_state import CaseState
from spbench.record.machine.core_sharing import is_crowded
from spbench.record.machine.gpu_throttling import describe_gpu_noise, describe_throttled_gpus
from spbench.record.messages.enumeration import enumerate_names, format_case_count
from spbench.record.number_formatting import format_percent
from spbench.record.run_parts import JobState
from spbench.record.state import RunState
from spbench_core.number_text import format_quantity

MAX_WAIT_EXCLUSIVE = 0.2
"""The share of its time that a rank may wait for a core that it does not share."""
MAX_WAIT_SHARED = 0.1
"""The mean share beyond the expected one that a host's ranks may wait if they share CPUs."""
MAX_STOLEN_SHARE = 0.05
"""The share of the time that a hypervisor may take."""
MAX_THROTTLED_SHARE = 0.05
"""The share of the time that a CPU quota may take."""
MAX_SLOWED_SHARE = 0.2
"""The share by which the clock rate may be below the base rate."""

_Ranks = Mapping[int, CaseRank]


_THRESHOLDS = {
    DisturbanceCause.STOLEN: MAX_STOLEN_SHARE,
    DisturbanceCause.THROTTLED: MAX_THROTTLED_SHARE,
    DisturbanceCause.HOT: 0.0,
    DisturbanceCause.SLOWED: MAX_SLOWED_SHARE,
}
"""The largest amounts that do not make a case noisy."""
_ADVICE = {
    DisturbanceCause.WAITED: "repeat the run on an idle machine",
    DisturbanceCause.STOLEN: "repeat the run on a dedicated machine",
    DisturbanceCause.THROTTLED: "raise the CPU quota of the container",
    DisturbanceCause.HOT: "check the cooling",
    DisturbanceCause.SLOWED: "check the power limits and the CPU governor",
}


def describe_case_noise(case: CaseState) -> str | None:
    """Return a clause on the worst noise of a case; None without noise."""
    worst = next(iter(find_disturbances(case)), None)
    if worst is None:
        return describe_gpu_noise(case)
    subject = "ranks" if worst.rank is None else f"rank {worst.rank}"
    return _format_clause(worst.cause, worst.host, _format_amount(worst), subject=subject)


def find_disturbances(case: CaseState) -> Sequence[Disturbance]:
    """Return the disturbances of a case by cause, the worst host first.

    Those of a final case are kept, because many views of a run with thousands of cases use them.
    """
    version = (case.execution.finished, len(case.measured.ended))
    if case.disturbances is not None and case.disturbances[0] == version:
        return case.disturbances[1]
    disturbances = _compute_disturbances(case)
    if case.status.is_final:
        case.disturbances = version, disturbances
    return disturbances


def _compute_disturbances(case: CaseState) -> Sequence[Disturbance]:
    ranks = case.measured.ranks
    disturbances = [*_find_waits(ranks, _find_waiting_ranks(case))]
    for cause, threshold in _THRESHOLDS.items():
        amount_by_host: dict[str, float] = {}
        for state in ranks.values():
            amount = state.disturbances.get(cause, 0.0)
            if amount > max(threshold, amount_by_host.get(state.host, 0.0)):
                amount_by_host[state.host] = amount
        disturbances += [
            Disturbance(cause, host, amount) for host, amount in amount_by_host.items()
        ]
    causes = list(DisturbanceCause)
    return sorted(disturbances, key=lambda item: (causes.index(item.cause), -item.amount))


def is_disturbed(case: CaseState, jobs: Mapping[int, JobState]) -> bool:
    """Whether a case's times are not those of the hardware: noise, or shared cores."""
    return is_crowded(case, jobs) or describe_case_noise(case) is not None


def summarize_noise(state: RunState) -> list[str]:
    """Return one message per cause of noise over all cases of a run.

    Each names the host or GPU with the largest share, the number of cases, and the remedy. Other
    work before the first launch is part of the message on waits for cores.
    """
    judged = [case for case in state.cases.values() if case.measured.ranks]
    disturbances = {case.id: find_disturbances(case) for case in judged}
    messages = summarize_disturbances(disturbances, read_other_work(state))
    return [*messages, *describe_throttled_gpus(judged)]


def read_other_work(state: RunState) -> Sequence[str]:
    """Return the other work on the machine before the first launch; empty without any."""
    return tuple(state.run.environment.get("other_work", ())) if state.run is not None else ()


def summarize_disturbances(
    disturbances: Mapping[str, Sequence[Disturbance]], other_work: Sequence[str]
) -> list[str]:
    """Return one message per cause.

    Args:
        disturbances: The disturbances of each case that has run, by its id.
        other_work: The other work on the machine before the first launch.
    """
    by_cause: dict[DisturbanceCause, dict[str, list[Disturbance]]] = defaultdict(dict)
    for case_id, case_disturbances in disturbances.items():
        for item in case_disturbances:
            by_cause[item.cause].setdefault(case_id, []).append(item)
    messages = []
    for cause in DisturbanceCause:
        if cause not in by_cause:
            continue
        message = _summarize(cause, by_cause[cause], len(disturbances))
        evidence_text = _format_evidence(other_work) if cause == DisturbanceCause.WAITED else ""
        messages.append(f"{message}; {_ADVICE[cause]}{evidence_text}")
    if other_work and DisturbanceCause.WAITED not in by_cause:
        messages.append(_format_busy_start(other_work))
    return messages


def remove_other_work(findings: Iterable[str], other_work: Sequence[str]) -> Iterator[str]:
    """Yield findings without the parts on other work before the first launch."""
    for finding in findings:
        if not other_work or finding != _format_busy_start(other_work):
            yield finding.removesuffix(_format_evidence(other_work))


def _format_evidence(other_work: Sequence[str]) -> str:
    return f" (at its start: {'; '.join(other_work)})" if other_work else ""


def _format_busy_start(other_work: Sequence[str]) -> str:
    busy = f"the machine was busy when the run started ({'; '.join(other_work)})"
    return f"{busy}: times may be inflated"


def _summarize(
    cause: DisturbanceCause, by_case: Mapping[str, Sequence[Disturbance]], total: int
) -> str:
    """Return the clause on a cause over all cases that it disturbed."""
    worst_first = sorted(
        (item for case_disturbances in by_case.values() for item in case_disturbances),
        key=lambda item: -item.amount,
    )
    hosts = list(dict.fromkeys(item.host for item in worst_first))
    up_to = "up to " if len(worst_first) > 1 else ""
    amount = up_to + _format_amount(worst_first[0])
    cases = f" {format_case_count(list(by_case), total)}"
    return _format_clause(cause, enumerate_names(hosts, "hosts"), amount, cases)


def _format_amount(item: Disturbance) -> str:
    if item.cause == DisturbanceCause.HOT:
        return format_quantity(round(item.amount), "time")
    return format_percent(item.amount)


def _format_clause(
    cause: DisturbanceCause, hosts: str, amount: str, cases: str = "", subject: str = "ranks"
) -> str:
    match cause:
        case DisturbanceCause.WAITED:
            pronoun = "their" if subject == "ranks" else "its"
            waited = f"{subject} on {hosts} waited {amount} of {pronoun} time for a core"
            return f"{waited}{cases} because other work used it"
        case DisturbanceCause.STOLEN:
            return f"the hypervisor of {hosts} gave {amount} of the time to other machines{cases}"
        case DisturbanceCause.THROTTLED:
            return f"a CPU quota stopped ranks on {hosts} for {amount} of their time{cases}"
        case DisturbanceCause.HOT:
            return f"heat slowed down CPUs of {hosts} {amount}{cases}"
        case DisturbanceCause.SLOWED:
            return f"CPUs of {hosts} ran {amount} below their base clock rate{cases}"


def _find_waiting_ranks(case: CaseState) -> set[int]:
    """Return the ranks that wait for stragglers: all others, if these are known."""
    causes = [straggler for straggler in case.execution.stragglers if straggler.cause]
    slow_ranks = {straggler.rank for straggler in causes}
    slow_hosts = {straggler.host for straggler in causes if straggler.rank is None}
    ranks = case.measured.ranks.items() if causes else ()
    return {
        rank for rank, state in ranks if rank not in slow_ranks and state.host not in slow_hosts
    }


def _find_waits(ranks: _Ranks, waiting: Container[int]) -> Iterator[Disturbance]:
    """Yield the hosts with ranks that waited for a core for longer than expected.

    Ranks that are ``waiting`` for a straggler are left out.
    """
    expected_share_by_rank = _compute_expected_waits(ranks)
    excess_shares_by_host: dict[str, list[float]] = defaultdict(list)
    exclusive_waits_by_host: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for rank, state in ranks.items():
        if rank in waiting:
            continue
        waited_share = state.disturbances.get(DisturbanceCause.WAITED, 0.0)
        if expected_share_by_rank[rank] > 0:
            excess_shares_by_host[state.host].append(waited_share - expected_share_by_rank[rank])
        else:
            exclusive_waits_by_host[state.host].append((waited_share, rank))
    for host, waits in exclusive_waits_by_host.items():
        share, rank = max(waits)
        if share > MAX_WAIT_EXCLUSIVE:
            yield Disturbance(DisturbanceCause.WAITED, host, share, rank)
    for host, excess_shares in excess_shares_by_host.items():
        if fmean(excess_shares) > MAX_WAIT_SHARED:
            yield Disturbance(DisturbanceCause.WAITED, host, fmean(excess_shares))


def _compute_expected_waits(ranks: _Ranks) -> dict[int, float]:
    """Return the share of time that each rank waits for its CPUs if all spin."""
    users_by_cpu = Counter(
        (state.host, cpu) for state in ranks.values() for cpu in state.facts.cpus
    )
    cores_by_rank = {
        rank: sum(1.0 / users_by_cpu[state.host, cpu] for cpu in state.facts.cpus)
        for rank, state in ranks.items()
    }
    return {
        rank: max(0.0, 1.0 - usable_cores) if usable_cores else 0.0
        for rank, usable_cores in cores_by_rank.items()
    }
