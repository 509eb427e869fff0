"""Faults of a job: the one that ended it, and what was seen of it as it came about."""

from __future__ import annotations

import re
from dataclasses import dataclass

from spbench_core.events.statuses import CaseStatus


@dataclass(frozen=True, slots=True)
class Fault:
    """The fault that ended a job: a verdict for the case it hit, and a sentence with the rank.

    ``status`` is that of the case: ``error``, ``timeout`` or ``cancelled``. ``case`` None: the
    fault names no case; it counts for the one that was not through.
    """

    status: CaseStatus
    message: str
    rank: int | None = None
    case: str | None = None
    missing: bool = False
    traceback: str | None = None


@dataclass(frozen=True, slots=True)
class RankLoss:
    """A connection that ended before its rank had said bye.

    Attributes:
        who: The rank, its host, and when: ``rank 2 on node02, 1.4 s into a``.
    """

    rank: int | None
    description: str


# torch's own transports, MPI through mpi4py, and sockets
_COMMUNICATION = re.compile(
    r"^(?:mpi4py\.MPI\.Exception|ConnectionError|Connection\w+Error|BrokenPipeError"
    r"|(?:torch\.distributed\.)?Dist(?:Backend|Network|Store)Error)\b"
    r"|^Exception: (?:MPI_ERR|Unknown error class|Other MPI error|.*error stack)"
    r"|Connection (?:closed by peer|reset by peer)|ncclRemoteError|MPI_ERR_PROC_FAILED",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class RankError:
    """An exception that a rank has told of.

    Attributes:
        who: As in `RankLoss`.
        message: Its first line, behind its class.
        hint: What would mend it, behind the message.
        orphaned: Whether it is that the launcher's helper which started the rank has ended.
    """

    rank: int
    description: str
    message: str
    hint: str = ""
    case: str | None = None
    missing: bool = False
    traceback: str | None = None
    orphaned: bool = False

    @property
    def interrupted(self) -> bool:
        """Whether it is what SIGINT becomes, which a launcher sends to end a job."""
        return self.message.startswith("KeyboardInterrupt")

    @property
    def follows(self) -> bool:
        """Whether another rank's end brings about such an error: one of communication, say."""
        text = f"{self.message}\n{self.traceback or ''}"
        return self.orphaned or self.interrupted or _COMMUNICATION.search(text) is not None

    def to_fault(self) -> Fault:
        """Return the fault that it is by itself."""
        sentence = f"{self.description}: {self.message}{self.hint}"
        return Fault(CaseStatus.ERROR, sentence, self.rank, self.case, self.missing, self.traceback)


Observation = RankLoss | RankError
"""A piece of evidence, as it came."""
