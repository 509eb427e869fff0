"""Runs that are resumed after a kill, and cases that are retried."""

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


def test_resumed_run_has_each_case_once() -> None:
    """A sample of the trials of `python -m benchmarks.resume`."""
    generator = random.Random(7)
    trials = [kill_and_resume(generator, 4.0) for _ in range(2)]
    assert [trial.failures for trial in trials] == [(), ()]


@pytest.mark.long
def test_interrupted_run_resumes_after_its_report(tmp_path: Path) -> None:
    home = tmp_path / "home"
    run_process = RunProcess(str(TEST_SUITES / "long.yaml"), home=home).wait_for_timing()
    run_process.interrupt()
    run_process.check_cancelled()
    (path,) = (home / "runs").iterdir()
    resumed_process = RunProcess("--resume", "last", home=home)
    resumed_process.wait_for("run_resumed", cases=["long", "after"])
    resumed_process.wait_for("ready", job=2)
    resumed_process.interrupt()
    result = resumed_process.check_cancelled()
    result.assert_no_event_missing()
    [resumption] = result.report["environment"]["resumed"]
    assert resumption["cases"] == 2
    assert RunFolder(path).replay().jobs.keys() == {1, 2}
    result.assert_no_process_left()


@pytest.mark.long
def test_resumed_run_does_not_write_through_links(tmp_path: Path) -> None:
    home = tmp_path / "home"
    outside = tmp_path / "outside"
    run_process = RunProcess(str(TEST_SUITES / "long.yaml"), home=home).wait_for_timing()
    run_process.interrupt()
    run_process.check_cancelled()
    (path,) = (home / "runs").iterdir()
    outside.mkdir()
    (outside / "3").mkdir()
    contents = {
        name: (path / name).read_bytes() for name in ("run.json", "suite.yaml", "report.json")
    }
    for name in contents:  # these files are links with the same content
        (path / name).rename(outside / name)
        (path / name).symlink_to(outside / name)
    (path / "jobs" / "2").mkdir()
    for name in ("argv.json", "env.json", "hostfile", "stdout.log", "stderr.log"):
        (path / "jobs" / "2" / name).symlink_to(outside / name)
    resumed_process = RunProcess("--resume", "last", home=home)
    resumed_process.wait_for("ready", job=2)
    resumed_process.interrupt()
    resumed_process.check_cancelled()
    assert not (path / "jobs" / "2" / "stdout.log").is_symlink()

    (path / "jobs" / "3").symlink_to(outside / "3")
    result = run("--resume", "last", home=home)
    assert result.code == 4, result.stdout + result.stderr
    assert "jobs/3: 3 is a link, which spbench does not follow here" in result.stdout
    assert {
        file.name: file.read_bytes() for file in outside.iterdir() if file.is_file()
    } == contents
    assert list((outside / "3").iterdir()) == []


@pytest.fixture
def flaky(tmp_path: Path) -> str:
    """A suite of two cases. A rank dies in the first launch of the second case."""
    mark = tmp_path / "mark"
    (tmp_path / "sitecustomize.py").write_text(DIES_ONCE.replace("MARK", str(mark)))
    suite = tmp_path / "flaky.yaml"
    suite.write_text(SUITE.replace("FOLDER", str(tmp_path)))
    return str(suite)


@pytest.mark.long
def test_case_that_passes_only_on_retry_is_flaky(flaky: str, tmp_path: Path) -> None:
    result = run(flaky, "--retries", "3", "--fail-on-flaky", home=tmp_path / "home")
    assert result.code == 1, result.stdout + result.stderr
    assert result.statuses == {"good": "passed", "flake": "passed"}
    jsonschema.validate(result.report, report_schema())
    flake = result.case("flake")
    good = result.case("good")
    assert (flake["attempts"], good["attempts"]) == (2, 1)
    [first_attempt] = flake["earlier"]
    assert first_attempt["status"] == "error"
    # The reason is the end of the rank, or of the mpirun that failed because of it.
    assert first_attempt["reason"]
    [error] = result.report["errors"]
    assert error == f"case flake is flaky: it passed at try 2, after: {first_attempt['reason']}"
    assert "✓ flaky" in result.stdout
    assert "retrying cases that did not pass: flake" in result.stdout


@pytest.mark.long
def test_failed_option_runs_only_failed_cases(flaky: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    first_result = run(flaky, home=home)
    assert first_result.statuses == {"good": "passed", "flake": "error"}
    retried_result = run("--failed", "last", home=home)
    assert retried_result.code == 0, retried_result.stdout + retried_result.stderr
    assert retried_result.statuses == {"flake": "passed"}
