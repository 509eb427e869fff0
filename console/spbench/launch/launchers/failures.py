"""Messages of launchers, parsed into ends of ranks and reasons in plain words."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from spbench.launch.launcher import LauncherReport, LostConnection, RankEnd


@dataclass(frozen=True, slots=True)
class Failure:
    """A message of a launcher, and its meaning in plain words.

    Attributes:
        pattern: Finds the message.
        message: The plain words, with ``{name}`` for the pattern's group.
        decisive: Whether it explains the job's end, and is not a consequence of a rank's end.
        follows: Whether it may be a consequence of a rank's end, and then explains nothing.
    """

    pattern: re.Pattern[str]
    message: str | Callable[[re.Match[str]], str]
    decisive: bool = False
    follows: bool = False

    def format_message(self, match: re.Match[str]) -> str:
        """Return the message with the numbers and names of a match."""
        if callable(self.message):
            return self.message(match)
        return self.message.format(*match.groups(), **match.groupdict())


def make_failure(
    pattern: str,
    message: str | Callable[[re.Match[str]], str] | None = None,
    *,
    decisive: bool = False,
    follows: bool = False,
) -> Failure:
    """Return a failure; ``{name}`` in the message is the pattern's group.

    Without a message, it is that a program cannot be run. The pattern then needs the groups
    ``program``, ``host`` and ``why``.
    """
    compiled = re.compile(pattern, re.MULTILINE)
    return Failure(compiled, message or _format_cannot_run, decisive, follows)


EndPattern = tuple[re.Pattern[str], Callable[[re.Match[str]], RankEnd]]
"""A message about the end of ranks, and its parser."""


def make_end_pattern(
    pattern: str, parse: Callable[[re.Match[str]], RankEnd] | None = None
) -> EndPattern:
    """Return the pattern of a message about the end of ranks.

    Without ``parse``, the groups have the names of RankEnd's attributes; ``rank`` is a single
    number, and ``code`` is the code of MPI_Abort.
    """
    return re.compile(pattern, re.MULTILINE), parse or _parse_end_groups


def _parse_end_groups(match: re.Match[str]) -> RankEnd:
    groups = match.groupdict()
    status = groups.get("status", groups.get("code"))
    return RankEnd(
        ranks=(int(groups["rank"]),) if groups.get("rank") else (),
        host=groups.get("host"),
        signal=int(groups["signal"]) if groups.get("signal") else None,
        status=int(status) if status is not None else None,
        aborted="code" in groups,
    )


def parse_messages(
    ends: Sequence[EndPattern],
    failures: Sequence[Failure],
    output: str,
    *,
    losses: Sequence[re.Pattern[str]] = (),
    survivors: Sequence[re.Pattern[str]] = (),
    kills: bool = False,
) -> LauncherReport:
    """Return all ends of ranks in order, and the first failure of the list.

    Decisive failures come before others.

    Args:
        ends: Messages about ends of ranks.
        failures: Messages about the job as a whole.
        output: The output of launcher and ranks.
        losses: Messages about lost connections to hosts.
        survivors: Messages of ranks about lost connections to other ranks, with the group ``rank``.
        kills: As in `LauncherReport`.
    """
    positions_and_ends = [
        (match.start(), parse(match))
        for pattern, parse in ends
        for match in pattern.finditer(output)
    ]
    rank_ends = tuple(
        end for _, end in sorted(positions_and_ends, key=lambda start_and_end: start_and_end[0])
    )
    report = LauncherReport(
        rank_ends,
        kills=kills,
        lost=_find_lost_connections(losses, output),
        survivors=frozenset(
            int(match["rank"]) for pattern in survivors for match in pattern.finditer(output)
        ),
    )
    for failure in sorted(failures, key=lambda failure: not failure.decisive):
        match = failure.pattern.search(output)
        if match:
            return replace(
                report,
                reason=failure.format_message(match),
                decisive=failure.decisive,
                follows=failure.follows,
            )
    return report


def _find_lost_connections(
    losses: Sequence[re.Pattern[str]], output: str
) -> tuple[LostConnection, ...]:
    """Return the lost connections in order, each host once, unnamed ones last."""
    matches = [match for pattern in losses for match in pattern.finditer(output)]
    connection_by_host: dict[str | None, LostConnection] = {}
    for match in sorted(matches, key=lambda match: match.start()):
        connection = _parse_lost_connection(match)
        connection_by_host.setdefault(connection.host, connection)
    return tuple(
        sorted(connection_by_host.values(), key=lambda connection: connection.host is None)
    )


def _parse_lost_connection(match: re.Match[str]) -> LostConnection:
    host = match.groupdict().get("host")
    # ssh prints UNKNOWN for a host behind a proxy command
    host = None if host == "UNKNOWN" else host
    return LostConnection(host, match[0].splitlines()[0].strip().rstrip("."))


def _format_lost_connection(match: re.Match[str]) -> str:
    return f"an ssh session was lost: {_parse_lost_connection(match).message}"


def _format_cannot_run(match: re.Match[str]) -> str:
    host = f" on {match['host']}" if match["host"] else ""
    return f"program {match['program']} cannot be run{host}: {match['why']}"


MPI_ABORT = make_end_pattern(
    r"application called MPI_Abort\([^,]*, (?P<code>-?\d+)\) - process (?P<rank>\d+)"
)
"""The message of MPICH and derived libraries under every launcher."""

SSH_FAILURES = (
    make_failure(
        r"Could not resolve hostname (?P<host>[^\s:]+)",
        "host {host} cannot be reached: its name does not resolve",
    ),
    make_failure(
        r"connect to host (?P<host>\S+) port \d+: (?P<why>[^\r\n]+)",
        "host {host} cannot be reached by ssh: {why}",
    ),
    make_failure(
        r"^(?:\S+@)?(?P<host>[^\s:]+): Permission denied \(",
        "host {host} refuses ssh without a password: give it this account's key",
    ),
    make_failure(
        r"Host key verification failed",
        "ssh does not know the key of a host: connect to each host once by hand",
    ),
)
"""Messages of ssh, which every launcher that starts hosts by ssh passes on."""

_WHY = r": [^\r\n]+"
_AT_PORT = r"(?P<host>\S+) port \d+"
SSH_LOSSES = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        # With -q, as mpirun_rsh calls it, ssh prints only these two. A rank may print before them
        # on the same line. "Connection to HOST closed." is not a loss: with -t it
        # ends each session.
        r"(?<!\S)Connection to (?P<host>\S+) closed by remote host\.",
        rf"^Read from remote host (?P<host>[^\s:]+){_WHY}",
        r"^Timeout, server (?P<host>\S+) not responding\.",
        rf"^(?:\w+: )?Connection to {_AT_PORT}{_WHY}",
        rf"^(?:\w+: )?Connection (?:reset|closed) by {_AT_PORT}",
        rf"^Received disconnect from {_AT_PORT}:\d+{_WHY}",
        rf"^(?:client_loop: send disconnect|Write failed){_WHY}",
        rf"^(?:kex|ssh)_exchange_identification{_WHY}",
    )
)
"""Messages of ssh about a connection that it had and lost.

Ranks also print "Connection reset by peer" when another rank has ended: each pattern needs more.
"""
SSH_LOSS_FAILURES = tuple(Failure(pattern, _format_lost_connection) for pattern in SSH_LOSSES)
"""The same messages, for a launcher with jobs that survive the loss of ssh sessions."""
