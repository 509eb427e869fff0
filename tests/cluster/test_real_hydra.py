"""The command lines for Hydra, run by a real Hydra.

SPBENCH_TEST_MPICH_VENV names a venv with Hydra. To create one:
python -m venv V && V/bin/pip install mpich mpi4py
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from spbench.launch.hosts.hosts import Hosts, parse_hosts
from spbench.launch.jobs import Job, Launch, prepare_launch
from spbench.launch.program import find_interpreter
from spbench.suites.settings import LaunchSettings
from support.launched_programs import (
    END_PROGRAM,
    FIND_SECRETS_PROGRAM,
    PASSED_VARIABLES,
    RANK_PROGRAM,
    SECRET_VALUES,
    UNUSUAL_VALUES,
    read_rank_files,
    run_command,
)

pytestmark = pytest.mark.cluster


def launch_program(
    mpich: Path,
    tmp_path: Path,
    np: int,
    hosts: Hosts | None,
    program: str,
    arguments: tuple[str, ...],
    **settings_fields: object,
) -> tuple[Launch, subprocess.CompletedProcess[str], list[dict[str, Any]]]:
    settings = LaunchSettings.model_validate(
        {**settings_fields, "python": str(mpich / "bin/python")}
    )
    job = Job(1, (), np, settings)
    launch = prepare_launch(job, hosts, tmp_path / "home", {"SPBENCH_TOKEN": "t0ken"}, os.environ)
    script = tmp_path / "rank.py"
    script.write_text(program)
    # the same command line with this script instead of the worker
    split = launch.command.argv.index(find_interpreter(settings))
    argv = (*launch.command.argv[: split + 1], str(script), *arguments)
    return launch, run_command(argv, launch.command.env), read_rank_files(tmp_path)


@pytest.mark.parametrize("hosts", [None, "localhost:4"])
def test_ranks_receive_arguments_and_variables_unchanged(mpich, tmp_path, hosts):
    arguments = tuple(UNUSUAL_VALUES.values())
    parsed_hosts = parse_hosts(hosts) if hosts else None
    launch, process, ranks = launch_program(
        mpich,
        tmp_path,
        4,
        parsed_hosts,
        RANK_PROGRAM,
        (str(tmp_path), *arguments),
        env=UNUSUAL_VALUES,
        ranks_per_host=4,
    )
    assert process.returncode == 0, process.stderr
    assert launch.launcher.name == "hydra"
    assert launch.version.startswith("Hydra ")
    assert launch.library.name == "mpich"
    assert [(row["rank"], row["size"]) for row in ranks] == [(rank, 4) for rank in range(4)]
    assert all(row["argv"] == list(arguments) for row in ranks)
    assert all(row["env"] == PASSED_VARIABLES for row in ranks)


def test_no_arguments_show_the_values_of_variables(mpich, tmp_path):
    _, process, ranks = launch_program(
        mpich, tmp_path, 2, None, FIND_SECRETS_PROGRAM, (str(tmp_path),), env=SECRET_VALUES
    )
    assert process.returncode == 0, process.stderr
    assert [rank["env"] for rank in ranks] == [SECRET_VALUES, SECRET_VALUES]
    assert [rank["exposed"] for rank in ranks] == [[], []]


def test_a_variable_overrides_that_of_another_host(mpich, tmp_path):
    """Hydra starts its proxy on the other host with a script instead of ssh."""
    agent = tmp_path / "agent"
    agent.write_text(
        "#!/bin/bash\n"
        "while [[ $1 == -* ]]; do shift; done\n"
        'exec env -i PATH="$PATH" LICENSE=other OMP_PLACES=other sh -c "${*:2}"\n'
    )
    agent.chmod(0o755)
    hydra_args = [
        "-launcher",
        "ssh",
        "-launcher-exec",
        str(agent),
        "-hosts",
        "elsewhere",
        "-n",
        "2",
    ]
    _, process, ranks = launch_program(
        mpich,
        tmp_path,
        2,
        None,
        FIND_SECRETS_PROGRAM,
        (str(tmp_path),),
        env=SECRET_VALUES,
        args=hydra_args,
    )
    assert process.returncode == 0, process.stderr
    assert [rank["env"] for rank in ranks] == [SECRET_VALUES, SECRET_VALUES]
    assert [rank["exposed"] for rank in ranks] == [[], []]


@pytest.mark.parametrize("bind", ["core", "numa", "none"])
def test_binding(mpich, tmp_path, bind):
    _, process, ranks = launch_program(
        mpich, tmp_path, 2, None, RANK_PROGRAM, (str(tmp_path),), bind=bind
    )
    assert process.returncode == 0, process.stderr
    cpus = len(os.sched_getaffinity(0))
    assert [row["cpus"] for row in ranks] == [1, 1] if bind == "core" else [cpus, cpus]


def test_explains_a_killed_rank(mpich, tmp_path):
    launch, process, _ = launch_program(mpich, tmp_path, 2, None, END_PROGRAM, ("killed",))
    assert process.returncode == 9
    message = launch.launcher.parse_output(process.stderr + process.stdout).message
    assert message is not None
    assert message.endswith("was killed by signal 9 (SIGKILL)")


def test_explains_an_unresolvable_host(mpich, tmp_path):
    hosts = parse_hosts("no-such-host.invalid:2")
    launch, process, _ = launch_program(mpich, tmp_path, 2, hosts, RANK_PROGRAM, (str(tmp_path),))
    assert process.returncode != 0
    message = launch.launcher.parse_output(process.stderr).message
    assert message is not None
    assert "no-such-host.invalid cannot be reached" in message
