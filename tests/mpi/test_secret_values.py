"""Credentials in a run's environment: ranks receive them, no file has them."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from pathlib import Path

import pytest

from support.runs import SPBENCH, RunResult, run

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

VALUE = "v4lue-that-nobody-sees"
SETUP_VALUE = "v4lue-of-setup"
SUITE = f"""\
schema: spbench.suite/1
name: secrets
launch:
  env: {{HF_TOKEN: {VALUE}, HTTPS_PROXY: "http://me:{VALUE}@proxy/"}}
  setup: [export SETUP_PASSWD={SETUP_VALUE}]
cases:
  - {{name: pair, benchmark: link.pingpong, np: 2, params: {{iterations: 5}}}}
  - name: own
    benchmark: program.run
    np: 1
    params:
      argv: [sh, -c, 'test "$WANDB_API_KEY$HF_TOKEN$SETUP_PASSWD" = "$RIGHT_KEY"']
      env: {{WANDB_API_KEY: {VALUE}, RIGHT_KEY: "{VALUE}{VALUE}{SETUP_VALUE}"}}
"""
OVERRIDE = ("--set", f"launch.env.CI_JOB_JWT={VALUE}")
ENVIRON = {"SLURM_JWT": VALUE, "NVIDIA_API_KEY": VALUE, "MPICH_AUTH": VALUE}


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    path = tmp_path / "secrets.yaml"
    path.write_text(SUITE)
    return path


@pytest.fixture
def result(suite: Path, tmp_path: Path) -> RunResult:
    result = run(str(suite), *OVERRIDE, "--verbose", home=tmp_path / "home", env=ENVIRON)
    assert result.code == 0, result.stdout + result.stderr
    return result


def find_files_with_value(value: str, folder: Path) -> set[str]:
    """Return the paths, below a folder, of the files that contain a value."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)) for path in paths if value.encode() in path.read_bytes()}


def test_no_file_of_a_run_has_a_credential(result: RunResult) -> None:
    assert list(result.home.rglob("argv.json"))
    assert find_files_with_value(VALUE, result.home) == set()
    # Lines of launch.setup stay in the copy of the suite.
    assert {Path(path).name for path in find_files_with_value(SETUP_VALUE, result.home)} == {
        "suite.yaml"
    }
    assert VALUE not in result.report_path.read_text()
    assert SETUP_VALUE not in result.report_path.read_text()
    assert VALUE not in result.stdout + result.stderr


def test_resumed_run_reads_credentials_from_the_environment(result: RunResult) -> None:
    (folder,) = (result.home / "runs").iterdir()
    events = folder / "events.jsonl"
    # The events of a controller that was killed after its first case.
    first_events, _, _ = events.read_text().partition('{"event":"case_judged"')
    events.write_text(first_events if first_events.endswith("\n") else "")
    (folder / "report.json").unlink()
    options = ("--resume", folder.name)
    missing_result = run(*options, home=result.home)
    assert missing_result.code == 2
    assert "the value of HF_TOKEN is not recorded with a run" in missing_result.stderr
    environ = dict.fromkeys(("HF_TOKEN", "CI_JOB_JWT", "WANDB_API_KEY"), VALUE)
    environ |= {"HTTPS_PROXY": f"http://me:{VALUE}@proxy/"}
    environ |= {"RIGHT_KEY": VALUE + VALUE + SETUP_VALUE}
    resumed_result = run(*options, home=result.home, env=environ)
    assert resumed_result.code == 0, resumed_result.stdout + resumed_result.stderr
    assert find_files_with_value(VALUE, result.home) == set()


def test_printed_lines_run_with_credentials_of_the_environment(suite: Path) -> None:
    options = [SPBENCH, "run", str(suite), "--dry-run", "-k", "own"]
    output = subprocess.run(options, capture_output=True, text=True, check=True).stdout
    assert VALUE not in output
    assert (
        "# set and export before you run these lines: HF_TOKEN HTTPS_PROXY SETUP_PASSWD" in output
    )
    line = output.partition("#   by hand, own\n")[2]
    environ = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    environ |= dict.fromkeys(("HF_TOKEN", "HTTPS_PROXY", "WANDB_API_KEY", "SETUP_PASSWD"), "a")
    codes = []
    for key in ("aaa", "other"):
        environ["RIGHT_KEY"] = key
        process = subprocess.run(
            ["bash", "-c", line], env=environ, capture_output=True, check=False
        )
        codes.append(process.returncode)
    assert codes[0] == 0
    assert codes[1] != 0


def test_batch_job_with_credentials_is_private(suite: Path, tmp_path: Path) -> None:
    folder = tmp_path / "job"
    options = ("script", str(suite), "--scheduler", "pbs", "--output", str(folder), *OVERRIDE)
    subprocess.run([SPBENCH, *options], env=os.environ | ENVIRON, capture_output=True, check=True)
    # Only the files that the launches need contain the values.
    assert find_files_with_value(VALUE, folder) == {"job.sh", "jobs/2/cases.json"}
    for path in (path for path in folder.rglob("*") if path.is_file()):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0
    assert json.loads((folder / "plan.json").read_text())["argv"][-1].endswith("'***'")
