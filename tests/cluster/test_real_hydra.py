"""The Hydra command lines, run by a real Hydra: the one of a venv that has PyPI's mpich.

Make one with: python -m venv V && V/bin/pip install mpich mpi4py; name it in
SPBENCH_TEST_MPICH_VENV.
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


def launched(
    mpich: Path,
    tmp_path: Path,
    np: int,
    hosts: Hosts | None,
    text: str,
    words: tuple[str, ...],
    **keys: object,
) -> tuple[Launch, subprocess.CompletedProcess[str], list[dict[str, Any]]]:
    settings = LaunchSettings.model_validate({**keys, "python": str(mpich / "bin/python")})
    job = Job(1, (), np, settings)
    launch = prepare_launch(job, hosts, tmp_path / "home", {"SPBENCH_TOKEN": "t0ken"}, os.environ)
    script = tmp_path / "rank.py"
    script.write_text(text)
    # the same command line, with this script in the worker's place
    split = launch.command.argv.index(find_interpreter(settings))
    argv = (*launch.command.argv[: split + 1], str(script), *words)
    return launch, run_command(argv, launch.command.env), read_rank_files(tmp_path)


@pytest.mark.parametrize("hosts", [None, "localhost:4"])
def test_ranks_get_everything_intact(mpich, tmp_path, hosts):
    words = tuple(UNUSUAL_VALUES.values())
    given = parse_hosts(hosts) if hosts else None
    launch, done, ranks = launched(
        mpich,
        tmp_path,
        4,
        given,
        RANK_PROGRAM,
        (str(tmp_path), *words),
        env=UNUSUAL_VALUES,
        ranks_per_host=4,
    )
    assert done.returncode == 0, done.stderr
    assert launch.launcher.name == "hydra"
    assert launch.version.startswith("Hydra ")
    assert launch.library.name == "mpich"
    assert [(got["rank"], got["size"]) for got in ranks] == [(rank, 4) for rank in range(4)]
    assert all(got["argv"] == list(words) for got in ranks)
    assert all(got["env"] == PASSED_VARIABLES for got in ranks)


def test_no_process_shows_the_values_of_variables_in_its_arguments(mpich, tmp_path):
    _, done, ranks = launched(
        mpich, tmp_path, 2, None, FIND_SECRETS_PROGRAM, (str(tmp_path),), env=SECRET_VALUES
    )
    assert done.returncode == 0, done.stderr
    assert [rank["env"] for rank in ranks] == [SECRET_VALUES, SECRET_VALUES]
    assert [rank["exposed"] for rank in ranks] == [[], []]


def test_a_value_replaces_that_of_another_host(mpich, tmp_path):
    """Hydra starts its proxy on the other host by a script in the place of ssh."""
    agent = tmp_path / "agent"
    agent.write_text(
        "#!/bin/bash\n"
        "while [[ $1 == -* ]]; do shift; done\n"
        'exec env -i PATH="$PATH" LICENSE=other OMP_PLACES=other sh -c "${*:2}"\n'
    )
    agent.chmod(0o755)
    words = ["-launcher", "ssh", "-launcher-exec", str(agent), "-hosts", "elsewhere", "-n", "2"]
    _, done, ranks = launched(
        mpich,
        tmp_path,
        2,
        None,
        FIND_SECRETS_PROGRAM,
        (str(tmp_path),),
        env=SECRET_VALUES,
        args=words,
    )
    assert done.returncode == 0, done.stderr
    assert [rank["env"] for rank in ranks] == [SECRET_VALUES, SECRET_VALUES]
    assert [rank["exposed"] for rank in ranks] == [[], []]


@pytest.mark.parametrize("bind", ["core", "numa", "none"])
def test_binding(mpich, tmp_path, bind):
    _, done, ranks = launched(mpich, tmp_path, 2, None, RANK_PROGRAM, (str(tmp_path),), bind=bind)
    assert done.returncode == 0, done.stderr
    cpus = len(os.sched_getaffinity(0))
    assert [got["cpus"] for got in ranks] == [1, 1] if bind == "core" else [cpus, cpus]


def test_a_killed_rank_is_explained(mpich, tmp_path):
    launch, done, _ = launched(mpich, tmp_path, 2, None, END_PROGRAM, ("killed",))
    assert done.returncode == 9
    sentence = launch.launcher.parse_output(done.stderr + done.stdout).message
    assert sentence is not None
    assert sentence.endswith("was killed by signal 9 (SIGKILL)")


def test_a_host_that_does_not_resolve_is_explained(mpich, tmp_path):
    hosts = parse_hosts("no-such-host.invalid:2")
    launch, done, _ = launched(mpich, tmp_path, 2, hosts, RANK_PROGRAM, (str(tmp_path),))
    assert done.returncode != 0
    sentence = launch.launcher.parse_output(done.stderr).message
    assert sentence is not None
    assert "no-such-host.invalid cannot be reached" in sentence
