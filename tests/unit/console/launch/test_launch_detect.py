"""Tests of detecting the MPI library and a matching launcher."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from spbench.errors import MissingError
from spbench.launch.detect import (
    InstalledLauncher,
    detect_mpi_library,
    find_launcher,
    find_mismatch,
    load_launcher,
)
from spbench.launch.gpus.facts import HostGpus
from spbench.launch.mpi_probe import PROBE, MpiLibrary, parse_probe
from spbench.suites.launcher_names import LAUNCHERS
from spbench.suites.settings import LaunchSettings
from spbench_core import host_facts

VERSION_OUTPUT = {
    "mpirun_rsh": "-v) echo 'Version: mvapich2-2.3.7'",
    "mpiexec": "--version) printf 'HYDRA build details:\\n    Version:         5.0.2\\n'",
    "mpirun": "--version) echo 'mpirun (Open MPI) 5.0.11'",
    "srun": "--version) echo 'slurm-wlm 22.05.8'",
}


def make_settings(**fields: object) -> LaunchSettings:
    return LaunchSettings.model_validate(fields)


def write_program(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def install(folder: Path, *names: str) -> dict[str, str]:
    for name in names:
        write_program(folder / name, f'case "$1" in {VERSION_OUTPUT[name]};; *) exit 9;; esac')
    return {"PATH": str(folder)}


def python_path(folder: Path) -> str:
    return str(folder / "python")


def make_library(name: str) -> MpiLibrary:
    return MpiLibrary(name, f"{name} 1.0")


@pytest.mark.parametrize(
    ("library_name", "installed", "launcher", "version"),
    [
        ("openmpi", ("mpirun", "mpiexec"), "openmpi", "Open MPI 5.0.11"),
        ("mpich", ("mpirun", "mpiexec"), "hydra", "Hydra 5.0.2"),
        ("intelmpi", ("mpiexec",), "hydra", "Hydra 5.0.2"),
        ("mvapich2", ("mpiexec", "mpirun_rsh"), "mpirun_rsh", "mvapich2-2.3.7"),
        ("mvapich2", ("mpiexec",), "hydra", "Hydra 5.0.2"),
        ("mvapich", ("mpiexec", "mpirun_rsh"), "hydra", "Hydra 5.0.2"),
    ],
)
def test_auto_selects_the_launcher_of_the_library(
    tmp_path, library_name, installed, launcher, version
):
    env = install(tmp_path / "bin", *installed)
    detected = find_launcher(
        make_settings(python="/nowhere/python"), make_library(library_name), env
    )
    assert (detected.launcher.name, detected.version) == (launcher, version)
    assert find_mismatch(detected, make_library(library_name)) is None


def test_auto_selects_srun_only_in_an_allocation(tmp_path, messages):
    env = install(tmp_path / "bin", "srun")
    with messages.raises(MissingError):
        find_launcher(make_settings(python="/nowhere/python"), make_library("mpich"), env)
    detected = find_launcher(
        make_settings(python="/nowhere/python"), make_library("mpich"), env | {"SLURM_JOB_ID": "1"}
    )
    assert (detected.launcher.name, detected.version) == ("srun", "srun 22.05.8")


def test_folder_of_the_interpreter_precedes_path(tmp_path):
    env = install(tmp_path / "path", "mpirun")
    install(tmp_path / "venv", "mpirun")
    detected = find_launcher(
        make_settings(python=python_path(tmp_path / "venv")), make_library("openmpi"), env
    )
    assert detected.executable == tmp_path / "venv/mpirun"
    detected = find_launcher(
        make_settings(python=python_path(tmp_path / "none")), make_library("openmpi"), env
    )
    assert detected.executable == tmp_path / "path/mpirun"


def test_mv2_home_comes_first(tmp_path):
    env = install(tmp_path / "path", "mpirun_rsh") | {"MV2_HOME": str(tmp_path / "mv2")}
    install(tmp_path / "mv2/bin", "mpirun_rsh")
    detected = find_launcher(make_settings(launcher="mpirun_rsh"), None, env)
    assert detected.executable == tmp_path / "mv2/bin/mpirun_rsh"


def test_skips_other_programs_of_the_same_name(tmp_path):
    write_program(tmp_path / "a/mpiexec", "echo 'mpiexec (OpenRTE) 5.0.11'")
    install(tmp_path / "b", "mpiexec")
    env = {"PATH": f"{tmp_path}/a:{tmp_path}/b"}
    detected = find_launcher(make_settings(launcher="hydra", python="/nowhere/python"), None, env)
    assert detected.executable == tmp_path / "b/mpiexec"


def test_error_for_a_missing_explicit_launcher(tmp_path, messages):
    env = install(tmp_path / "bin", "mpirun")
    write_program(tmp_path / "bin/mpiexec", "echo another")
    with pytest.raises(MissingError) as raised:
        find_launcher(
            make_settings(launcher="hydra", python="/nowhere/python"), make_library("openmpi"), env
        )
    assert raised.value.exit_code == 3
    assert str(raised.value) == (
        f"launcher hydra is not installed: looked in /nowhere and in PATH ({tmp_path}/bin/mpiexec "
        "did not answer as hydra does when asked for the version); installed: openmpi"
    )
    with messages.raises(MissingError):
        find_launcher(
            make_settings(launcher="mpirun_rsh", python="/nowhere/python"),
            None,
            {"PATH": "", "MV2_HOME": "/mv2"},
        )


def test_auto_names_a_launcher_that_does_not_answer(tmp_path):
    write_program(
        tmp_path / "bin/mpirun", "echo 'Unable to get the user home directory' >&2; exit 1"
    )
    with pytest.raises(MissingError) as raised:
        find_launcher(
            make_settings(python="/nowhere/python"),
            make_library("openmpi"),
            {"PATH": f"{tmp_path}/bin"},
        )
    assert f"({tmp_path}/bin/mpirun did not answer as openmpi does" in str(raised.value)


def test_mismatch_is_described(messages):
    detected = InstalledLauncher(load_launcher("hydra"), Path("/x/mpiexec"), "Hydra 5.0.2")
    message = find_mismatch(detected, make_library("openmpi"))
    messages.check(message)


def test_every_launcher_in_the_settings_has_a_module():
    assert [load_launcher(name).name for name in LAUNCHERS] == list(LAUNCHERS)


PROBE_OUTPUT = 'spbench-probe {"mpi4py": "4.1", "library": "MPICH", "torch": null, "worker": true}'
"""The output of an interpreter with all packages."""


def fake_python(tmp_path: Path, probe: str) -> str:
    return str(write_program(tmp_path / "python", f"cat <<'END'\n{probe}\nEND"))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Open MPI v5.0.11, package: Open MPI", "openmpi"),
        ("MPICH Version:      5.0.2", "mpich"),
        ("Intel(R) MPI Library 2021.18 for Linux* OS", "intelmpi"),
        ("MVAPICH2 Version      :\t2.3.7", "mvapich2"),
        ("MVAPICH Version: 4.0", "mvapich"),
    ],
)
def test_libraries_are_recognized_by_version_text(tmp_path, text, name):
    probe = PROBE_OUTPUT.replace("MPICH", text.replace("\t", " "))
    detected = detect_mpi_library(fake_python(tmp_path, f"module noise\n{probe}"))
    assert (detected.name, detected.mpi4py, detected.torch) == (name, "4.1", None)
    assert "package" not in detected.version_text


def test_setup_line_may_print_without_a_newline(tmp_path):
    assert (
        detect_mpi_library(fake_python(tmp_path, f"loading modules... {PROBE_OUTPUT}")).name
        == "mpich"
    )


@pytest.mark.parametrize(
    ("probe", "message"),
    [
        ('{"mpi4py": null}', "has no mpi4py: .*python -m pip install 'spbench.workers,mpi.'"),
        (
            '{"mpi4py": "4", "library": null, "error": "cannot load"}',
            r"mpi4py of .*python finds no MPI library \(cannot load\): .* pip install",
        ),
        (
            '{"mpi4py": "4", "library": "LAM/MPI 7", "torch": null, "worker": true}',
            "loads an MPI library that spbench does not know, 'LAM/MPI 7'",
        ),
        (
            '{"mpi4py": "4", "library": "MPICH", "torch": null, "worker": false}',
            r"python has no spbench_workers: .* pip install .*, or set launch\.env\.PYTHONPATH",
        ),
    ],
)
def test_missing_package_is_reported_with_a_fix(tmp_path, probe, message):
    with pytest.raises(MissingError, match=message):
        detect_mpi_library(fake_python(tmp_path, f"spbench-probe {probe}"))


def test_error_for_an_interpreter_that_cannot_run(tmp_path, messages):
    with messages.raises(MissingError):
        detect_mpi_library("/no/python")
    broken = str(write_program(tmp_path / "python", "echo 'broken link' >&2; exit 5"))
    with messages.raises(MissingError):
        detect_mpi_library(broken)
    with pytest.raises(MissingError, match="setup line failed: false"):
        detect_mpi_library(sys.executable, make_settings(setup=("false",)))


def test_probe_runs_with_setup_and_environment(tmp_path):
    probe = PROBE_OUTPUT.replace("4.1", "$A$B").replace('"', '\\"')
    python = str(write_program(tmp_path / "python", f'echo "{probe}"'))
    detected = detect_mpi_library(python, make_settings(setup=("export A=1",), env={"B": "2"}))
    assert detected.mpi4py == "12"


def has_ended(pid: int) -> bool:
    """Return whether a process has ended; it may still be a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.slow
def test_hanging_setup_line_is_killed(tmp_path):
    pids = tmp_path / "pids"
    setup = (f"sleep 60 & echo $! $$ > {pids}", "sleep 60")
    with pytest.raises(MissingError, match=r"did not tell its MPI library within 2 s; check"):
        detect_mpi_library(sys.executable, make_settings(setup=setup), timeout_seconds=2.0)
    deadline = time.monotonic() + 2.0
    children = [int(pid) for pid in pids.read_text().split()]
    while not all(map(has_ended, children)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert [pid for pid in children if not has_ended(pid)] == []


def test_the_probe_works_with_packages_of_an_older_version(tmp_path):
    functions = {
        "spbench_core/host_facts.py": "def gpus(): return {'files': 3}",
        "spbench_parallel/device/mpi_memory.py": "def cuda_aware(started): return None, 'asked'",
    }
    for name, line in functions.items():
        write_program(tmp_path / name, line)
    for package in ("spbench_core", "spbench_parallel", "spbench_parallel/device"):
        (tmp_path / package / "__init__.py").touch()
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", PROBE], env=env, capture_output=True, text=True, check=True
    )
    answer = parse_probe(done.stdout)
    assert answer is not None
    assert answer["gpus"] == {"files": 3}
    assert answer["mpi_memory"] == [None, "asked"]


@pytest.mark.mpi
def test_detects_the_library_of_this_interpreter():
    detected = detect_mpi_library(sys.executable)
    assert detected.name in ("openmpi", "mpich", "intelmpi", "mvapich2", "mvapich")
    assert detected.mpi4py
    assert find_launcher(make_settings(), detected, os.environ).launcher.libraries >= {
        detected.name
    }


@pytest.mark.mpi
def test_detects_the_gpus_that_a_job_would_see():
    import torch

    detected = detect_mpi_library(sys.executable, make_settings(env={"CUDA_VISIBLE_DEVICES": "3"}))
    assert detected.torch_cuda == (torch.version.cuda or "")
    assert detected.gpus == replace(HostGpus.from_answer(host_facts.find_gpus()), visible="3")
