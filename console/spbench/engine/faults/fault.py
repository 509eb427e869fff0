"""Faults of a job: the one that ended it, and the observations that lead to it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from spbench_core.catalog.planted_fault import (
    EXIT_STATUS,
    RAISED_TEXT,
    EndingFault,
    parse_fault,
)
from spbench_core.events.statuses import CaseStatus


@dataclass(frozen=True, slots=True)
class Fault:
    """The fault that ended a job.

    Attributes:
        status: The status of the case that it hit: ``error``, ``timeout`` or ``cancelled``.
        message: The reason, with the rank.
        case: The case that it hit. None means the one that had not ended.
        missing: Whether something is missing, such as a module.
        effect: The fault of ``--inject`` that ends a rank in this way, if any.
    """

    status: CaseStatus
    message: str
    rank: int | None = None
    case: str | None = None
    missing: bool = False
    traceback: str | None = None
    effect: EndingFault | None = None

    def shows(self, inject: str | None, np: int) -> bool:
        """Whether it is the effect of a planted fault, on its rank of ``np`` ranks."""
        if inject is None or self.effect is None:
            return False
        planted = parse_fault(inject)
        return (self.effect, self.rank) == (planted.name, planted.find_rank(np))


@dataclass(frozen=True, slots=True)
class RankLoss:
    """A connection that ended before its rank had sent its bye.

    Attributes:
        description: The rank, its host, and the time: ``rank 2 on node02, 1.4 s into a``.
    """

    rank: int | None
    description: str


# from torch's own transports, MPI through mpi4py, and sockets
_COMMUNICATION = re.compile(
    r"^(?:mpi4py\.MPI\.Exception|ConnectionError|Connection\w+Error|BrokenPipeError"
    r"|(?:torch\.distributed\.)?Dist(?:Backend|Network|Store)Error)\b"
    r"|^Exception: (?:MPI_ERR|Unknown error class|Other MPI error|.*error stack)"
    r"|Connection (?:closed by peer|reset by peer)|ncclRemoteError|MPI_ERR_PROC_FAILED",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class RankError:
    """An exception that a rank has reported.

    Attributes:
        description: As in `RankLoss`.
        message: Its class and the first line of its text.
        hint: The remedy, which follows the message.
        orphaned: Whether the launcher's helper that started the rank has ended.
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
        """Whether it is a SIGINT, which launchers send to end a job."""
        return self.message.startswith("KeyboardInterrupt")

    @property
    def may_be_consequence(self) -> bool:
        """Whether the end of another rank may cause it, such as an error in communication."""
        text = f"{self.message}\n{self.traceback or ''}"
        return self.orphaned or self.interrupted or _COMMUNICATION.search(text) is not None

    def to_fault(self) -> Fault:
        """Return the fault with only this error as its reason."""
        message = f"{self.description}: {self.message}{self.hint}"
        return Fault(
            CaseStatus.ERROR,
            message,
            self.rank,
            self.case,
            self.missing,
            self.traceback,
            self._find_effect(),
        )

    def _find_effect(self) -> EndingFault | None:
        if self.message.endswith(RAISED_TEXT):
            return EndingFault.RAISE
        return EndingFault.EXIT if self.message == f"SystemExit: {EXIT_STATUS}" else None


Observation = RankLoss | RankError
"""A piece of evidence, in the order of arrival."""
