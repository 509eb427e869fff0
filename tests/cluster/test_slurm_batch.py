"""Batch jobs on a real Slurm with two nodes, and `spbench run` inside its allocations."""

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


class OnSlurm:
    """Commands of spbench and of Slurm, with the ranks' MPICH in a venv of its own."""

    def __init__(self, folder: Path, mpich: Path) -> None:
        self.home = folder / "home"
        python = f"launch.python={mpich / 'bin/python'}"
        workers = f"launch.env.PYTHONPATH={ROOT / 'core'}:{ROOT / 'workers'}"
        self.sets = ("--set", python, "--set", workers)

    def __call__(self, *words: str, code: int = 0) -> str:
        done = subprocess.run(
            words, cwd=ROOT, capture_output=True, text=True, timeout=90, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def spbench(self, *words: str, code: int = 0) -> str:
        return self(SPBENCH, *words, "--home", str(self.home), code=code)

    def submit(self, suite: str, *words: str) -> SubmittedJob:
        nodes = ("--set", "launch.batch.nodes=2")
        said = self.spbench("submit", suite, *self.sets, *nodes, *words)
        number, folder = said.split()
        return SubmittedJob(self, number, Path(folder))

    def run_words(self, suite: str) -> list[str]:
        """The words of `spbench run` inside an allocation."""
        report = str(self.home.parent / "report.json")
        words = [SPBENCH, "run", suite, "--headless", "--launcher", "srun", "--json", report]
        return [*words, "--home", str(self.home), *self.sets]

    @property
    def statuses(self) -> dict[str, str]:
        report = json.loads((self.home.parent / "report.json").read_text())
        return {case["id"]: case["status"] for case in report["cases"]}


class SubmittedJob:
    """A batch job in Slurm's queue."""

    def __init__(self, on: OnSlurm, number: str, folder: Path) -> None:
        self.on = on
        self.number = number
        self.folder = folder

    def until(self, what: Any, limit: float = 60) -> Any:
        deadline = time.monotonic() + limit
        while not (found := what()):
            log = self.folder / "job.log"
            assert time.monotonic() < deadline, log.read_text() if log.exists() else "no log"
            time.sleep(0.1)
        return found

    def said(self, **fields: Any) -> dict[str, Any] | None:
        """The first event with these fields, of any launch."""
        for path in self.folder.glob("jobs/*/*/events/*.jsonl"):
            for line in path.read_text().split("\n")[:-1]:
                event: dict[str, Any] = json.loads(line)
                if fields.items() <= event.items():
                    return event
        return None

    def wait_for_timing(self) -> SubmittedJob:
        self.until(lambda: self.said(event="progress", phase="timing"))
        return self

    def ended(self) -> SubmittedJob:
        self.until((self.folder / "ended").exists)
        return self

    def collect(self, code: int = 0) -> dict[str, Any]:
        said = self.on.spbench("collect", str(self.folder), "--json", "-", code=code)
        report: dict[str, Any] = json.loads(said)
        return report

    def statuses(self, code: int = 0) -> dict[str, str]:
        return {case["id"]: case["status"] for case in self.collect(code)["cases"]}


@pytest.fixture
def on(slurm: Slurm, mpich: Path, tmp_path: Path) -> Iterator[OnSlurm]:
    """What runs on the Slurm; in the end nothing of it is left."""
    yield OnSlurm(tmp_path, mpich)
    for job in slurm.list_jobs().split("\n")[:-1]:
        subprocess.run(["scancel", job.split()[0]], check=False)
    deadline = time.monotonic() + 20
    while slurm.list_jobs():
        assert time.monotonic() < deadline, slurm.list_jobs()
        time.sleep(0.1)


def test_the_commands_of_the_docs_submit_a_job_and_make_its_run(on: OnSlurm) -> None:
    (block,) = re.findall(r"^```text\n(.*?)^```", (DOCS / "batch.md").read_text(), re.S | re.M)
    folder = on.home.parent / "job"
    submit, collect = block.replace("job", str(folder)).splitlines()
    on.spbench(*shlex.split(submit)[1:], *on.sets, "--set", "launch.batch.nodes=2")
    SubmittedJob(on, "", folder).ended()
    said = on.spbench(*shlex.split(collect)[1:])
    assert "\nsrun, srun " in said
    assert "passed: " in said.splitlines()[-2]
    assert re.search(r"^✓ passed .*\blink\b", on.spbench("results", "show"), re.MULTILINE)


def test_slurm_refuses_what_it_does_not_know_in_its_own_words(on: OnSlurm) -> None:
    words = ["submit", FAULTS, *on.sets, "--set", "launch.batch.partition=none", "--home", "h"]
    done = subprocess.run(
        [SPBENCH, *words], cwd=on.home.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 4
    assert done.stderr.startswith("spbench: error: sbatch refused")
    assert "invalid partition specified: none" in done.stderr


def test_a_killed_rank_is_named_and_the_case_behind_it_runs(on: OnSlurm) -> None:
    job = on.submit(LONG).wait_for_timing()
    ready = job.said(event="ready", rank=1)
    assert ready is not None
    os.kill(ready["pid"], signal.SIGKILL)
    report = job.ended().collect(code=4)
    long, after = report["cases"]
    assert (long["status"], after["status"]) == ("error", "passed")
    assert long["reason"].startswith("rank 1 on ")
    assert "signal 9" in long["reason"]


@pytest.mark.parametrize(
    "how",
    [[], pytest.param(["--batch", "--signal=TERM"], marks=pytest.mark.long)],
    ids=["scancel", "time limit"],
)
def test_what_was_measured_before_the_job_is_ended_is_kept(on: OnSlurm, how: list[str]) -> None:
    """The early signal of a time limit is SIGTERM to the script alone."""
    job = on.submit(LONG).wait_for_timing()
    assert job.statuses(code=4) == {"long": "cancelled", "after": "cancelled"}  # it still runs
    on("scancel", *how, job.number)
    report = job.ended().collect(code=143)
    assert {case["status"] for case in report["cases"]} == {"cancelled"}
    assert "the batch job got SIGTERM" in report["cases"][0]["reason"]
    assert report["cases"][0]["ranks"]


def kill_all_of(number: str) -> None:
    """Kill every process of a job, the script too, as the end of its node does."""
    marks = {f"SLURM_JOB_ID={number}".encode(), f"SLURM_CONF={os.environ['SLURM_CONF']}".encode()}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if marks <= {*(entry / "environ").read_bytes().split(b"\0")}:
                os.kill(int(entry.name), signal.SIGKILL)


@pytest.mark.long
def test_a_job_whose_script_is_killed_says_that_it_left_no_status(
    on: OnSlurm, slurm: Slurm
) -> None:
    if slurm.conf is None:
        pytest.skip("processes of this machine's own Slurm are not ours to kill")
    job = on.submit(LONG).wait_for_timing()
    kill_all_of(job.number)
    job.until(lambda: job.number not in on("squeue", "-h"))
    for path in job.folder.rglob("*"):
        os.utime(path, (time.time() - 60,) * 2)
    report = job.collect(code=4)
    assert [case["status"] for case in report["cases"]] == ["error", "skipped"]
    assert "it left no status" in report["cases"][0]["reason"]


def test_a_requeued_job_goes_on_with_what_was_left(on: OnSlurm) -> None:
    job = on.submit(LONG).wait_for_timing()
    on("scontrol", "requeue", job.number)
    job.ended()
    planned = job.folder / "jobs/1/cases.json"
    planned.write_text(planned.read_text().replace("5000000", "5"))
    job.until(lambda: "PENDING" in on("squeue", "-h", "-o", "%T", "-j", job.number))
    time.sleep(3)  # in the second of its end slurmd takes a new start for one that was killed
    on("scontrol", "update", f"jobid={job.number}", "StartTime=now")
    job.until(lambda: len((job.folder / "starts").read_text().splitlines()) == 2)
    assert job.ended().statuses() == {"long": "passed", "after": "passed"}


@pytest.mark.parametrize("through", ["salloc", pytest.param("sbatch", marks=pytest.mark.long)])
def test_a_console_runs_inside_an_allocation(on: OnSlurm, through: str) -> None:
    words = on.run_words(FAULTS)
    size = ["-N", "2", "-n", "2"]
    if through == "salloc":
        on("salloc", *size, *words)
    else:
        log = on.home.parent / "log"
        on("sbatch", "--wait", *size, "-o", str(log), "--wrap", shlex.join(words))
    assert set(on.statuses.values()) == {"passed"}


@pytest.mark.long
def test_a_console_in_a_batch_job_that_is_cancelled_writes_its_report(on: OnSlurm) -> None:
    wrap = f"exec {shlex.join(on.run_words(LONG))}"
    size = ["-N", "2", "-n", "2", "-o", str(on.home.parent / "log"), "--parsable"]
    number = on("sbatch", *size, "--wrap", wrap).strip()
    job = SubmittedJob(on, number, on.home)
    job.until(lambda: any('"timing"' in p.read_text() for p in on.home.rglob("events.jsonl")))
    on("scancel", "--batch", "--signal=TERM", number)
    job.until((on.home.parent / "report.json").exists)
    assert on.statuses == {"long": "cancelled", "after": "cancelled"}
