"""Fault injection for every benchmark, to show that faults are detected."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable

from spbench_core.catalog.planted_fault import (
    DEFAULT_FACTOR,
    EXIT_STATUS,
    MIN_DELAY,
    RAISED_TEXT,
    EndingFault,
)


class InjectedFaultError(RuntimeError):
    """The exception that ``--inject raise`` raises."""


def inject_fault(
    fault: str,
    body: Callable[[], object],
    seconds: float | None = None,
    factor: float | None = None,
) -> Callable[[], object]:
    """Return ``body`` with an injected fault, for the rank that is to fail.

    Args:
        fault: One of the catalog's COMMON_FAULTS.
        body: One iteration.
        seconds: The seconds of an iteration without the fault (default: measured).
        factor: The ratio of the times of a slow and a normal iteration.
    """
    if factor is not None:
        return _prolong(body, factor)
    if fault == "slow":
        return _slow(body, seconds)
    return _FAULTS[fault]


def _slow(body: Callable[[], object], seconds: float | None) -> Callable[[], object]:
    def slow_body() -> None:
        start = time.perf_counter()
        body()
        elapsed_seconds = time.perf_counter() - start if seconds is None else seconds
        time.sleep(max((DEFAULT_FACTOR - 1) * elapsed_seconds, MIN_DELAY))

    return slow_body


def _prolong(body: Callable[[], object], factor: float) -> Callable[[], object]:
    """Return ``body`` with busy waiting until it took ``factor`` times as long."""

    def long_body() -> None:
        start = time.perf_counter()
        body()
        end = start + (time.perf_counter() - start) * factor
        while time.perf_counter() < end:
            pass

    return long_body


def _hang() -> None:  # the console knows a planted hang by this name
    while True:
        time.sleep(3600)


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _raise() -> None:
    raise InjectedFaultError(RAISED_TEXT)


def _exit() -> None:
    sys.exit(EXIT_STATUS)


_FAULTS: dict[str, Callable[[], object]] = {
    EndingFault.HANG: _hang,
    EndingFault.KILL: _kill,
    EndingFault.STOP: _stop,
    EndingFault.RAISE: _raise,
    EndingFault.EXIT: _exit,
}
