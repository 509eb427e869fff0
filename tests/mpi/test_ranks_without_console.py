"""Ranks in MPI_Init or MPI_Finalize that hang or lose their controller.

No other Python thread can run at that time.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from spbench_core.events import rank_events
from spbench_workers.channel.base import LOST_STATUS
from support.runs import find_program

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
ENDED_BY_KERNEL = (128 + signal.SIGIO, LOST_STATUS)


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A socket at which ranks connect as if it were a controller's."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30.0)
        yield server


def test_rank_in_mpi_init_ends_with_its_controller(listener: socket.socket) -> None:
    mpirun = find_program("mpirun")
    assert mpirun is not None
    rank = [sys.executable, "-m", "mpi4py", "-m", "spbench_workers"]
    command = [mpirun, "--oversubscribe", "-n", "1", *rank, ":", "-n", "1", "sleep", "60"]
    address = f"127.0.0.1:{listener.getsockname()[1]}"
    controller_env = {rank_events.ENV_COLLECTOR: address, rank_events.ENV_TOKEN: "token"}
    with subprocess.Popen(command, env=os.environ | AS_ROOT | controller_env) as launcher:
        try:
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as lines:
                assert b'"hello"' in lines.readline()
                connection.sendall(b'{"reply": "hello"}\n')
                # MPI_Init waits for the second process, which does not start MPI.
                time.sleep(1.5)
            assert launcher.wait(timeout=10.0) in ENDED_BY_KERNEL
        finally:
            launcher.terminate()


FINALIZE = """
import time
from spbench_workers import comm
if comm.open_world().rank == 1:
    time.sleep(60)
comm.finalize_mpi(timeout_seconds=1)
"""


def test_rank_in_mpi_finalize_ends_at_the_timeout() -> None:
    mpirun = find_program("mpirun")
    assert mpirun is not None
    command = [mpirun, "--oversubscribe", "-n", "2", sys.executable, "-c", FINALIZE]
    process = subprocess.run(command, env=os.environ | AS_ROOT, check=False, timeout=30.0)
    assert process.returncode == 128 + signal.SIGALRM
