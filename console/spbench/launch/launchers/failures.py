"""Failures of launchers: their own messages, turned into facts and sentences."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from spbench.launch.launcher import RankEnd, Said


@dataclass(frozen=True, slots=True)
class Failure:
    """A message that a launcher prints, and what it says in plain words.

    Attributes:
        decisive: Whether it says why the job ended, and not what followed from a rank's end.
    """

    pattern: re.Pattern[str]
    sentence: str | Callable[[re.Match[str]], str]
    decisive: bool = False

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
) -> Failure:
    """Return a Failure; ``{name}`` in the sentence stands for the pattern's group.

    Without one a program cannot be run; the groups ``program``, ``host`` and ``why`` tell more.
    """
    return Failure(re.compile(pattern, re.MULTILINE), sentence or _cannot_run, decisive)


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
    ends: Sequence[End], failures: Sequence[Failure], output: str, *, kills: bool = False
) -> Said:
    """Return what an output tells: all ends in their order, and the first failure of the list.

    ``kills`` is passed on to `Said`.
    """
    found = [
        (match.start(), tell(match)) for known, tell in ends for match in known.finditer(output)
    ]
    told = tuple(end for _, end in sorted(found, key=lambda pair: pair[0]))
    for known in sorted(failures, key=lambda known: not known.decisive):
        match = known.pattern.search(output)
        if match:
            return Said(told, known.tell(match), known.decisive, kills)
    return Said(told, kills=kills)


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
