"""The cause of a fault, found among what the ranks and the launcher have told: no side effects.

A rank's death reaches the console by several ways, of which none is always the first: its own
connection ends, other ranks tell of errors in MPI, the launcher says which signal it was and sends
signals of its own to the others. In order of weight: what the launcher ended the job for, a host to
which the launcher lost its connection, a rank's own error that no other rank's end explains, a
signal by the launcher's word, the launcher's own death, a rank that ended before it connected, a
rank that lost its launcher's helper, the first connection lost, a rank that is quiet, the first
error in communication. Errors of other ranks then follow from it. Ranks that only
report an interrupt are the cause if nothing else explains the end.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from spbench.engine.faults.fault import Fault, Observation, RankError, RankLoss
from spbench.engine.faults.lost_hosts import find_ranks
from spbench.launch.launcher import FORWARDED_SIGNALS, LauncherReport, RankEnd, signal_name
from spbench_core.events.statuses import CaseStatus
from spbench_core.quantities import format_quantity

MAX_SHOWN = 2
"""Consequences that are told; of more, the number."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that is known of a fault.

    Attributes:
        seen: Losses and errors, in the order in which they came.
        said: What the launcher tells.
        name: Names a rank of which nothing was seen, with its host and when it happened.
        waited_for: Ranks that have not connected; None where that is not known.
        places: Ranks' hosts by the placement, as far as it is known before the launch.
        spellings: Names of ranks' hosts: those of the placement and the hosts' own.
        quiet: Ranks that have been silent for longer than others, and for how long in seconds.
        launcher: The launcher's name.
        host: The host on which it runs.
        status: Its exit status; negative where a signal ended it, None while it runs.
        misfit: The fault where a rank is in another world than the job's, or says what no rank
            says; the end of the launcher can bring about either.
        words: What ranks without a connection have written themselves; None: nothing.
    """

    observations: Sequence[Observation] = ()
    launcher_report: LauncherReport = field(default_factory=LauncherReport)
    describe_rank: Callable[[int], str] = "rank {}".format
    waited_for: frozenset[int] | None = None
    planned_hosts: Mapping[int, str] = field(default_factory=dict)
    spellings: Mapping[int, Collection[str]] = field(default_factory=dict)
    quiet: Mapping[int, float] = field(default_factory=dict)
    launcher: str = "?"
    host: str = "?"
    status: int | None = None
    misfit: Fault | None = None
    stderr_text: str | None = None

    @property
    def losses(self) -> list[RankLoss]:
        """The connections lost without a word, before a rank that has told of an error went."""
        told: set[int | None] = set()
        losses = []
        for piece in self.observations:
            if isinstance(piece, RankError):
                told.add(piece.rank)
            elif piece.rank in told and piece.rank is not None:
                break
            else:
                losses.append(piece)
        return losses

    @property
    def errors(self) -> list[RankError]:
        """The errors that ranks have told of."""
        return [piece for piece in self.observations if isinstance(piece, RankError)]


def find_cause(evidence: Evidence) -> Fault | None:
    """Return the fault that the evidence shows, with what follows from it; None: it shows none."""
    found = next(filter(None, (rule(evidence) for rule in _RULES)), None)
    return found and replace(found, message=found.message + _consequences(evidence, found))


def is_settled(evidence: Evidence) -> bool:
    """Whether nothing that may still come can show another cause."""
    said = evidence.launcher_report
    return said.decisive or bool(said.lost) or bool(said.killed)


def is_doubtful(evidence: Evidence) -> bool:
    """Whether all that is known is what may follow from another rank's end."""
    found = find_cause(evidence)
    told = {error.rank for error in evidence.errors if error.follows}
    return found is None or (found.rank in told and found.traceback is not None)


def _ended_by_launcher(evidence: Evidence) -> Fault | None:
    said = evidence.launcher_report
    return Fault(CaseStatus.ERROR, said.reason) if said.reason and said.decisive else None


def _connection_lost(evidence: Evidence) -> Fault | None:
    """Return the first host to which the launcher has lost its connection, with its ranks."""
    said = evidence.launcher_report
    if not said.lost:
        return None
    first, *others = said.lost
    if first.host is None:
        unnamed = "the launcher lost its connection to a host"
        reason = said.reason if said.reason and not said.follows else unnamed
        return Fault(CaseStatus.ERROR, f"{reason}: {first.message}")
    ranks = find_ranks(first.host, evidence.spellings)
    sentence = "the launcher lost its connection to "
    sentence += "this host" if ranks else f"host {first.host}"
    if len(ranks) > 1:
        sentence += f" and its {len(ranks)} ranks"
    if hosts := [connection.host for connection in others if connection.host]:
        sentence += f", and to {format_quantity(len(hosts), 'more host')}"
    sentence += f": {first.message}"
    if not ranks:
        return Fault(CaseStatus.ERROR, sentence)
    return Fault(CaseStatus.ERROR, f"{evidence.describe_rank(ranks[0])}: {sentence}", ranks[0])


def _own_error(evidence: Evidence) -> Fault | None:
    """Return a rank's error that came before any loss and that no other rank's end explains."""
    for piece in evidence.observations:
        if isinstance(piece, RankLoss):
            return None
        if not piece.follows:
            return None if _killed_before(evidence, piece.rank) else piece.to_fault()
    return None


def _killed_before(evidence: Evidence, rank: int) -> bool:
    """Whether the launcher tells of a killed rank, and only then of the end of this one."""
    ends = evidence.launcher_report.ends
    mine = next((at for at, end in enumerate(ends) if rank in end.ranks), None)
    return mine is not None and any(end in evidence.launcher_report.killed for end in ends[:mine])


def _killed(evidence: Evidence) -> Fault | None:
    """Return the first rank that the launcher says was killed; aborts of a library come after."""
    killed = evidence.launcher_report.killed
    if not killed:
        return None
    end = min(killed, key=lambda end: end.signal == signal.SIGABRT)
    order = [loss.rank for loss in evidence.losses]
    rank = next((rank for rank in order if rank in end.ranks), None)
    if rank is None and end.ranks:
        rank = end.ranks[0]
    elif rank is None and evidence.losses:
        rank = evidence.losses[0].rank
    if rank is None:
        return None if evidence.errors else Fault(CaseStatus.ERROR, end.message)
    return Fault(
        CaseStatus.ERROR,
        f"{_who(evidence, rank, end)}, {replace(end, ranks=(rank,)).description}",
        rank,
    )


def _launcher_killed(evidence: Evidence) -> Fault | None:
    if evidence.status is None or evidence.status >= 0:
        return None
    by = signal_name(-evidence.status)
    return Fault(
        CaseStatus.ERROR,
        f"the launcher, {evidence.launcher}, was killed by {by} on {evidence.host}",
    )


def _never_connected(evidence: Evidence) -> Fault | None:
    """Return the rank that ended by itself before it connected."""
    for end in evidence.launcher_report.ends:
        rank = _unconnected(evidence, end) if end.signal is None else None
        if rank is not None:
            how = replace(end, ranks=(rank,)).description
            sentence = f"{_who(evidence, rank, end)}, {how} before it connected"
            return Fault(CaseStatus.ERROR, _because(evidence, sentence), rank)
    return None


def _unconnected(evidence: Evidence, end: RankEnd) -> int | None:
    waited_for = sorted(evidence.waited_for or ())
    if end.ranks:
        return next((rank for rank in end.ranks if rank in waited_for), None)
    there = [rank for rank in waited_for if evidence.planned_hosts.get(rank, end.host) == end.host]
    return there[0] if there else None


def _misfit(evidence: Evidence) -> Fault | None:
    return evidence.misfit


def _orphaned(evidence: Evidence) -> Fault | None:
    """Return the first rank that lost its parent, unless the launcher names a rank's end."""
    lost = {loss.rank for loss in evidence.losses}
    if any(lost & set(end.ranks) for end in _own_ends(evidence)):
        return None
    return next((error.to_fault() for error in evidence.errors if error.orphaned), None)


def _lost(evidence: Evidence) -> Fault | None:
    """Return the first loss, unless a rank's own error came before it."""
    if not evidence.losses:
        return None
    loss = evidence.losses[0]
    end = next((end for end in evidence.launcher_report.ends if loss.rank in end.ranks), None)
    if end is not None:
        return Fault(
            CaseStatus.ERROR, f"{loss.description}, {replace(end, ranks=()).description}", loss.rank
        )
    return Fault(
        CaseStatus.ERROR,
        _because(evidence, f"{loss.description}, ended without an error message"),
        loss.rank,
    )


def _quiet(evidence: Evidence) -> Fault | None:
    """Return the rank that fell silent longest ago, where others' connections to it break."""
    if not evidence.quiet or not any(error.follows for error in evidence.errors):
        return None
    rank = max(evidence.quiet, key=lambda rank: evidence.quiet[rank])
    silence = evidence.quiet[rank]
    return Fault(
        CaseStatus.ERROR, f"{evidence.describe_rank(rank)}, silent for {silence:.0f} s", rank
    )


def _behind_interrupts(evidence: Evidence) -> Fault | None:
    """Return what explains the interrupts if ranks report nothing else."""
    if not evidence.errors or not all(error.interrupted for error in evidence.errors):
        return None
    said = evidence.launcher_report
    if said.reason and not said.follows:
        return Fault(CaseStatus.ERROR, said.reason)
    interrupted = {error.rank for error in evidence.errors}
    own = [end for end in _own_ends(evidence) if not interrupted & set(end.ranks)]
    return _told_end(replace(evidence, launcher_report=replace(said, ends=tuple(own))))


def _first_error(evidence: Evidence) -> Fault | None:
    return evidence.errors[0].to_fault() if evidence.errors else None


def _told_end(evidence: Evidence) -> Fault | None:
    for end in evidence.launcher_report.ends:
        if not end.ranks:
            return Fault(CaseStatus.ERROR, _because(evidence, end.message))
        sentence = f"{_who(evidence, end.ranks[0], end)}, {replace(end, ranks=()).description}"
        return Fault(CaseStatus.ERROR, _because(evidence, sentence), end.ranks[0])
    return None


_RULES = (
    _ended_by_launcher,
    _connection_lost,
    _own_error,
    _killed,
    _launcher_killed,
    _never_connected,
    _misfit,
    _orphaned,
    _lost,
    _quiet,
    _behind_interrupts,
    _first_error,
    _told_end,
)


def _own_ends(evidence: Evidence) -> list[RankEnd]:
    """Return the ends of known ranks by anything but a signal that launchers send to end a job."""
    return [
        end
        for end in evidence.launcher_report.ends
        if end.ranks and end.signal not in FORWARDED_SIGNALS
    ]


def _who(evidence: Evidence, rank: int, end: RankEnd) -> str:
    """Name a rank as it was when its connection was lost, else with the launcher's host."""
    for piece in evidence.observations:
        if piece.rank == rank:
            return piece.description
    name = evidence.describe_rank(rank)
    return name if " on " in name or end.host is None else _placed(name, rank, end.host)


def _placed(name: str, rank: int, host: str) -> str:
    return name.replace(f"rank {rank}", f"rank {rank} on {host}", 1)


def _because(evidence: Evidence, sentence: str) -> str:
    more = evidence.stderr_text or evidence.launcher_report.reason
    return f"{sentence}: {more}" if more else sentence


def _consequences(evidence: Evidence, found: Fault) -> str:
    """Return what followed: errors of other ranks, each one's first; two own errors are apart."""
    told: dict[int, str] = {}
    own = any(error.to_fault() == found for error in evidence.errors)
    for error in evidence.errors:
        if error.rank != found.rank and not error.orphaned and (error.follows or not own):
            told.setdefault(error.rank, f"{error.description}: {error.message}")
    if not told:
        return ""
    shown = "; ".join(list(told.values())[:MAX_SHOWN])
    rest = len(told) - MAX_SHOWN
    more = f"; {format_quantity(rest, 'more rank')}" if rest > 0 else ""
    return f"; as a consequence {shown}{more}"
