"""A launcher for the local host: Open MPI's mpirun with a minimal command line."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from spbench.launch.launcher import Command, JobSpec, LauncherReport, RankBlock

SPBENCH_PLUGIN_API = 1
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


class LocalLauncher:
    """Starts ranks on this host, without binding them to cores."""

    name = "example_local"
    libraries = frozenset({"openmpi"})
    shows_binding = "launch.args: [--report-bindings]"
    resolves_names = False
    helper = None

    def candidates(self, env: Mapping[str, str], beside: Path) -> Sequence[Path]:
        """Return the ``mpirun`` next to the interpreter, or the first in PATH."""
        path = shutil.which("mpirun", path=beside) or shutil.which("mpirun", path=env.get("PATH"))
        return [Path(path)] if path else []

    def version(self, executable: Path) -> str | None:
        """Return ``Open MPI's 5.0.11``; None for another program."""
        completed = subprocess.run(
            [executable, "--version"], capture_output=True, text=True, timeout=10, check=False
        )
        _, separator, version = completed.stdout.partition("(Open MPI) ")
        return f"Open MPI's {version.split()[0]}" if separator else None

    def hostfile(self, placement: Sequence[RankBlock]) -> str | None:
        """Return None, because there is only one host."""
        return None

    def command(self, executable: Path, job: JobSpec, env: Mapping[str, str]) -> Command:
        """Return mpirun's argv and environment."""
        options = ("-n", str(job.np), "--oversubscribe", "--bind-to", "none", *job.settings.args)
        all_env = {**AS_ROOT, **env, **job.rank_env, **job.private_env}
        return Command((str(executable), *options, *job.program), all_env)

    def parse_output(self, output: str) -> LauncherReport:
        """Return an empty report, because no messages are parsed."""
        return LauncherReport()


LAUNCHER = LocalLauncher()
