"""A launcher for this machine alone: Open MPI's mpirun with as few words as there can be."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from spbench.launch.launcher import Command, JobSpec, LauncherReport, RankBlock

SPBENCH_PLUGIN_API = 1
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


class LocalLauncher:
    """Starts ranks on this machine, bound to nothing."""

    name = "example_local"
    libraries = frozenset({"openmpi"})
    shows_binding = "launch.args: [--report-bindings]"
    resolves_names = False
    helper = None

    def candidates(self, env: Mapping[str, str], beside: Path) -> Sequence[Path]:
        """Return the ``mpirun`` beside the interpreter, or the first in PATH."""
        found = shutil.which("mpirun", path=beside) or shutil.which("mpirun", path=env.get("PATH"))
        return [Path(found)] if found else []

    def version(self, executable: Path) -> str | None:
        """Return ``Open MPI's 5.0.11``; None for another program."""
        done = subprocess.run(
            [executable, "--version"], capture_output=True, text=True, timeout=10, check=False
        )
        _, is_it, version = done.stdout.partition("(Open MPI) ")
        return f"Open MPI's {version.split()[0]}" if is_it else None

    def hostfile(self, placement: Sequence[RankBlock]) -> str | None:
        """Return None: there is one host."""
        return None

    def command(self, executable: Path, job: JobSpec, env: Mapping[str, str]) -> Command:
        """Return mpirun's argv and environment."""
        words = ("-n", str(job.np), "--oversubscribe", "--bind-to", "none", *job.settings.args)
        all_env = {**AS_ROOT, **env, **job.rank_env, **job.private_env}
        return Command((str(executable), *words, *job.program), all_env)

    def parse_output(self, output: str) -> LauncherReport:
        """Return nothing: it reads no messages."""
        return LauncherReport()


LAUNCHER = LocalLauncher()
