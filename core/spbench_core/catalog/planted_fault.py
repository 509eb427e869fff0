"""The common faults of ``--inject``, and faults as texts: ``slow=1.5,rank=0``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum


class EndingFault(StrEnum):
    """A common fault that ends its rank or makes it silent."""

    HANG = "hang"
    KILL = "kill"
    STOP = "stop"
    RAISE = "raise"
    EXIT = "exit"


RAISED_TEXT = "raised on purpose"
"""The text of the exception of ``raise``."""
EXIT_STATUS = 3
"""The exit status of ``exit``."""

COMMON_FAULTS: dict[str, str] = {
    EndingFault.HANG: "the last rank sleeps for ever",
    EndingFault.KILL: "the last rank kills itself with SIGKILL",
    EndingFault.STOP: "the last rank stops itself with SIGSTOP",
    EndingFault.RAISE: "the last rank raises an exception",
    EndingFault.EXIT: f"the last rank calls sys.exit({EXIT_STATUS})",
    "slow": "each iteration of the last rank takes five times as long, at least 2 ms longer; "
    "slow=1.1 makes it 1.1 times as long, by busy waiting",
}
"""The faults that ``--inject`` can plant in every benchmark, each with its effect."""

FACTOR_FAULT = "slow"
"""The fault that takes a factor, by which it makes iterations slower."""
MAX_FACTOR = 1000.0
DEFAULT_FACTOR = 5.0
"""The ratio of the times of a slow and a normal iteration without a factor."""
MIN_DELAY = 0.002
"""The least seconds by which an iteration without a factor is longer, so that it exceeds noise."""

JOB_FAULTS = frozenset(
    {
        "corrupt-exit",
        "drop-output",
        "forge-line",
        "full:tile-batchnorm",
        "stale-state",
        "tile-batchnorm",
        "uncounted-wait",
    }
)
"""The faults without a rank: they change the common work of all ranks of a job."""

_RANK = "rank"


@dataclass(frozen=True, slots=True)
class PlantedFault:
    """A fault of ``--inject``.

    Attributes:
        name: Its name in the catalog.
        factor: The ratio of the times of a slow and a normal iteration; None: the default.
        rank: The rank of each launch in which it is planted; None: the last one.
    """

    name: str
    factor: float | None = None
    rank: int | None = None

    def find_rank(self, np: int) -> int:
        """Return the rank in which it is planted in a launch of ``np`` ranks."""
        return np - 1 if self.rank is None else self.rank

    def explain_missing_rank(self, np: int) -> str | None:
        """Return ``no rank 7, only 0 to 3`` if a launch of ``np`` ranks lacks its rank."""
        if self.find_rank(np) < np:
            return None
        return f"no rank {self.rank}, only " + ("rank 0" if np == 1 else f"0 to {np - 1}")


def parse_fault(text: str) -> PlantedFault:
    """Return the fault of a text such as ``kill``, ``slow=1.5`` or ``kill,rank=0``.

    Raises:
        ValueError: The fault takes no factor or no rank, or one of them is invalid.
    """
    fault, *options = text.split(",")
    name, equals, factor_text = fault.partition("=")
    factor = _parse_factor(name, factor_text) if equals else None
    rank = _parse_rank(name, options) if options else None
    return PlantedFault(name, factor, rank)


def _parse_factor(name: str, text: str) -> float:
    if name != FACTOR_FAULT:
        raise ValueError(f"{name} takes no factor; {FACTOR_FAULT} does, as {FACTOR_FAULT}=1.1")
    try:
        factor = float(text)
    except ValueError:
        factor = math.nan
    if not 1.0 < factor <= MAX_FACTOR:
        raise ValueError(
            f"{FACTOR_FAULT}={text}: give a number above 1 and at most {MAX_FACTOR:g}, such as"
            f" {FACTOR_FAULT}=1.1"
        )
    return factor


def _parse_rank(name: str, options: list[str]) -> int:
    key, _, text = options[0].partition("=")
    if len(options) > 1 or key != _RANK or not (text.isascii() and text.isdecimal()):
        raise ValueError(
            f"{','.join(options)}: give the number of a rank after the comma, such as {name},rank=0"
        )
    if name in JOB_FAULTS:
        raise ValueError(f"{name} takes no rank, because all ranks of the case have the fault")
    return int(text)
