"""A console that does not see the ranks' processes, as if they ran on other machines.

It gets a process namespace of its own. Else it would end ranks of the test hosts by their
environment, which it finds in the process table that they share with it.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sys
from pathlib import Path

from spbench_core.events.rank_events import ENV_COLLECTOR
from support.runs import SPBENCH, RunProcess

# The namespace's first process ends when all others have, with the console's exit status: what a
# killed console leaves behind goes on, as it would on a login node.
_FIRST = """
import os, sys
console = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ)
code = 1
while True:
    try:
        pid, status = os.wait()
    except ChildProcessError:
        break
    if pid == console:
        code = os.waitstatus_to_exitcode(status) % 256
os._exit(code)
"""


def write_isolated_spbench(folder: Path) -> Path:
    """Write an `spbench` that runs in a process namespace of its own."""
    first = folder / "first.py"
    first.write_text(_FIRST)
    command = folder / "spbench-apart"
    unshare = f"{shutil.which('unshare')} --pid --fork --kill-child --mount-proc"
    program = shlex.join([sys.executable, str(first), SPBENCH])
    command.write_text(f'#!/bin/sh\nexec {unshare} {program} "$@"\n')
    command.chmod(0o755)
    return command


def find_controller_pid(running: RunProcess) -> int:
    """Return the console's own process: the first child of the namespace's first process."""
    first = _children(running.process.pid)[0]
    return _children(first)[0]


def signal_controller(running: RunProcess, number: signal.Signals) -> None:
    """Send the console, and nothing else, a signal."""
    os.kill(find_controller_pid(running), number)


def read_collector_hosts(rank: int) -> list[str]:
    """Return the console's addresses in the environment of a rank's process."""
    environ = Path(f"/proc/{rank}/environ").read_text().split("\0")
    told = next(word for word in environ if word.startswith(f"{ENV_COLLECTOR}="))
    return [place.rpartition(":")[0] for place in told.partition("=")[2].split(",")]


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
