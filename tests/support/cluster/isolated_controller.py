"""A controller that does not see the ranks, like one on another machine.

It runs in its own process namespace. Otherwise, it would find the ranks of the test hosts by their
environment in the shared process table, and end them.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sys
from pathlib import Path

from support.processes import list_children
from support.runs import SPBENCH, RunProcess

# The first process of the namespace ends after all others, with the exit status of the controller.
# So the processes that a killed controller leaves behind continue, like on a login node.
_FIRST = """
import os, sys
controller = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ)
code = 1
while True:
    try:
        pid, status = os.wait()
    except ChildProcessError:
        break
    if pid == controller:
        code = os.waitstatus_to_exitcode(status) % 256
os._exit(code)
"""


def write_isolated_spbench(folder: Path) -> Path:
    """Write an `spbench` that runs in its own process namespace."""
    first = folder / "first.py"
    first.write_text(_FIRST)
    command = folder / "spbench-isolated"
    unshare = f"{shutil.which('unshare')} --pid --fork --kill-child --mount-proc"
    program = shlex.join([sys.executable, str(first), SPBENCH])
    command.write_text(f'#!/bin/sh\nexec {unshare} {program} "$@"\n')
    command.chmod(0o755)
    return command


def find_controller_pid(run: RunProcess) -> int:
    """Return the controller's pid: the first child of the namespace's first process."""
    first = list_children(run.process.pid)[0]
    return list_children(first)[0]


def signal_controller(run: RunProcess, number: signal.Signals) -> None:
    """Send only the controller a signal."""
    os.kill(find_controller_pid(run), number)
