"""One trial of a fault: a run, the fault at some moment of it, and what came of it."""

from __future__ import annotations

import json
import os
import random
import subprocess
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from spbench.engine.processes import find_processes
from support.paths import ROOT, TEST_SUITES
from support.reliability.testbeds import FaultTestbed
from support.runs import SPBENCH, RunProcess, RunResult

LONG = (TEST_SUITES / "long.yaml").read_text()
MEDIUM = LONG.replace("5000000", "60000")
"""A suite whose first case goes on for some seconds."""


@dataclass
class TrialResult:
    """The outcome of a trial.

    Attributes:
        sentence: The reason of the first case that did not pass, or the last line on stderr.
        code: The exit code.
        seconds: From the fault to the end of the run.
        wrong: Where the outcome is not as expected; empty: it is.
    """

    fault: str
    testbed: str
    message: str
    code: int
    seconds: float
    mismatches: list[str] = field(default_factory=list)
    run: str = ""

    def to_json(self) -> str:
        """Return it as a line of JSON."""
        return json.dumps(asdict(self))


class Trial:
    """A run in which a fault is tried.

    Attributes:
        rng: The moment and the victim come from it.
        victim: The rank that the fault hits.
        host: Its host, once it is known.
        named: Seconds from the fault to the end of its job, if the fault is to be named in time.
    """

    def __init__(self, place: FaultTestbed, folder: Path, seed: int) -> None:
        self.testbed = place
        self.folder = folder
        self.rng = random.Random(seed)
        self.victim = self.rng.randrange(2)
        self.host = ""
        self.fault_time = time.monotonic()
        self.job_end_seconds: float | None = None
        self._run: RunProcess | None = None

    @property
    def run(self) -> RunProcess:
        """The run under way."""
        assert self._run is not None
        return self._run

    def start(
        self,
        suite: str,
        *words: str,
        env: dict[str, str] | None = None,
        spbench: str | None = None,
    ) -> RunProcess:
        """Start the suite of this text, by another command than the place's where one is given."""
        path = self.folder / "suite.yaml"
        path.write_text(suite)
        # Consoles in process namespaces have the same small pids, by which mpirun names its files.
        own = {"TMPDIR": str(self.folder)} if self.testbed.isolated else {}
        given = {**own, **dict(self.testbed.env), **(env or {})}
        words = (str(path), *self.testbed.words, *words)
        command = spbench or self.testbed.spbench
        self._run = RunProcess(*words, home=self.folder / "home", env=given, spbench=command)
        self.fault_time = time.monotonic()
        return self._run

    def run_spbench(self, *words: str) -> RunResult:
        """Run another command of spbench's to its end; its report, if any, is the run's."""
        began = time.monotonic()
        done = subprocess.run(
            [SPBENCH, *words],
            cwd=ROOT,
            env={**os.environ, **dict(self.testbed.env)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        seconds = time.monotonic() - began
        home = self.folder / "home"
        return RunResult(
            done.returncode, done.stdout, done.stderr, seconds, home, self.folder / "home.json"
        )

    def wait_until_timing(self) -> int:
        """Wait for a random moment of the timed part; return the victim's pid."""
        self.run.wait_for_timing()
        time.sleep(self.rng.random())
        return self.find_pid(self.victim)

    def find_pid(self, rank: int) -> int:
        """Return the pid of a rank, and note the victim's host."""
        ready = self.run.wait_for("ready", rank=rank)
        if rank == self.victim:
            self.host = str(ready["host"])
        return int(ready["pid"])

    def inject_signal(self, pid: int, number: int) -> None:
        """Send a process the signal that is the fault."""
        self.fault_time = time.monotonic()
        os.kill(pid, number)

    def wait(self, limit: float = 200.0) -> RunResult:
        """Wait for the end of the run."""
        return self.run.wait(limit)


def find_first_reason(ended: RunResult) -> str:
    """Return the first reason that a user reads."""
    told: list[str] = []
    if ended.report_path.exists():
        report = ended.report
        cases = [case for case in report["cases"] if case["status"] != "passed"]
        told = [case["reason"] for case in cases if case["reason"]] + report["errors"]
    told += ended.stderr.strip().splitlines()[-1:]
    return told[0] if told else ""


def find_leftover_runs(runs: list[str], limit: float = 15.0) -> list[str]:
    """Return the runs of which processes are left when some seconds have passed."""
    deadline = time.monotonic() + limit
    while left := [run for run in runs if find_processes(run)]:
        if time.monotonic() > deadline:
            return left
        time.sleep(0.1)
    return []
