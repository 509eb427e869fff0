"""Faults of the processes of a run: ranks, launcher and console."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress

from spbench.engine.processes import find_processes
from support.paths import TEST_SUITES
from support.reliability.trial import LONG, Trial
from support.runs import RunResult

FAULTS = (TEST_SUITES / "faults.yaml").read_text()


def signalled(number: signal.Signals) -> Callable[[Trial], RunResult]:
    """Send a rank that measures a signal."""

    def act(trial: Trial) -> RunResult:
        trial.start(LONG)
        trial.strike(trial.measuring(), number)
        return trial.wait()

    return act


def killed_before_a_case(trial: Trial) -> RunResult:
    """Kill a rank that is ready, before the first case."""
    trial.start(LONG)
    trial.strike(trial.find_pid(trial.victim), signal.SIGKILL)
    return trial.wait()


def stopped_before_a_case(trial: Trial) -> RunResult:
    """Stop a rank that is ready, before the first case."""
    trial.start(LONG)
    trial.strike(trial.find_pid(trial.victim), signal.SIGSTOP)
    return trial.wait()


def both_killed(trial: Trial) -> RunResult:
    """Kill both ranks."""
    trial.start(LONG)
    trial.measuring()
    pids = [trial.find_pid(rank) for rank in (0, 1)]
    trial.since = time.monotonic()
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return trial.wait()


def launcher_killed(trial: Trial) -> RunResult:
    """Kill the launcher while ranks measure."""
    trial.start(LONG)
    trial.measuring()
    console = trial.place.console(trial.run)
    trial.strike(_children(console)[0], signal.SIGKILL)
    return trial.wait()


def console_killed(trial: Trial) -> RunResult:
    """Kill the console while ranks measure; their end is the end of the trial."""
    trial.start(LONG)
    trial.measuring()
    run_id = trial.run.folder.name
    trial.strike(trial.place.console(trial.run), signal.SIGKILL)
    deadline = time.monotonic() + 15
    while find_processes(run_id) and time.monotonic() < deadline:
        time.sleep(0.1)
    return trial.wait()


def interrupted(number: signal.Signals, times: int = 1) -> Callable[[Trial], RunResult]:
    """Send the console a signal, once or several times."""

    def act(trial: Trial) -> RunResult:
        trial.start(LONG)
        trial.measuring()
        for _ in range(times):
            trial.strike(trial.place.console(trial.run), number)
            time.sleep(0.2)
        return trial.wait()

    return act


def planted(*words: str, suite: str = FAULTS) -> Callable[[Trial], RunResult]:
    """Run a suite with words that break it."""

    def act(trial: Trial) -> RunResult:
        trial.victim = 1
        trial.host = ""
        trial.start(suite, *words)
        ended = trial.wait()
        for event in ended.events if ended.code not in (2, 3) else ():
            if event["event"] == "ready" and event["rank"] == trial.victim:
                trial.host = str(event["host"])
        return ended

    return act


def with_environment(*words: str, suite: str = FAULTS, **env: str) -> Callable[[Trial], RunResult]:
    """Run a suite with variables of the console."""

    def act(trial: Trial) -> RunResult:
        trial.start(suite, *words, env=env)
        return trial.wait()

    return act


def two_consoles(trial: Trial) -> RunResult:
    """Run a suite twice at once in one home."""
    trial.start(FAULTS)
    first = trial.run
    trial.start(FAULTS)
    one = first.wait()
    other = trial.wait()
    return one if one.code else other


def _children(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(word) for word in file.read().split()]
