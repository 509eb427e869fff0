"""The cause of a fault, from the reports of ranks and launcher.

A rank's death reaches the console in several ways, in no fixed order. Its own connection ends,
other ranks report errors in MPI, and the launcher reports the signal and sends other signals to the
other ranks. The rules below are ordered by weight:

1. the reason for which the launcher ended the job,
2. a host to which the launcher lost its connection,
3. a rank's own error that the end of no other rank explains,
4. a signal that the launcher reports,
5. the launcher's own death,
6. a rank that ended before it connected,
7. a rank that is in a wrong world or broke the protocol,
8. a rank that lost its launcher's helper,
9. the first lost connection,
10. a rank that is quiet,
11. the reason behind interrupts, if ranks report nothing else,
12. the first error in communication,
13. any end that the launcher reports.

Errors of other ranks are then its consequences.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from spbench.engine.faults.fault import Fault, Observation, RankError, RankLoss
from spbench.engine.faults.lost_hosts import find_ranks
from spbench.launch.launcher import FORWARDED_SIGNALS, LauncherReport, RankEnd, signal_name
from spbench_core.catalog.planted_fault import EndingFault
from spbench_core.events.statuses import CaseStatus
from spbench_core.number_text import format_quantity

MAX_CONSEQUENCES = 2
"""The number of consequences that are shown; others are counted."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence of a fault.

    Attributes:
        observations: Losses and errors, in the order of arrival.
        launcher_report: The report of the launcher.
        describe_rank: Describes a rank without observations: its host and the time. The second
            argument is the host that the launcher reports, which is named if no other is known.
        unconnected: Ranks that have not connected; None if unknown.
        planned_hosts: The ranks' hosts by the placement, as far as known before the launch.
        host_names: All names of each rank's host: in the placement, in ssh, and its own.
        quiet: Seconds of silence of ranks that have been silent for longer than others.
        launcher: The launcher's name.
        host: The host on which it runs.
        status: Its exit status; negative for a signal, None while it runs.
        protocol_fault: The fault of a rank in a wrong world, or that sent something invalid. The
            end of the launcher can cause either.
        stderr_text: The stderr of ranks without a connection; None if there is none.
    """

    observations: Sequence[Observation] = ()
    launcher_report: LauncherReport = field(default_factory=LauncherReport)
    describe_rank: Callable[[int, str | None], str] = "rank {}".format
    unconnected: frozenset[int] | None = None
    planned_hosts: Mapping[int, str] = field(default_factory=dict)
    host_names: Mapping[int, Collection[str]] = field(default_factory=dict)
    quiet: Mapping[int, float] = field(default_factory=dict)
    launcher: str = "?"
    host: str = "?"
    status: int | None = None
    protocol_fault: Fault | None = None
    stderr_text: str | None = None

    @property
    def losses(self) -> list[RankLoss]:
        """Silently lost connections, before the first loss of a rank with an error."""
        failed: set[int | None] = set()
        losses = []
        for observation in self.observations:
            if isinstance(observation, RankError):
                failed.add(observation.rank)
            elif observation.rank in failed and observation.rank is not None:
                break
            else:
                losses.append(observation)
        return losses

    @property
    def errors(self) -> list[RankError]:
        """The errors that ranks have reported."""
        return [
            observation for observation in self.observations if isinstance(observation, RankError)
        ]


def find_cause(evidence: Evidence) -> Fault | None:
    """Return the fault that the evidence shows, with its consequences, or None."""
    fault = next(filter(None, (rule(evidence) for rule in _RULES)), None)
    return fault and replace(fault, message=fault.message + _describe_consequences(evidence, fault))


def is_settled(evidence: Evidence) -> bool:
    """Whether no further evidence can show another cause."""
    report = evidence.launcher_report
    return report.decisive or bool(report.lost) or bool(report.killed)


def is_doubtful(evidence: Evidence) -> bool:
    """Whether all evidence may be a consequence of another rank's end."""
    cause = find_cause(evidence)
    following = {error.rank for error in evidence.errors if error.may_be_consequence}
    return cause is None or (cause.rank in following and cause.traceback is not None)


def _find_launcher_reason(evidence: Evidence) -> Fault | None:
    report = evidence.launcher_report
    return Fault(CaseStatus.ERROR, report.reason) if report.reason and report.decisive else None


def _find_lost_connection(evidence: Evidence) -> Fault | None:
    """Return the first host to which the launcher lost its connection, with its ranks."""
    report = evidence.launcher_report
    if not report.lost:
        return None
    first, *others = report.lost
    if first.host is None:
        unnamed = "the launcher lost its connection to a host"
        reason = report.reason if report.reason and not report.follows else unnamed
        return Fault(CaseStatus.ERROR, f"{reason}: {first.message}")
    ranks = find_ranks(first.host, evidence.host_names)
    message = "the launcher lost its connection to "
    message += "this host" if ranks else f"host {first.host}"
    if len(ranks) > 1:
        message += f" and its {len(ranks)} ranks"
    if hosts := [connection.host for connection in others if connection.host]:
        message += f", and to {format_quantity(len(hosts), 'more host')}"
    message += f": {first.message}"
    if not ranks:
        return Fault(CaseStatus.ERROR, message)
    return Fault(CaseStatus.ERROR, f"{evidence.describe_rank(ranks[0], None)}: {message}", ranks[0])


def _find_own_error(evidence: Evidence) -> Fault | None:
    """Return a rank's error that came before any loss and is not a consequence."""
    for observation in evidence.observations:
        if isinstance(observation, RankLoss):
            return None
        if not observation.may_be_consequence:
            return (
                None if _follows_killed_rank(evidence, observation.rank) else observation.to_fault()
            )
    return None


def _follows_killed_rank(evidence: Evidence, rank: int) -> bool:
    """Whether the launcher reports a killed rank, and only then the end of this one."""
    report = evidence.launcher_report
    index = next((i for i, end in enumerate(report.ends) if rank in end.ranks), None)
    return index is not None and any(end in report.killed for end in report.ends[:index])


def _find_killed_rank(evidence: Evidence) -> Fault | None:
    """Return the first killed rank that the launcher reports.

    Aborts of a library come last.
    """
    killed = evidence.launcher_report.killed
    if not killed:
        return None
    end = min(killed, key=lambda end: end.signal == signal.SIGABRT)
    lost_ranks = [loss.rank for loss in evidence.losses]
    rank = next((rank for rank in lost_ranks if rank in end.ranks), None)
    if rank is None and end.ranks:
        rank = end.ranks[0]
    elif rank is None and evidence.losses:
        rank = evidence.losses[0].rank
    if rank is None:
        return None if evidence.errors else Fault(CaseStatus.ERROR, end.message)
    return Fault(
        CaseStatus.ERROR,
        f"{_describe_end(evidence, rank, end)}, {replace(end, ranks=(rank,)).description}",
        rank,
        effect=EndingFault.KILL if end.signal == signal.SIGKILL else None,
    )


def _find_killed_launcher(evidence: Evidence) -> Fault | None:
    if evidence.status is None or evidence.status >= 0:
        return None
    name = signal_name(-evidence.status)
    return Fault(
        CaseStatus.ERROR,
        f"the launcher, {evidence.launcher}, was killed by {name} on {evidence.host}",
    )


def _find_unconnected_rank(evidence: Evidence) -> Fault | None:
    """Return the rank that exited before it connected."""
    for end in evidence.launcher_report.ends:
        rank = _match_unconnected(evidence, end) if end.signal is None else None
        if rank is not None:
            description = replace(end, ranks=(rank,)).description
            message = f"{_describe_end(evidence, rank, end)}, {description} before it connected"
            return Fault(CaseStatus.ERROR, _add_details(evidence, message), rank)
    return None


def _match_unconnected(evidence: Evidence, end: RankEnd) -> int | None:
    unconnected = sorted(evidence.unconnected or ())
    if end.ranks:
        return next((rank for rank in end.ranks if rank in unconnected), None)
    hosts = evidence.planned_hosts
    on_host = [rank for rank in unconnected if hosts.get(rank, end.host) == end.host]
    return on_host[0] if on_host else None


def _get_protocol_fault(evidence: Evidence) -> Fault | None:
    return evidence.protocol_fault


def _find_orphan(evidence: Evidence) -> Fault | None:
    """Return the first orphaned rank, unless the launcher reports a rank's end."""
    lost_ranks = {loss.rank for loss in evidence.losses}
    if any(lost_ranks & set(end.ranks) for end in _list_own_ends(evidence)):
        return None
    return next((error.to_fault() for error in evidence.errors if error.orphaned), None)


def _find_loss(evidence: Evidence) -> Fault | None:
    """Return the first loss, unless a rank's own error came before it.

    Losses of survivors come last: behind relays the order of losses is not known.
    """
    if not evidence.losses:
        return None
    survivors = evidence.launcher_report.survivors
    loss = min(evidence.losses, key=lambda loss: loss.rank in survivors)
    end = next((end for end in evidence.launcher_report.ends if loss.rank in end.ranks), None)
    if end is not None:
        return Fault(
            CaseStatus.ERROR, f"{loss.description}, {replace(end, ranks=()).description}", loss.rank
        )
    return Fault(
        CaseStatus.ERROR,
        _add_details(evidence, f"{loss.description}, ended without an error message"),
        loss.rank,
        # not each launcher reports the signal
        effect=EndingFault.KILL,
    )


def _find_quiet_rank(evidence: Evidence) -> Fault | None:
    """Return the rank that fell silent first, if connections of others to it break."""
    if not evidence.quiet or not any(error.may_be_consequence for error in evidence.errors):
        return None
    rank = max(evidence.quiet, key=lambda rank: evidence.quiet[rank])
    silence = evidence.quiet[rank]
    name = evidence.describe_rank(rank, None)
    message = f"{name}, silent for {silence:.0f} s"
    return Fault(CaseStatus.ERROR, message, rank, effect=EndingFault.STOP)


def _explain_interrupts(evidence: Evidence) -> Fault | None:
    """Return the reason of the interrupts if ranks report nothing else."""
    if not evidence.errors or not all(error.interrupted for error in evidence.errors):
        return None
    report = evidence.launcher_report
    if report.reason and not report.follows:
        return Fault(CaseStatus.ERROR, report.reason)
    interrupted = {error.rank for error in evidence.errors}
    own_ends = [end for end in _list_own_ends(evidence) if not interrupted & set(end.ranks)]
    return _find_reported_end(
        replace(evidence, launcher_report=replace(report, ends=tuple(own_ends)))
    )


def _find_first_error(evidence: Evidence) -> Fault | None:
    return evidence.errors[0].to_fault() if evidence.errors else None


def _find_reported_end(evidence: Evidence) -> Fault | None:
    for end in evidence.launcher_report.ends:
        if not end.ranks:
            return Fault(CaseStatus.ERROR, _add_details(evidence, end.message))
        message = (
            f"{_describe_end(evidence, end.ranks[0], end)}, {replace(end, ranks=()).description}"
        )
        return Fault(CaseStatus.ERROR, _add_details(evidence, message), end.ranks[0])
    return None


_RULES = (
    _find_launcher_reason,
    _find_lost_connection,
    _find_own_error,
    _find_killed_rank,
    _find_killed_launcher,
    _find_unconnected_rank,
    _get_protocol_fault,
    _find_orphan,
    _find_loss,
    _find_quiet_rank,
    _explain_interrupts,
    _find_first_error,
    _find_reported_end,
)


def _list_own_ends(evidence: Evidence) -> list[RankEnd]:
    """Return the ends of known ranks, except by signals that end a job."""
    return [
        end
        for end in evidence.launcher_report.ends
        if end.ranks and end.signal not in FORWARDED_SIGNALS
    ]


def _describe_end(evidence: Evidence, rank: int, end: RankEnd) -> str:
    """Describe a rank when its connection was lost, or else with the launcher's host."""
    for observation in evidence.observations:
        if observation.rank == rank:
            return observation.description
    return evidence.describe_rank(rank, end.host)


def _add_details(evidence: Evidence, message: str) -> str:
    details = evidence.stderr_text or evidence.launcher_report.reason
    return f"{message}: {details}" if details else message


def _describe_consequences(evidence: Evidence, cause: Fault) -> str:
    """Describe the first error of each other rank.

    If the cause is a rank's own error, an own error of another rank is independent and left out.
    """
    error_by_rank: dict[int, str] = {}
    is_own_error = any(error.to_fault() == cause for error in evidence.errors)
    for error in evidence.errors:
        if error.rank == cause.rank or error.orphaned:
            continue
        if error.may_be_consequence or not is_own_error:
            error_by_rank.setdefault(error.rank, f"{error.description}: {error.message}")
    if not error_by_rank:
        return ""
    shown = "; ".join(list(error_by_rank.values())[:MAX_CONSEQUENCES])
    hidden = len(error_by_rank) - MAX_CONSEQUENCES
    more = f"; {format_quantity(hidden, 'more rank')}" if hidden > 0 else ""
    return f"; as a consequence {shown}{more}"
