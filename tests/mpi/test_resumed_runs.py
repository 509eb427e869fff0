"""Runs that were killed and resumed, and cases that are tried again."""

from __future__ import annotations

import random
from pathlib import Path

import jsonschema
import pytest
from benchmarks.resume import kill_and_resume

from spbench.record.runs.folder import RunFolder
from spbench.report.model import report_schema
from support.paths import TEST_SUITES
from support.runs import RunProcess, run

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

SUITE = """\
schema: spbench.suite/1
name: flaky
cases:
  - {name: good, benchmark: link.pingpong, np: 2, params: {iterations: 5, sizes: [8]}}
  - name: flake
    benchmark: link.pingpong
    np: 2
    params: {iterations: 5, sizes: [8]}
    launch: {env: {PYTHONPATH: FOLDER}}
"""
DIES_ONCE = """\
import os
if os.environ.get("OMPI_COMM_WORLD_RANK") == "1" and not os.path.exists("MARK"):
    open("MARK", "w").close()
    os._exit(7)
"""


def test_a_run_that_was_killed_goes_on_and_each_case_is_there_once() -> None:
    """A sample of what `python -m benchmarks.resume` tries."""
    chance = random.Random(7)
    trials = [kill_and_resume(chance, 4.0) for _ in range(2)]
    assert [trial.failures for trial in trials] == [(), ()]


@pytest.mark.long
def test_a_run_that_was_interrupted_goes_on_after_its_report(tmp_path: Path) -> None:
    home = tmp_path / "home"
    running = RunProcess(str(TEST_SUITES / "long.yaml"), home=home).wait_for_timing()
    running.interrupt()
    running.check_cancelled()
    (path,) = (home / "runs").iterdir()
    resumed = RunProcess("--resume", "last", home=home)
    resumed.wait_for("run_resumed", cases=["long", "after"])
    resumed.wait_for("ready", job=2)
    resumed.interrupt()
    ended = resumed.check_cancelled()
    ended.assert_no_event_missing()
    [told] = ended.report["environment"]["resumed"]
    assert told["cases"] == 2
    assert RunFolder(path).replay().jobs.keys() == {1, 2}
    ended.assert_no_process_left()


@pytest.mark.long
def test_a_resumed_run_writes_nothing_through_planted_links(tmp_path: Path) -> None:
    home = tmp_path / "home"
    outside = tmp_path / "outside"
    running = RunProcess(str(TEST_SUITES / "long.yaml"), home=home).wait_for_timing()
    running.interrupt()
    running.check_cancelled()
    (path,) = (home / "runs").iterdir()
    outside.mkdir()
    (outside / "3").mkdir()
    kept = {name: (path / name).read_bytes() for name in ("run.json", "suite.yaml", "report.json")}
    for name in kept:  # what is read is still there, behind a link
        (path / name).rename(outside / name)
        (path / name).symlink_to(outside / name)
    (path / "jobs" / "2").mkdir()
    for name in ("argv.json", "env.json", "hostfile", "stdout.log", "stderr.log"):
        (path / "jobs" / "2" / name).symlink_to(outside / name)
    resumed = RunProcess("--resume", "last", home=home)
    resumed.wait_for("ready", job=2)
    resumed.interrupt()
    resumed.check_cancelled()
    assert not (path / "jobs" / "2" / "stdout.log").is_symlink()

    (path / "jobs" / "3").symlink_to(outside / "3")
    ended = run("--resume", "last", home=home)
    assert ended.code == 4, ended.stdout + ended.stderr
    assert "jobs/3: 3 is a link, which spbench does not follow here" in ended.stdout
    assert {file.name: file.read_bytes() for file in outside.iterdir() if file.is_file()} == kept
    assert list((outside / "3").iterdir()) == []


@pytest.fixture
def flaky(tmp_path: Path) -> str:
    """A suite of two cases; in the first launch of the second a rank dies."""
    mark = tmp_path / "mark"
    (tmp_path / "sitecustomize.py").write_text(DIES_ONCE.replace("MARK", str(mark)))
    suite = tmp_path / "flaky.yaml"
    suite.write_text(SUITE.replace("FOLDER", str(tmp_path)))
    return str(suite)


@pytest.mark.long
def test_a_case_that_passes_only_on_retry_is_flaky(flaky: str, tmp_path: Path) -> None:
    ended = run(flaky, "--retries", "3", "--fail-on-flaky", home=tmp_path / "home")
    assert ended.code == 1, ended.stdout + ended.stderr
    assert ended.statuses == {"good": "passed", "flake": "passed"}
    jsonschema.validate(ended.report, report_schema())
    flake = ended.case("flake")
    good = ended.case("good")
    assert (flake["attempts"], good["attempts"]) == (2, 1)
    [before] = flake["earlier"]
    assert before["status"] == "error"
    assert before["reason"]  # the rank's end, or that of an mpirun which broke over it
    [error] = ended.report["errors"]
    assert error == f"case flake is flaky: it passed at try 2, after: {before['reason']}"
    assert "✓ flaky" in ended.stdout
    assert "retrying cases that did not pass: flake" in ended.stdout


@pytest.mark.long
def test_what_failed_is_run_again_alone(flaky: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    first = run(flaky, home=home)
    assert first.statuses == {"good": "passed", "flake": "error"}
    again = run("--failed", "last", home=home)
    assert again.code == 0, again.stdout + again.stderr
    assert again.statuses == {"flake": "passed"}
