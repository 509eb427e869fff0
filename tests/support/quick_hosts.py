"""Thousands of synthetic hosts behind a stand-in for ssh that is a shell script."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from spbench.launch.survey.command import MARK, build_survey_command, build_survey_input
from spbench.suites.settings import LaunchSettings
from support.paths import STANDINS


class QuickHosts:
    """Synthetic hosts with this machine's facts, and an environment to survey them.

    Args:
        folder: An empty folder.
        login_seconds: The time that ssh takes to log in.

    Attributes:
        active_logins: A folder with a file per active session of ssh.
    """

    def __init__(self, folder: Path, login_seconds: float) -> None:
        self._hosts = folder / "hosts"
        self.active_logins = folder / "logins"
        for path in (self._hosts, self.active_logins, folder / "bin"):
            path.mkdir(parents=True)
        (folder / "bin/ssh").symlink_to(STANDINS / "quick_ssh")
        self.env = {
            **os.environ,
            "PATH": f"{folder}/bin:{os.environ['PATH']}",
            "QUICK_SSH_HOSTS": str(self._hosts),
            "QUICK_SSH_LOGINS": str(self.active_logins),
            "QUICK_SSH_SECONDS": str(login_seconds),
        }
        self._answer = _survey_this_machine()

    def add(self, name: str, **changes: Any) -> None:
        """Add a host with the facts of this machine, except for some fields."""
        self._write(name, f"{MARK}{json.dumps(copy.deepcopy(self._answer) | changes)}")

    def add_without_mpi(self, name: str) -> None:
        """Add a host without mpi4py."""
        answer = json.dumps({"error": "No module named 'mpi4py'", "torch": "2.6.0"})
        self.add(name, probe={"status": 1, "stdout": "", "stderr": answer})

    def refuse(self, name: str) -> None:
        """Add a host that refuses the login."""
        self._write(name, f"exit 255 {name}: Permission denied (publickey).")

    def hang(self, name: str) -> None:
        """Add a host that never answers."""
        self._write(name, "hang")

    def _write(self, name: str, text: str) -> None:
        (self._hosts / name).write_text(text + "\n")


def _survey_this_machine() -> dict[str, Any]:
    """Return the answer of the real survey program, with a load of 0."""
    settings = LaunchSettings.model_validate({"python": sys.executable})
    process = subprocess.run(
        build_survey_command(settings),
        input=build_survey_input(settings),
        capture_output=True,
        check=True,
    )
    line = next(line for line in process.stdout.decode().splitlines() if line.startswith(MARK))
    answer: dict[str, Any] = json.loads(line.removeprefix(MARK))
    return answer | {"load": 0.0}
