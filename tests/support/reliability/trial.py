"""One trial of a fault: a run, the fault, and the outcome."""

from __future__ import annotations

import os
import random
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from spbench.engine.processes import find_processes
from support.paths import ROOT, TEST_SUITES
from support.reliability.testbeds import FaultTestbed
from support.runs import SPBENCH, RunProcess, RunResult

LONG = (TEST_SUITES / "long.yaml").read_text()
MEDIUM = LONG.replace("5000000", "60000")
"""A suite with a first case of some seconds."""
FAULTS_SUITE = (TEST_SUITES / "faults.yaml").read_text()


@dataclass
class TrialResult:
    """The outcome of a trial.

    Attributes:
        fault: The name of the fault.
        testbed: The name of the testbed.
        message: The first message that a user reads.
        code: The exit code.
        seconds: The time from the fault to the end of the run.
        mismatches: The differences from the expected outcome.
        runs: The ids of the trial's runs.
    """

    fault: str
    testbed: str
    message: str
    code: int
    seconds: float
    mismatches: list[str] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)


class FaultTrial:
    """A run into which a fault is injected.

    Attributes:
        rng: The source of the moment and of the victim.
        victim: The rank that the fault hits.
        host: The host of the victim, once it is known.
        fault_time: The time of the fault, by the monotonic clock.
        job_end_seconds: The time from the fault to the end of its job, if that has a limit.
    """

    def __init__(self, testbed: FaultTestbed, folder: Path, seed: int) -> None:
        self.testbed = testbed
        self.folder = folder
        self.rng = random.Random(seed)
        self.victim = self.rng.randrange(2)
        self.host = ""
        self.fault_time = time.monotonic()
        self.job_end_seconds: float | None = None
        self._runs: list[RunProcess] = []

    @property
    def run(self) -> RunProcess:
        """The process of the latest run."""
        return self._runs[-1]

    @property
    def report_path(self) -> Path:
        """The report of the latest run, or of a batch job."""
        return self.folder / f"report-{len(self._runs)}.json"

    def start(
        self,
        suite: str,
        *arguments: str,
        env: dict[str, str] | None = None,
        spbench: str | None = None,
    ) -> RunProcess:
        """Start a suite with the testbed's command, or with another one.

        Args:
            suite: The text of the suite.
            arguments: Further arguments of ``spbench run``.
            env: Further environment variables of the controller.
            spbench: The command to start instead of the testbed's.
        """
        path = self.folder / "suite.yaml"
        path.write_text(suite)
        # mpirun names its files by its pid, and pids repeat in each process namespace.
        temporary = {"TMPDIR": str(self.folder)} if self.testbed.isolated else {}
        run = RunProcess(
            str(path),
            *self.testbed.arguments,
            *arguments,
            home=self.folder / "home",
            report_path=self.folder / f"report-{len(self._runs) + 1}.json",
            env={**temporary, **dict(self.testbed.env), **(env or {})},
            spbench=spbench or self.testbed.spbench,
        )
        self._runs.append(run)
        self.fault_time = time.monotonic()
        return run

    def run_spbench(self, *arguments: str) -> RunResult:
        """Run another command of spbench; its results have the report of the latest run."""
        start_time = time.monotonic()
        process = subprocess.run(
            [SPBENCH, *arguments],
            cwd=ROOT,
            env={**os.environ, **dict(self.testbed.env)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return RunResult(
            process.returncode,
            process.stdout,
            process.stderr,
            seconds=time.monotonic() - start_time,
            home=self.folder / "home",
            report_path=self.report_path,
        )

    def wait_until_timing(self) -> int:
        """Wait for a random moment of the timed part; return the pid of the victim."""
        self.run.wait_for_timing()
        time.sleep(self.rng.random())
        return self.find_pid(self.victim)

    def find_pid(self, rank: int) -> int:
        """Return the pid of a rank, and store the victim's host."""
        ready = self.run.wait_for("ready", rank=rank)
        if rank == self.victim:
            self.host = str(ready["host"])
        return int(ready["pid"])

    def inject_signal(self, pid: int, number: int) -> None:
        """Send a process the signal that is the fault."""
        self.fault_time = time.monotonic()
        os.kill(pid, number)

    def wait(self, limit: float = 200.0) -> RunResult:
        """Wait for the end of the run, and return its results."""
        return self.run.wait(limit)


def find_first_reason(result: RunResult) -> str:
    """Return the first message that a user reads, or an empty string."""
    reasons: list[str] = []
    if result.report_path.exists():
        report = result.report
        cases = [case for case in report["cases"] if case["status"] != "passed"]
        reasons = [case["reason"] for case in cases if case["reason"]] + report["errors"]
    reasons += result.stderr.strip().splitlines()[-1:]
    return reasons[0] if reasons else ""


def find_leftover_runs(runs: list[str], limit: float = 15.0) -> list[str]:
    """Return the runs that still have processes after ``limit`` seconds."""
    deadline = time.monotonic() + limit
    while leftover_runs := [run for run in runs if find_processes(run)]:
        if time.monotonic() > deadline:
            return leftover_runs
        time.sleep(0.1)
    return []
