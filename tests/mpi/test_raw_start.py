"""Ranks that a user starts with mpirun, without the controller and its variables."""

import os
import subprocess
import sys

import pytest

from spbench_workers.binding.before_mpi import avoid_ucx_windows
from support.runs import find_program

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]
ARGUMENTS = [
    "--num-spatial-parts",
    "2",
    "--slice-method",
    "vertical",
    "--image-size",
    "64",
    "--iterations",
    "2",
]
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def start_raw(**env):
    """Run halo.exchange like a user of mpirun does."""
    mpirun = find_program("mpirun")
    if mpirun is None:
        pytest.skip("no mpirun")
    clean_env = {name: value for name, value in os.environ.items() if not name.startswith("OMPI_")}
    launch = [mpirun, "--oversubscribe", "-n", "2", sys.executable, "-m", "mpi4py"]
    return subprocess.run(
        [*launch, "-m", "spbench_workers", "halo.exchange", *ARGUMENTS],
        env=clean_env | AS_ROOT | {"OMP_NUM_THREADS": "1"} | env,
        capture_output=True,
        text=True,
        check=False,
    )


def test_open_mpi_prints_no_errors_of_ucx():
    process = start_raw()
    assert process.returncode == 0, process.stderr
    assert "OSC UCX" not in process.stdout + process.stderr
    assert "Rank:0 Time taken (ms)" in process.stdout


@pytest.mark.parametrize(("variables", "value"), [({}, "^ucx"), ({"OMPI_MCA_osc": "rdma"}, "rdma")])
def test_value_of_the_user_is_kept(variables, value):
    environ = dict(variables)
    avoid_ucx_windows(environ)
    assert environ == {"OMPI_MCA_osc": value}
