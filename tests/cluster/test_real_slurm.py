"""The srun command lines, run by a real Slurm.

It is the one that SLURM_CONF or /etc/slurm names, else one that the tests start.

A venv with mpich, named in SPBENCH_TEST_MPICH_VENV, makes its ranks one MPI job over PMI-2;
without it only the placement and the environment are looked at.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spbench.launch.detect import find_launcher
from spbench.launch.launcher import JobSpec, RankBlock
from spbench.suites.settings import LaunchSettings
from support.launched_programs import PASSED_VARIABLES, UNUSUAL_VALUES, read_rank_files, run_command

pytestmark = pytest.mark.cluster

RANK = f"""
import json, os, sys
got = {{"rank": int(os.environ["SLURM_PROCID"]), "node": os.environ["SLURMD_NODENAME"],
       "argv": sys.argv[3:],
       "env": {{name: os.environ.get(name) for name in {[*PASSED_VARIABLES]!r}}}}}
if sys.argv[2] == "mpi":
    from mpi4py import MPI
    got["world"] = [MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size]
with open(f"{{sys.argv[1]}}/{{got['rank']}}.json", "w") as file:
    json.dump(got, file)
if sys.argv[3:] == ["kill"]:
    if got["rank"] == 1:
        os.kill(os.getpid(), 9)
    import time
    time.sleep(30)
"""


def launched(
    tmp_path: Path,
    np: int,
    placement: tuple[RankBlock, ...],
    words: tuple[str, ...] = (),
    mpi: Path | None = None,
) -> tuple[subprocess.CompletedProcess[str], list[dict[str, object]], str | None]:
    script = tmp_path / "rank.py"
    script.write_text(RANK)
    settings = LaunchSettings.model_validate({"launcher": "srun", "env": UNUSUAL_VALUES})
    found = find_launcher(settings, None, os.environ)
    text = found.launcher.hostfile(placement)
    hostfile = None
    if text is not None:
        hostfile = tmp_path / "hostfile"
        hostfile.write_text(text)
    python = str(mpi / "bin/python") if mpi else sys.executable
    job = JobSpec(
        np=np,
        placement=placement,
        settings=settings,
        program=(python, str(script), str(tmp_path), "mpi" if mpi else "-", *words),
        private_env={"SPBENCH_TOKEN": "t0ken"},
        oversubscribed=False,
        hostfile=hostfile,
        library="mpich" if mpi else "",
    )
    command = found.launcher.command(found.executable, job, os.environ)
    done = run_command(command.argv, command.env)
    return done, read_rank_files(tmp_path), found.launcher.parse_output(done.stderr).message


@pytest.mark.parametrize("case", ["even", "uneven", "turned"])
def test_ranks_stand_where_they_were_placed(slurm, tmp_path, case):
    one, two = slurm.nodes[:2]
    placement = {
        "even": (RankBlock(one, 1), RankBlock(two, 1)),
        "uneven": (RankBlock(one, 2), RankBlock(two, 1)),
        "turned": (RankBlock(two, 1), RankBlock(one, 1)),
    }[case]
    words = tuple(UNUSUAL_VALUES.values())
    done, ranks, _ = launched(tmp_path, sum(p.count for p in placement), placement, words)
    assert done.returncode == 0, done.stderr
    assert [got["node"] for got in ranks] == [p.host for p in placement for _ in range(p.count)]
    assert all(got["argv"] == list(words) for got in ranks)
    assert all(got["env"] == PASSED_VARIABLES for got in ranks)


def test_a_killed_rank_ends_the_job_and_is_explained(slurm, tmp_path):
    done, _, sentence = launched(tmp_path, 2, (RankBlock(slurm.nodes[0], 2),), ("kill",))
    assert done.returncode != 0
    assert sentence == f"rank 1 on {slurm.nodes[0]} was killed by signal 9 (SIGKILL)"


def test_mpich_ranks_are_one_job_over_pmi2(slurm, mpich, tmp_path):
    placement = tuple(RankBlock(node, 1) for node in slurm.nodes[:2])
    done, ranks, _ = launched(tmp_path, 2, placement, mpi=mpich)
    assert done.returncode == 0, done.stderr
    assert [got["world"] for got in ranks] == [[0, 2], [1, 2]]
