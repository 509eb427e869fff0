"""The command lines for srun, run by a real Slurm.

The Slurm is that of SLURM_CONF or /etc/slurm, or else a private one.

SPBENCH_TEST_MPICH_VENV names a venv with mpich. Its ranks are one MPI job over PMI-2. Without it,
the tests check only the placement and the environment.
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
row = {{"rank": int(os.environ["SLURM_PROCID"]), "node": os.environ["SLURMD_NODENAME"],
       "argv": sys.argv[3:],
       "env": {{name: os.environ.get(name) for name in {[*PASSED_VARIABLES]!r}}}}}
if sys.argv[2] == "mpi":
    from mpi4py import MPI
    row["world"] = [MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size]
with open(f"{{sys.argv[1]}}/{{row['rank']}}.json", "w") as file:
    json.dump(row, file)
if sys.argv[3:] == ["kill"]:
    if row["rank"] == 1:
        os.kill(os.getpid(), 9)
    import time
    time.sleep(30)
"""


def launch_program(
    tmp_path: Path,
    np: int,
    placement: tuple[RankBlock, ...],
    arguments: tuple[str, ...] = (),
    mpi: Path | None = None,
) -> tuple[subprocess.CompletedProcess[str], list[dict[str, object]], str | None]:
    script = tmp_path / "rank.py"
    script.write_text(RANK)
    settings = LaunchSettings.model_validate({"launcher": "srun", "env": UNUSUAL_VALUES})
    detected = find_launcher(settings, None, os.environ)
    text = detected.launcher.hostfile(placement)
    hostfile = None
    if text is not None:
        hostfile = tmp_path / "hostfile"
        hostfile.write_text(text)
    python = str(mpi / "bin/python") if mpi else sys.executable
    job = JobSpec(
        np=np,
        placement=placement,
        settings=settings,
        program=(python, str(script), str(tmp_path), "mpi" if mpi else "-", *arguments),
        private_env={"SPBENCH_TOKEN": "t0ken"},
        oversubscribed=False,
        hostfile=hostfile,
        library="mpich" if mpi else "",
    )
    command = detected.launcher.command(detected.executable, job, os.environ)
    process = run_command(command.argv, command.env)
    return (
        process,
        read_rank_files(tmp_path),
        detected.launcher.parse_output(process.stderr).message,
    )


@pytest.mark.parametrize("case", ["even", "uneven", "turned"])
def test_ranks_run_on_their_nodes(slurm, tmp_path, case):
    first, second = slurm.nodes[:2]
    placement = {
        "even": (RankBlock(first, 1), RankBlock(second, 1)),
        "uneven": (RankBlock(first, 2), RankBlock(second, 1)),
        "turned": (RankBlock(second, 1), RankBlock(first, 1)),
    }[case]
    arguments = tuple(UNUSUAL_VALUES.values())
    process, ranks, _ = launch_program(
        tmp_path, sum(block.count for block in placement), placement, arguments
    )
    assert process.returncode == 0, process.stderr
    assert [row["node"] for row in ranks] == [
        block.host for block in placement for _ in range(block.count)
    ]
    assert all(row["argv"] == list(arguments) for row in ranks)
    assert all(row["env"] == PASSED_VARIABLES for row in ranks)


def test_killed_rank_ends_the_job_and_is_explained(slurm, tmp_path):
    process, _, message = launch_program(tmp_path, 2, (RankBlock(slurm.nodes[0], 2),), ("kill",))
    assert process.returncode != 0
    assert message == f"rank 1 on {slurm.nodes[0]} was killed by signal 9 (SIGKILL)"


def test_mpich_ranks_are_one_job_over_pmi2(slurm, mpich, tmp_path):
    placement = tuple(RankBlock(node, 1) for node in slurm.nodes[:2])
    process, ranks, _ = launch_program(tmp_path, 2, placement, mpi=mpich)
    assert process.returncode == 0, process.stderr
    assert [row["world"] for row in ranks] == [[0, 2], [1, 2]]
