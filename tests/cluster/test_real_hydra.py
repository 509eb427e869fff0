"""The Hydra command lines, run by a real Hydra: the one of a venv that has PyPI's mpich.

Make one with: python -m venv V && V/bin/pip install mpich mpi4py; name it in
SPBENCH_TEST_MPICH_VENV.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from spbench.launch.hosts.hosts import Hosts, parse_hosts
from spbench.launch.jobs import Job, Launch, prepare
from spbench.launch.program import interpreter
from spbench.suites.settings import LaunchSettings

pytestmark = pytest.mark.cluster

NASTY = {
    "QUOTES": """it's "so" and don't""",
    "SHELL": "$HOME `id`; exit 3 & | * \\ <>",
    "LINES": "one\ntwo",
    "COMMAS": "a,b=c:d;e",
    "EMPTY": "",
}
RANK = f"""
import json, os, sys
from mpi4py import MPI
world = MPI.COMM_WORLD
got = {{"rank": world.rank, "size": world.size, "argv": sys.argv[2:],
       "env": {{name: os.environ.get(name) for name in {[*NASTY, "SPBENCH_TOKEN"]!r}}},
       "cpus": len(os.sched_getaffinity(0))}}
with open(f"{{sys.argv[1]}}/{{world.rank}}.json", "w") as file:
    json.dump(got, file)
if sys.argv[2:] == ["kill"] and world.rank == 1:
    os.kill(os.getpid(), 9)
world.Barrier()
"""


def launched(
    mpich: Path,
    tmp_path: Path,
    np: int,
    hosts: Hosts | None,
    words: tuple[str, ...],
    **keys: object,
) -> tuple[Launch, subprocess.CompletedProcess[str], list[dict[str, object]]]:
    settings = LaunchSettings.model_validate({**keys, "python": str(mpich / "bin/python")})
    job = Job(1, (), np, settings)
    launch = prepare(job, hosts, tmp_path / "home", {"SPBENCH_TOKEN": "t0ken"}, os.environ)
    script = tmp_path / "rank.py"
    script.write_text(RANK)
    # the same command line, with this script in the worker's place
    split = launch.command.argv.index(interpreter(settings))
    argv = (*launch.command.argv[: split + 1], str(script), str(tmp_path), *words)
    done = subprocess.run(
        argv,
        env=launch.command.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    found = [json.loads(path.read_text()) for path in tmp_path.glob("[0-9]*.json")]
    return launch, done, sorted(found, key=lambda got: int(got["rank"]))


@pytest.mark.parametrize("hosts", [None, "localhost:4"])
def test_ranks_get_everything_intact(mpich, tmp_path, hosts):
    words = tuple(NASTY.values())
    given = parse_hosts(hosts) if hosts else None
    launch, done, ranks = launched(mpich, tmp_path, 4, given, words, env=NASTY, ranks_per_host=4)
    assert done.returncode == 0, done.stderr
    assert launch.launcher.name == "hydra"
    assert launch.version.startswith("Hydra ")
    assert launch.library.name == "mpich"
    assert [(got["rank"], got["size"]) for got in ranks] == [(rank, 4) for rank in range(4)]
    assert all(got["argv"] == list(words) for got in ranks)
    assert all(got["env"] == NASTY | {"SPBENCH_TOKEN": "t0ken"} for got in ranks)


@pytest.mark.parametrize("bind", ["core", "numa", "none"])
def test_binding(mpich, tmp_path, bind):
    _, done, ranks = launched(mpich, tmp_path, 2, None, (), bind=bind)
    assert done.returncode == 0, done.stderr
    cpus = len(os.sched_getaffinity(0))
    assert [got["cpus"] for got in ranks] == [1, 1] if bind == "core" else [cpus, cpus]


def test_a_killed_rank_is_explained(mpich, tmp_path):
    launch, done, _ = launched(mpich, tmp_path, 2, None, ("kill",))
    assert done.returncode == 9
    sentence = launch.launcher.explain(done.stderr + done.stdout)
    assert sentence is not None
    assert sentence.endswith("was killed by signal 9 (SIGKILL)")


def test_a_host_that_does_not_resolve_is_explained(mpich, tmp_path):
    hosts = parse_hosts("no-such-host.invalid:2")
    launch, done, _ = launched(mpich, tmp_path, 2, hosts, ())
    assert done.returncode != 0
    sentence = launch.launcher.explain(done.stderr)
    assert sentence is not None
    assert "no-such-host.invalid cannot be reached" in sentence
