"""The parent process of a rank: its end is reported if it is a launcher's helper.

mpirun_rsh starts an mpispawn on each host, which starts the ranks. If an mpispawn is killed, nobody
notices it, and its ranks run on.
"""

from __future__ import annotations

import os
from pathlib import Path

HELPERS = frozenset({"mpispawn", "hydra_pmi_proxy", "slurmstepd", "prted", "orted"})
"""Programs that launchers start on each host and that outlive the ranks which they start.

Shells, wrappers and container runtimes are not listed: they may end before the rank does. Nor is
mpirun: the console notices its end.
"""


class Parent:
    """The process that is this one's parent now."""

    def __init__(self) -> None:
        self._pid = os.getppid()
        self._name = _read_name(self._pid)

    def report_end(self) -> str | None:
        """Return a message if a launcher's helper was the parent and has ended, but only once."""
        if self._name not in HELPERS or os.getppid() == self._pid:
            return None
        name, self._name = self._name, None
        return f"its parent process ({name}) has ended"


def _read_name(pid: int) -> str | None:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:  # it is in another process namespace
        return None
