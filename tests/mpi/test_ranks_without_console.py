"""Ranks whose main thread is in MPI_Init or MPI_Finalize, where no other thread can run."""

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

ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
ENDED_BY_KERNEL = (128 + signal.SIGIO, LOST_STATUS)


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """Return the socket of a console."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30.0)
        yield server


def test_a_rank_in_mpi_init_ends_with_its_console(listener: socket.socket) -> None:
    mpirun = find_program("mpirun")
    assert mpirun is not None
    rank = [sys.executable, "-m", "mpi4py", "-m", "spbench_workers"]
    command = [mpirun, "--oversubscribe", "-n", "1", *rank, ":", "-n", "1", "sleep", "60"]
    address = f"127.0.0.1:{listener.getsockname()[1]}"
    console = {rank_events.ENV_COLLECTOR: address, rank_events.ENV_TOKEN: "token"}
    with subprocess.Popen(command, env=os.environ | ROOT | console) as launcher:
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
comm.FINALIZE_TIMEOUT = 1
if comm.open_world().rank == 1:
    time.sleep(60)
comm.finalize_mpi()
"""


def test_a_rank_does_not_stay_in_mpi_finalize() -> None:
    mpirun = find_program("mpirun")
    assert mpirun is not None
    command = [mpirun, "--oversubscribe", "-n", "2", sys.executable, "-c", FINALIZE]
    done = subprocess.run(command, env=os.environ | ROOT, check=False, timeout=30.0)
    assert done.returncode == 128 + signal.SIGALRM
