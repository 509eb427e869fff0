"""Faults of the processes of a run: ranks, launcher and controller."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress

from spbench.engine.processes import find_processes
from support.processes import list_children
from support.reliability.trial import FAULTS_SUITE, LONG, FaultTrial
from support.runs import RunResult


def signal_rank(number: signal.Signals) -> Callable[[FaultTrial], RunResult]:
    """Send a signal to a rank that measures."""

    def act(trial: FaultTrial) -> RunResult:
        trial.start(LONG)
        trial.inject_signal(trial.wait_until_timing(), number)
        return trial.wait()

    return act


def kill_rank_before_case(trial: FaultTrial) -> RunResult:
    """Kill a rank that is ready, before the first case."""
    trial.start(LONG)
    trial.inject_signal(trial.find_pid(trial.victim), signal.SIGKILL)
    return trial.wait()


def stop_rank_before_case(trial: FaultTrial) -> RunResult:
    """Stop a rank that is ready, before the first case."""
    trial.start(LONG)
    trial.inject_signal(trial.find_pid(trial.victim), signal.SIGSTOP)
    return trial.wait()


def kill_both_ranks(trial: FaultTrial) -> RunResult:
    """Kill both ranks."""
    trial.start(LONG)
    trial.wait_until_timing()
    pids = [trial.find_pid(rank) for rank in (0, 1)]
    trial.fault_time = time.monotonic()
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return trial.wait()


def kill_launcher(trial: FaultTrial) -> RunResult:
    """Kill the launcher while ranks measure."""
    trial.start(LONG)
    trial.wait_until_timing()
    controller = trial.testbed.find_controller_pid(trial.run)
    trial.inject_signal(list_children(controller)[0], signal.SIGKILL)
    return trial.wait()


def kill_controller(trial: FaultTrial) -> RunResult:
    """Kill the controller while ranks measure, and wait for the end of the ranks."""
    trial.start(LONG)
    trial.wait_until_timing()
    run_id = trial.run.folder.name
    trial.inject_signal(trial.testbed.find_controller_pid(trial.run), signal.SIGKILL)
    deadline = time.monotonic() + 15
    while find_processes(run_id) and time.monotonic() < deadline:
        time.sleep(0.1)
    return trial.wait()


def interrupt_controller(
    number: signal.Signals, times: int = 1
) -> Callable[[FaultTrial], RunResult]:
    """Send the controller a signal, once or several times."""

    def act(trial: FaultTrial) -> RunResult:
        trial.start(LONG)
        trial.wait_until_timing()
        for _ in range(times):
            trial.inject_signal(trial.testbed.find_controller_pid(trial.run), number)
            time.sleep(0.2)
        return trial.wait()

    return act


def run_with_arguments(
    *arguments: str, suite: str = FAULTS_SUITE
) -> Callable[[FaultTrial], RunResult]:
    """Run a suite with arguments that inject a fault."""

    def act(trial: FaultTrial) -> RunResult:
        trial.victim = 1
        trial.host = ""
        trial.start(suite, *arguments)
        result = trial.wait()
        if result.code not in (2, 3):  # else there is no run
            for event in result.events:
                if event["event"] == "ready" and event["rank"] == trial.victim:
                    trial.host = str(event["host"])
        return result

    return act


def run_with_environment(
    *arguments: str, suite: str = FAULTS_SUITE, **env: str
) -> Callable[[FaultTrial], RunResult]:
    """Run a suite with environment variables of the controller."""

    def act(trial: FaultTrial) -> RunResult:
        trial.start(suite, *arguments, env=env)
        return trial.wait()

    return act


def run_two_controllers(trial: FaultTrial) -> RunResult:
    """Run a suite twice at the same time in one home."""
    trial.start(FAULTS_SUITE)
    first_run = trial.run
    trial.start(FAULTS_SUITE)
    first = first_run.wait()
    second = trial.wait()
    return first if first.code else second
