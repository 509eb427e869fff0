"""A rank notices the end of the launcher's helper that started it."""

import subprocess
import sys

import pytest

from spbench_workers.channel.tcp import HELPERS

# This process sets its name and starts a child. The child's channel sends a heartbeat before and
# after the end of this process. The child prints the lines that it sent.
PROGRAM = """
import ctypes, os, socket, sys, time
from spbench_workers.channel.tcp import TcpChannel
ctypes.CDLL(None).prctl(15, sys.argv[1].encode())
reading, writing = os.pipe()
if os.fork():
    os.read(reading, 1)
    os._exit(0)
ours, console = socket.socketpair()
channel = TcpChannel(ours, b"", 1, first_seq=0)
parent = os.getppid()
channel._beat()
os.write(writing, b".")
while os.getppid() == parent:
    time.sleep(0.01)
channel._beat()
channel._beat()
ours.close()
print(console.makefile().read(), end="")
"""


def run_child(name: str) -> list[str]:
    """Return the lines that a child sends when its parent with this name ends."""
    completed = subprocess.run(
        [sys.executable, "-c", PROGRAM, name],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert completed.stderr == ""
    return completed.stdout.splitlines()


@pytest.mark.parametrize("name", sorted(HELPERS))
def test_reports_the_end_of_a_helper_once(name):
    lines = run_child(name)
    assert ['"heartbeat"' in line for line in lines] == [True, True, False, True]
    assert '"level":"orphaned"' in lines[2]
    assert f"its parent process ({name}) has ended" in lines[2]


@pytest.mark.parametrize("name", ["bash", "mpirun", "conmon", "mpispawn2"])
def test_ignores_the_end_of_another_parent(name):
    lines = run_child(name)
    assert ['"heartbeat"' in line for line in lines] == [True, True, True]
