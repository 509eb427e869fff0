"""Batch jobs with real ranks: bash runs the script like PBS would."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from spbench.record.runs.folder import find_run
from support.paths import ROOT, TEST_SUITES
from support.runs import SPBENCH, run

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]


class BatchRun:
    """The folder of a batch job, which `spbench script` writes for PBS."""

    def __init__(self, tmp_path: Path, suite: str, *arguments: str) -> None:
        self.folder = tmp_path / "job"
        self.home = tmp_path / "home"
        folders = ("--output", str(self.folder), "--home", str(self.home))
        self.spbench("script", suite, "--scheduler", "pbs", *folders, *arguments)

    def spbench(self, *arguments: str, code: int = 0) -> str:
        process = subprocess.run(
            [SPBENCH, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
        )
        assert process.returncode == code, process.stdout + process.stderr
        return process.stdout

    def start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(["bash", str(self.folder / "job.sh")], env=os.environ)

    def run(self) -> int:
        with self.start() as process:
            return process.wait(60)

    def events(self, launch: str = "1/1") -> list[dict[str, Any]]:
        files = (self.folder / "jobs" / launch / "events").glob("*.jsonl")
        lines = [line for path in files for line in path.read_text().split("\n")[:-1]]
        return [json.loads(line) for line in lines]

    def wait_for_event(self, **fields: Any) -> dict[str, Any]:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            for event in self.events():
                if fields.items() <= event.items():
                    return event
            time.sleep(0.05)
        raise AssertionError(f"no event with {fields}")

    def collect(self, code: int = 0) -> dict[str, Any]:
        arguments = ("collect", str(self.folder), "--home", str(self.home), "--json", "-")
        return json.loads(self.spbench(*arguments, code=code))


def describe_shape(value: Any) -> Any:
    """Return the fields and types of a report, without numbers, times and names."""
    if isinstance(value, dict):
        return {key: describe_shape(field) for key, field in value.items() if key != "argv"}
    if isinstance(value, list):
        return [describe_shape(field) for field in value[:1]]
    return type(value).__name__ if isinstance(value, (int, float, str)) else value


def list_kinds(events: list[dict[str, Any]]) -> set[str]:
    """Return the kinds of events without the heartbeat, which a short run may lack."""
    return {event["event"] for event in events} - {"heartbeat"}


def test_collected_run_has_the_report_of_a_live_run(tmp_path: Path) -> None:
    suite = str(TEST_SUITES / "faults.yaml")
    live = run(suite, home=tmp_path / "live")
    batch = BatchRun(tmp_path, suite)
    assert batch.run() == 0
    report = batch.collect()
    assert {case["id"]: case["status"] for case in report["cases"]} == live.statuses
    for case, live_case in zip(report["cases"], live.report["cases"], strict=True):
        case["launch"]["env"] = live_case["launch"]["env"] = {}
        case["noisy"] = live_case["noisy"] = None  # other tests may have used the cores
        assert describe_shape(case) == describe_shape(live_case)
    assert report["run"].keys() == live.report["run"].keys()
    folder = find_run(batch.home, "last")
    batch_events = [json.loads(line) for line in folder.events.read_text().splitlines()]
    assert list_kinds(batch_events) == list_kinds(live.events)
    home = ("--home", str(batch.home))
    for arguments in (["results", "show"], ["results", "export"], ["compare", "last", "last"]):
        assert "second" in batch.spbench(*arguments, *home)


@pytest.mark.long
def test_killed_rank_is_an_error_and_the_next_case_runs(tmp_path: Path) -> None:
    batch = BatchRun(tmp_path, str(TEST_SUITES / "long.yaml"))
    with batch.start() as process:
        batch.wait_for_event(event="progress", phase="timing")
        os.kill(batch.wait_for_event(event="ready", rank=1)["pid"], signal.SIGKILL)
        assert process.wait(60) != 0
    report = batch.collect(code=4)
    long, after = report["cases"]
    assert (long["status"], after["status"]) == ("error", "passed")
    assert "rank 1 on " in long["reason"]
    assert "signal 9" in long["reason"]


@pytest.mark.long
def test_second_start_continues_after_the_time_limit(
    tmp_path: Path,
) -> None:
    batch = BatchRun(tmp_path, str(TEST_SUITES / "long.yaml"))
    with batch.start() as process:
        batch.wait_for_event(event="progress", phase="timing")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143
    report = batch.collect(code=143)
    assert [case["status"] for case in report["cases"]] == ["cancelled", "cancelled"]
    cases_path = batch.folder / "jobs/1/cases.json"
    cases_path.write_text(cases_path.read_text().replace("5000000", "5"))
    assert batch.run() == 0
    report = batch.collect()
    assert [case["status"] for case in report["cases"]] == ["passed", "passed"]


@pytest.mark.long
def test_case_ends_at_its_timeout_in_a_batch_job(tmp_path: Path) -> None:
    arguments = ("--set", "launch.timeout=1", "-k", "long")
    batch = BatchRun(tmp_path, str(TEST_SUITES / "long.yaml"), *arguments)
    assert batch.run() != 0
    (long,) = batch.collect(code=4)["cases"]
    assert long["status"] == "timeout"
    assert "not through with long after" in long["reason"]
    assert "(its timeout is 1 s)" in long["reason"]


def test_reports_a_missing_interpreter(tmp_path: Path) -> None:
    batch = BatchRun(tmp_path, str(TEST_SUITES / "faults.yaml"), "-k", "first")
    script = batch.folder / "job.sh"
    script.write_text(
        script.read_text().replace(f" {shlex.quote(sys.executable)} ", " /nowhere/python ")
    )
    assert batch.run() != 0
    (first,) = batch.collect(code=4)["cases"]
    assert first["status"] == "error"
    assert "/nowhere/python" in first["reason"]


def test_broken_program_ends_its_other_ranks(
    tmp_path: Path,
) -> None:
    suite = tmp_path / "programs.yaml"
    suite.write_text("""
schema: spbench.suite/1
name: programs
cases:
  - name: fine
    benchmark: program.run
    np: 2
    repeat: 2
    params:
      argv: [echo, "{host} rank {rank} of {np}"]
      per: rank
      must: [rank 0 of 2]
  - name: broken
    benchmark: program.run
    np: 2
    params:
      by_rank: {"0": [sleep, "60"], "1": [sh, -c, exit 3]}
""")
    job = BatchRun(tmp_path, str(suite))
    assert job.run() != 0
    report = job.collect(code=4)
    fine, broken = report["cases"]
    assert fine["status"] == "passed"
    assert fine["metrics"]["time_ms"]["n"] == 2
    assert broken["status"] == "error"
    assert "sh ended with exit code 3" in broken["reason"]
