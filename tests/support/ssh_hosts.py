"""Simulated hosts behind a stand-in for ssh."""

from __future__ import annotations

import math
import os
import shlex
import sys
from pathlib import Path

import pytest

from spbench import __version__
from spbench.launch.survey import facts, reach
from support.paths import STANDINS

MPI_MODULE = "def Get_library_version():\n    return {library!r}\n"


class SshHosts:
    """Simulated hosts in a folder, and the environment in which ``ssh`` reaches them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "hosts").mkdir(parents=True)
        (folder / "bin").mkdir()
        (folder / "bin/ssh").symlink_to(STANDINS / "strict_ssh")
        (folder / "bin/python3").symlink_to(sys.executable)
        self.env = {
            **os.environ,
            "PATH": f"{folder}/bin:/usr/bin:/bin",
            "STANDIN_SSH_HOSTS": str(folder / "hosts"),
        }

    def add(self, name: str, *lines: str) -> None:
        """Add a host that runs shell lines before any command."""
        (self.folder / "hosts" / name).write_text("\n".join(lines))

    def add_with_packages(
        self,
        name: str,
        *lines: str,
        library: str = "Open MPI v5.0.11, package: Open MPI",
        torch: str = "2.6.0",
        spbench: str = __version__,
        more: str = "",
    ) -> Path:
        """Add a host with these versions of packages; return the folder of its packages.

        Args:
            name: The name of the host.
            lines: Shell lines that run before any command.
            library: The MPI library, as mpi4py reports it.
            torch: The version of PyTorch.
            spbench: The version of spbench. That of the installed one depends on the checkout.
            more: Code that Python runs when it starts.
        """
        packages = self.folder / "packages" / name
        rc = "class rc:\n    pass\n"
        texts = {
            "mpi4py/__init__.py": f"__version__ = '4.1.0'\n{rc}",
            "mpi4py/MPI.py": MPI_MODULE.format(library=library),
            f"torch-{torch}.dist-info/METADATA": f"Name: torch\nVersion: {torch}\n",
            "sitecustomize.py": more,
            "spbench/__init__.py": f"__version__ = {spbench!r}\n",
        }
        for path, text in texts.items():
            (packages / path).parent.mkdir(parents=True, exist_ok=True)
            (packages / path).write_text(text)
        self.add(name, f"export PYTHONPATH={shlex.quote(str(packages))}", *lines)
        return packages


def make_idle_hosts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> SshHosts:
    """Return hosts that are never busy; all host names except ``nowhere`` resolve."""

    async def resolve(host: str) -> bool:
        return host != "nowhere"

    monkeypatch.setattr(reach, "_resolves", resolve)
    # All hosts are this machine, on which other tests compute.
    monkeypatch.setattr(facts, "BUSY_LOAD", math.inf)
    return SshHosts(folder)
