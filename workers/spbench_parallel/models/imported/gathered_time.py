"""Time that this process spends on operators that are computed on gathered maps."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import Any


@dataclass(slots=True)
class GatheredTime:
    """The time of forward passes on gathered maps, by the host's clock; gathering is no part of it.

    Attributes:
        seconds: The time since the process started: take the difference of two readings.
    """

    seconds: float = 0.0
    _began: float = 0.0


GATHERED_TIME = GatheredTime()


def start_gathered(values: Any) -> Any:
    """Note that an operator begins, and return its first input as it is."""
    GATHERED_TIME._began = perf_counter()
    return values


def stop_gathered(values: Any) -> Any:
    """Note that it has ended, and return its result as it is."""
    GATHERED_TIME.seconds += perf_counter() - GATHERED_TIME._began
    return values
