"""Ranks that mpirun starts without the console, in an environment without its variables."""

import os
import subprocess
import sys

import pytest

from spbench_workers.binding.before_mpi import avoid_ucx_windows
from support.runs import find_program

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]
WORDS = [
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
    """Run halo.exchange as a user does by mpirun."""
    mpirun = find_program("mpirun")
    if mpirun is None:
        pytest.skip("no mpirun")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OMPI_")}
    launch = [mpirun, "--oversubscribe", "-n", "2", sys.executable, "-m", "mpi4py"]
    return subprocess.run(
        [*launch, "-m", "spbench_workers", "halo.exchange", *WORDS],
        env=clean | AS_ROOT | {"OMP_NUM_THREADS": "1"} | env,
        capture_output=True,
        text=True,
        check=False,
    )


def test_open_mpi_prints_no_errors_of_ucx():
    ended = start_raw()
    assert ended.returncode == 0, ended.stderr
    assert "OSC UCX" not in ended.stdout + ended.stderr
    assert "Rank:0 Time taken (ms)" in ended.stdout


@pytest.mark.parametrize(("given", "value"), [({}, "^ucx"), ({"OMPI_MCA_osc": "rdma"}, "rdma")])
def test_a_value_of_the_user_is_kept(given, value):
    environ = dict(given)
    avoid_ucx_windows(environ)
    assert environ == {"OMPI_MCA_osc": value}
