"""Flux, and its launcher, because other launchers do not see its allocations."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from spbench.batch.schedulers.scheduler import Allocation, format_options
from spbench.batch.site import reject_unsupported
from spbench.launch.detect import InstalledLauncher
from spbench.launch.launcher import Command, JobSpec, LauncherReport, RankBlock

_BINDING = {"core": "per-task", "numa": "on", "none": "off"}


class FluxRun:
    """``flux run``, inside an allocation of Flux. It was never tested on a real Flux."""

    name = "flux"
    shows_binding = "launch.args: [--setopt=cpu-affinity=verbose]"
    resolves_names = False
    helper: str | None = None
    libraries = frozenset({"openmpi", "mpich", "intelmpi", "mvapich", "mvapich2"})

    def candidates(self, env: Mapping[str, str], interpreter_folder: Path) -> Sequence[Path]:
        """Return none: it is called by name on the nodes."""
        return ()

    def version(self, executable: Path) -> str | None:
        """Return its name: the version is not known before the job runs."""
        return "flux run"

    def hostfile(self, placement: Sequence[RankBlock]) -> None:
        """Return none: Flux knows its allocation."""

    def command(self, executable: Path, job: JobSpec, env: Mapping[str, str]) -> Command:
        """Return argv and environment; the environment includes the ranks' variables."""
        argv = [str(executable), "run", f"--ntasks={job.np}"]
        if job.settings.ranks_per_host:
            argv.append(f"--nodes={math.ceil(job.np / job.settings.ranks_per_host)}")
        if job.settings.bind != "auto":
            argv.append(f"--setopt=cpu-affinity={_BINDING[job.settings.bind]}")
        if job.library == "openmpi":
            argv.append("--setopt=pmi=pmix")
        full_env = {**env, **job.rank_env, **job.private_env}
        return Command((*argv, *job.settings.args, *job.program), full_env)

    def parse_output(self, output: str) -> LauncherReport:
        """Return nothing: the format of its output is not known."""
        return LauncherReport()


class FluxScheduler:
    """Flux, by flux batch."""

    name = "flux"
    prefix = "#flux: "
    allocation_variables = {"FLUX_JOB_ID": "0"}  # noqa: RUF012 - a constant of the Protocol
    job_id = "${FLUX_JOB_ID:-}"
    hosts_command = "flux hostlist --expand --delimiter='\\n' local"
    submit_command = ("flux", "batch")
    takes_stdin = False

    def directives(self, allocation: Allocation) -> Iterator[str]:
        """Yield options of ``flux batch``; a slot is a node if nodes are set, or a rank."""
        settings = allocation.settings
        reject_unsupported(settings.qos, "qos", "Flux")
        yield f"--job-name={allocation.name}"
        yield f"--output={allocation.log}"
        yield from format_options(
            ("--bank={}", settings.account),
            ("--queue={}", settings.partition),
            ("--time-limit={}s", allocation.seconds),
        )
        if allocation.nodes is not None:
            yield f"--nodes={allocation.nodes}"
            yield f"--nslots={allocation.nodes}"
            yield f"--cores-per-slot={allocation.tasks_per_node}"
        else:
            yield f"--nslots={allocation.np}"
        yield from format_options(("--gpus-per-slot={}", settings.gpus))
        yield f"--signal=SIGTERM@{allocation.notice}s"

    def choose_launcher(self) -> tuple[str, InstalledLauncher | None]:
        """Return ``flux run``."""
        launcher = FluxRun()
        return "auto", InstalledLauncher(launcher, Path("flux"), "flux run")

    def early_signal(self, allocation: Allocation) -> None:
        """Return nothing: the directive ``--signal`` does it."""


SCHEDULER = FluxScheduler()
