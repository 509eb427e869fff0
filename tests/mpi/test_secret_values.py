"""Credentials in the environment of a run: its ranks get them, and no file of it has them."""

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
def ended(suite: Path, tmp_path: Path) -> RunResult:
    ended = run(str(suite), *OVERRIDE, "--verbose", home=tmp_path / "home", env=ENVIRON)
    assert ended.code == 0, ended.stdout + ended.stderr
    return ended


def files_with(value: str, folder: Path) -> set[str]:
    """Return the paths, below a folder, of the files that contain a value."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)) for path in paths if value.encode() in path.read_bytes()}


def test_no_file_of_a_run_has_a_credential(ended: RunResult) -> None:
    assert list(ended.home.rglob("argv.json"))
    assert files_with(VALUE, ended.home) == set()
    # Lines of launch.setup stay in the copy of the suite.
    assert {Path(path).name for path in files_with(SETUP_VALUE, ended.home)} == {"suite.yaml"}
    assert VALUE not in ended.report_path.read_text()
    assert SETUP_VALUE not in ended.report_path.read_text()
    assert VALUE not in ended.stdout + ended.stderr


def test_a_repeated_run_takes_credentials_from_the_environment(ended: RunResult) -> None:
    (folder,) = (ended.home / "runs").iterdir()
    events = folder / "events.jsonl"
    # As after a console that was killed when its first case had ended.
    kept, _, _ = events.read_text().partition('{"event":"case_judged"')
    events.write_text(kept if kept.endswith("\n") else "")
    (folder / "report.json").unlink()
    words = ("--resume", folder.name)
    missing = run(*words, home=ended.home)
    assert missing.code == 2
    assert "the value of HF_TOKEN is not recorded with a run" in missing.stderr
    environ = dict.fromkeys(("HF_TOKEN", "CI_JOB_JWT", "WANDB_API_KEY"), VALUE)
    environ |= {"HTTPS_PROXY": f"http://me:{VALUE}@proxy/"}
    environ |= {"RIGHT_KEY": VALUE + VALUE + SETUP_VALUE}
    resumed = run(*words, home=ended.home, env=environ)
    assert resumed.code == 0, resumed.stdout + resumed.stderr
    assert files_with(VALUE, ended.home) == set()


def test_printed_lines_run_with_credentials_of_the_environment(suite: Path) -> None:
    words = [SPBENCH, "run", str(suite), "--dry-run", "-k", "own"]
    printed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert VALUE not in printed
    assert (
        "# set and export before you run these lines: HF_TOKEN HTTPS_PROXY SETUP_PASSWD" in printed
    )
    line = printed.partition("#   by hand, own\n")[2]
    environ = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    environ |= dict.fromkeys(("HF_TOKEN", "HTTPS_PROXY", "WANDB_API_KEY", "SETUP_PASSWD"), "a")
    codes = []
    for key in ("aaa", "other"):
        environ["RIGHT_KEY"] = key
        done = subprocess.run(["bash", "-c", line], env=environ, capture_output=True, check=False)
        codes.append(done.returncode)
    assert codes[0] == 0
    assert codes[1] != 0


def test_a_batch_job_with_credentials_is_its_owners_alone(suite: Path, tmp_path: Path) -> None:
    folder = tmp_path / "job"
    words = ("script", str(suite), "--scheduler", "pbs", "--output", str(folder), *OVERRIDE)
    subprocess.run([SPBENCH, *words], env=os.environ | ENVIRON, capture_output=True, check=True)
    # The launches need the values; nothing else has them.
    assert files_with(VALUE, folder) == {"job.sh", "jobs/2/cases.json"}
    for path in (path for path in folder.rglob("*") if path.is_file()):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0
    assert json.loads((folder / "plan.json").read_text())["argv"][-1].endswith("'***'")
