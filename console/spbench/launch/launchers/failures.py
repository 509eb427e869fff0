"""Failures of launchers: their own messages, turned into facts and sentences."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from spbench.launch.launcher import LostConnection, RankEnd, Said


@dataclass(frozen=True, slots=True)
class Failure:
    """A message that a launcher prints, and what it says in plain words.

    Attributes:
        decisive: Whether it says why the job ended, and not what followed from a rank's end.
        follows: Whether it may follow from a rank's end, and then explains nothing.
    """

    pattern: re.Pattern[str]
    sentence: str | Callable[[re.Match[str]], str]
    decisive: bool = False
    follows: bool = False

    def tell(self, match: re.Match[str]) -> str:
        """Return the sentence with the message's numbers and names filled in."""
        if callable(self.sentence):
            return self.sentence(match)
        return self.sentence.format(*match.groups(), **match.groupdict())


def failure(
    pattern: str,
    sentence: str | Callable[[re.Match[str]], str] | None = None,
    *,
    decisive: bool = False,
    follows: bool = False,
) -> Failure:
    """Return a Failure; ``{name}`` in the sentence stands for the pattern's group.

    Without one a program cannot be run; the groups ``program``, ``host`` and ``why`` tell more.
    """
    compiled = re.compile(pattern, re.MULTILINE)
    return Failure(compiled, sentence or _cannot_run, decisive, follows)


End = tuple[re.Pattern[str], Callable[[re.Match[str]], RankEnd]]
"""A message about the end of ranks, and the reader of it."""


def end(pattern: str, read: Callable[[re.Match[str]], RankEnd] | None = None) -> End:
    """Return an End; without ``read`` the groups are named as RankEnd's attributes, and ``rank``.

    A pattern with a group ``code`` tells of MPI_Abort.
    """
    return re.compile(pattern, re.MULTILINE), read or _by_groups


def _by_groups(match: re.Match[str]) -> RankEnd:
    found = match.groupdict()
    status = found.get("status", found.get("code"))
    return RankEnd(
        ranks=(int(found["rank"]),) if found.get("rank") else (),
        host=found.get("host"),
        signal=int(found["signal"]) if found.get("signal") else None,
        status=int(status) if status is not None else None,
        aborted="code" in found,
    )


def read(
    ends: Sequence[End],
    failures: Sequence[Failure],
    output: str,
    *,
    losses: Sequence[re.Pattern[str]] = (),
    kills: bool = False,
) -> Said:
    """Return what an output tells: all ends in their order, and the first failure of the list.

    Args:
        ends: Messages about ends of ranks.
        failures: Messages about the job as a whole.
        output: What launcher and ranks have printed.
        losses: Messages about lost connections to hosts.
        kills: Passed on to `Said`.
    """
    found = [
        (match.start(), tell(match)) for known, tell in ends for match in known.finditer(output)
    ]
    told = tuple(end for _, end in sorted(found, key=lambda pair: pair[0]))
    lost = _read_losses(losses, output)
    for known in sorted(failures, key=lambda known: not known.decisive):
        match = known.pattern.search(output)
        if match:
            return Said(told, known.tell(match), known.decisive, kills, lost, known.follows)
    return Said(told, kills=kills, lost=lost)


def _read_losses(losses: Sequence[re.Pattern[str]], output: str) -> tuple[LostConnection, ...]:
    """Return the lost connections in order, each host once; those that name no host come last."""
    matches = [match for known in losses for match in known.finditer(output)]
    hosts: dict[str | None, LostConnection] = {}
    for match in sorted(matches, key=lambda match: match.start()):
        connection = _read_loss(match)
        hosts.setdefault(connection.host, connection)
    return tuple(sorted(hosts.values(), key=lambda connection: connection.host is None))


def _read_loss(match: re.Match[str]) -> LostConnection:
    host = match.groupdict().get("host")
    # ssh knows no name of a host behind a proxy command
    host = None if host == "UNKNOWN" else host
    return LostConnection(host, match[0].splitlines()[0].strip().rstrip("."))


def _tell_loss(match: re.Match[str]) -> str:
    return f"an ssh session was lost: {_read_loss(match).message}"


def _cannot_run(said: re.Match[str]) -> str:
    where = f" on {said['host']}" if said["host"] else ""
    return f"program {said['program']} cannot be run{where}: {said['why']}"


MPI_ABORT = end(r"application called MPI_Abort\([^,]*, (?P<code>-?\d+)\) - process (?P<rank>\d+)")
"""The words of MPICH and its kin, whatever launched them."""

SSH_FAILURES = (
    failure(
        r"Could not resolve hostname (?P<host>[^\s:]+)",
        "host {host} cannot be reached: its name does not resolve",
    ),
    failure(
        r"connect to host (?P<host>\S+) port \d+: (?P<why>[^\r\n]+)",
        "host {host} cannot be reached by ssh: {why}",
    ),
    failure(
        r"^(?:\S+@)?(?P<host>[^\s:]+): Permission denied \(",
        "host {host} refuses ssh without a password: give it this account's key",
    ),
    failure(
        r"Host key verification failed",
        "ssh does not know the key of a host: connect to each host once by hand",
    ),
)
"""Messages of ssh itself; every launcher that starts hosts by ssh passes them on."""

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

Ranks print "Connection reset by peer" too, when another rank has ended: each pattern has more.
"""
SSH_LOSS_FAILURES = tuple(Failure(pattern, _tell_loss) for pattern in SSH_LOSSES)
"""The same messages, for a launcher that keeps its jobs without the ssh sessions."""
