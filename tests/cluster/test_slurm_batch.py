"""Batch jobs on a real Slurm with two nodes, and runs inside its allocations."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from support.cluster.slurm import Slurm
from support.paths import DOCS, ROOT, TEST_SUITES
from support.runs import SPBENCH

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

FAULTS = str(TEST_SUITES / "faults.yaml")
LONG = str(TEST_SUITES / "long.yaml")


class SlurmCommands:
    """Runs commands of spbench and Slurm; the ranks' MPICH is in a separate venv."""

    def __init__(self, folder: Path, mpich: Path) -> None:
        self.home = folder / "home"
        python = f"launch.python={mpich / 'bin/python'}"
        workers = f"launch.env.PYTHONPATH={ROOT / 'core'}:{ROOT / 'workers'}"
        self.settings = ("--set", python, "--set", workers)

    def __call__(self, *argv: str, code: int = 0) -> str:
        process = subprocess.run(
            argv, cwd=ROOT, capture_output=True, text=True, timeout=90, check=False
        )
        assert process.returncode == code, process.stdout + process.stderr
        return process.stdout

    def spbench(self, *arguments: str, code: int = 0) -> str:
        return self(SPBENCH, *arguments, "--home", str(self.home), code=code)

    def submit(self, suite: str, *arguments: str) -> SubmittedJob:
        nodes = ("--set", "launch.batch.nodes=2")
        stdout = self.spbench("submit", suite, *self.settings, *nodes, *arguments)
        number, folder = stdout.split()
        return SubmittedJob(self, number, Path(folder))

    def build_run_command(self, suite: str) -> list[str]:
        """Return the command that runs a suite inside an allocation."""
        report = str(self.home.parent / "report.json")
        command = [SPBENCH, "run", suite, "--headless", "--launcher", "srun", "--json", report]
        return [*command, "--home", str(self.home), *self.settings]

    @property
    def statuses(self) -> dict[str, str]:
        report = json.loads((self.home.parent / "report.json").read_text())
        return {case["id"]: case["status"] for case in report["cases"]}


class SubmittedJob:
    """A batch job in the queue of Slurm."""

    def __init__(self, commands: SlurmCommands, number: str, folder: Path) -> None:
        self._commands = commands
        self.number = number
        self.folder = folder

    def wait_until(self, condition: Any, limit: float = 60) -> Any:
        deadline = time.monotonic() + limit
        while not (result := condition()):
            log = self.folder / "job.log"
            assert time.monotonic() < deadline, log.read_text() if log.exists() else "no log"
            time.sleep(0.1)
        return result

    def find_event(self, **fields: Any) -> dict[str, Any] | None:
        """Return the first event of any launch with these fields."""
        for path in self.folder.glob("jobs/*/*/events/*.jsonl"):
            for line in path.read_text().split("\n")[:-1]:
                event: dict[str, Any] = json.loads(line)
                if fields.items() <= event.items():
                    return event
        return None

    def wait_for_timing(self) -> SubmittedJob:
        self.wait_until(lambda: self.find_event(event="progress", phase="timing"))
        return self

    def wait_for_end(self) -> SubmittedJob:
        self.wait_until((self.folder / "ended").exists)
        return self

    def collect(self, code: int = 0) -> dict[str, Any]:
        stdout = self._commands.spbench("collect", str(self.folder), "--json", "-", code=code)
        report: dict[str, Any] = json.loads(stdout)
        return report

    def statuses(self, code: int = 0) -> dict[str, str]:
        return {case["id"]: case["status"] for case in self.collect(code)["cases"]}


@pytest.fixture
def slurm_commands(slurm: Slurm, mpich: Path, tmp_path: Path) -> Iterator[SlurmCommands]:
    """Return commands on Slurm, and cancel their jobs at the end."""
    yield SlurmCommands(tmp_path, mpich)
    for job in slurm.list_jobs().split("\n")[:-1]:
        subprocess.run(["scancel", job.split()[0]], check=False)
    deadline = time.monotonic() + 20
    while slurm.list_jobs():
        assert time.monotonic() < deadline, slurm.list_jobs()
        time.sleep(0.1)


def test_commands_of_the_docs_submit_and_collect_a_job(slurm_commands: SlurmCommands) -> None:
    (block,) = re.findall(r"^```text\n(.*?)^```", (DOCS / "batch.md").read_text(), re.S | re.M)
    folder = slurm_commands.home.parent / "job"
    submit, collect = block.replace("job", str(folder)).splitlines()
    slurm_commands.spbench(
        *shlex.split(submit)[1:], *slurm_commands.settings, "--set", "launch.batch.nodes=2"
    )
    SubmittedJob(slurm_commands, "", folder).wait_for_end()
    stdout = slurm_commands.spbench(*shlex.split(collect)[1:])
    assert "\nsrun, srun " in stdout
    assert "passed: " in stdout.splitlines()[-2]
    assert re.search(
        r"^✓ passed .*\blink\b", slurm_commands.spbench("results", "show"), re.MULTILINE
    )


def test_shows_the_message_of_sbatch_for_an_unknown_partition(
    slurm_commands: SlurmCommands,
) -> None:
    partition = ("--set", "launch.batch.partition=none")
    process = subprocess.run(
        [SPBENCH, "submit", FAULTS, *slurm_commands.settings, *partition, "--home", "h"],
        cwd=slurm_commands.home.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 4
    assert process.stderr.startswith("spbench: error: sbatch refused")
    assert "invalid partition specified: none" in process.stderr


def test_killed_rank_is_named_and_the_next_case_runs(slurm_commands: SlurmCommands) -> None:
    job = slurm_commands.submit(LONG).wait_for_timing()
    ready = job.find_event(event="ready", rank=1)
    assert ready is not None
    os.kill(ready["pid"], signal.SIGKILL)
    report = job.wait_for_end().collect(code=4)
    long, after = report["cases"]
    assert (long["status"], after["status"]) == ("error", "passed")
    assert long["reason"].startswith("rank 1 on ")
    assert "signal 9" in long["reason"]


@pytest.mark.parametrize(
    "signal_options",
    [[], pytest.param(["--batch", "--signal=TERM"], marks=pytest.mark.long)],
    ids=["scancel", "time limit"],
)
def test_samples_from_before_the_end_of_the_job_are_kept(
    slurm_commands: SlurmCommands, signal_options: list[str]
) -> None:
    """Before its time limit, only the script of a job gets SIGTERM."""
    job = slurm_commands.submit(LONG).wait_for_timing()
    assert job.statuses(code=4) == {"long": "cancelled", "after": "cancelled"}  # it still runs
    slurm_commands("scancel", *signal_options, job.number)
    report = job.wait_for_end().collect(code=143)
    assert {case["status"] for case in report["cases"]} == {"cancelled"}
    assert "the batch job got SIGTERM" in report["cases"][0]["reason"]
    assert report["cases"][0]["ranks"]


def kill_job_processes(number: str) -> None:
    """Kill all processes of a job including its script, like a failing node does."""
    variables = {
        f"SLURM_JOB_ID={number}".encode(),
        f"SLURM_CONF={os.environ['SLURM_CONF']}".encode(),
    }
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if variables <= {*(entry / "environ").read_bytes().split(b"\0")}:
                os.kill(int(entry.name), signal.SIGKILL)


@pytest.mark.long
def test_job_with_a_killed_script_left_no_status(
    slurm_commands: SlurmCommands, slurm: Slurm
) -> None:
    if slurm.conf is None:
        pytest.skip("this Slurm is not private, so its processes must not be killed")
    job = slurm_commands.submit(LONG).wait_for_timing()
    kill_job_processes(job.number)
    job.wait_until(lambda: job.number not in slurm_commands("squeue", "-h"))
    for path in job.folder.rglob("*"):
        os.utime(path, (time.time() - 60,) * 2)
    report = job.collect(code=4)
    assert [case["status"] for case in report["cases"]] == ["error", "skipped"]
    assert "it left no status" in report["cases"][0]["reason"]


def test_requeued_job_continues_with_the_open_cases(slurm_commands: SlurmCommands) -> None:
    job = slurm_commands.submit(LONG).wait_for_timing()
    slurm_commands("scontrol", "requeue", job.number)
    job.wait_for_end()
    cases_path = job.folder / "jobs/1/cases.json"
    cases_path.write_text(cases_path.read_text().replace("5000000", "5"))
    job.wait_until(
        lambda: "PENDING" in slurm_commands("squeue", "-h", "-o", "%T", "-j", job.number)
    )
    time.sleep(3)  # right after the end, slurmd treats a new start as one that was killed
    slurm_commands("scontrol", "update", f"jobid={job.number}", "StartTime=now")
    job.wait_until(lambda: len((job.folder / "starts").read_text().splitlines()) == 2)
    assert job.wait_for_end().statuses() == {"long": "passed", "after": "passed"}


@pytest.mark.parametrize("command", ["salloc", pytest.param("sbatch", marks=pytest.mark.long)])
def test_controller_runs_inside_an_allocation(slurm_commands: SlurmCommands, command: str) -> None:
    run_command = slurm_commands.build_run_command(FAULTS)
    size = ["-N", "2", "-n", "2"]
    if command == "salloc":
        slurm_commands("salloc", *size, *run_command)
    else:
        log = slurm_commands.home.parent / "log"
        slurm_commands("sbatch", "--wait", *size, "-o", str(log), "--wrap", shlex.join(run_command))
    assert set(slurm_commands.statuses.values()) == {"passed"}


@pytest.mark.long
def test_controller_in_a_cancelled_batch_job_writes_its_report(
    slurm_commands: SlurmCommands,
) -> None:
    wrap = f"exec {shlex.join(slurm_commands.build_run_command(LONG))}"
    size = ["-N", "2", "-n", "2", "-o", str(slurm_commands.home.parent / "log"), "--parsable"]
    number = slurm_commands("sbatch", *size, "--wrap", wrap).strip()
    job = SubmittedJob(slurm_commands, number, slurm_commands.home)
    job.wait_until(
        lambda: any('"timing"' in p.read_text() for p in slurm_commands.home.rglob("events.jsonl"))
    )
    slurm_commands("scancel", "--batch", "--signal=TERM", number)
    job.wait_until((slurm_commands.home.parent / "report.json").exists)
    assert slurm_commands.statuses == {"long": "cancelled", "after": "cancelled"}
