"""Slurm's srun, inside an allocation or making its own."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from spbench.launch.launcher import Command, JobSpec, LauncherTraits, Placed, RankEnd, Said, counts
from spbench.launch.launchers.failures import MPI_ABORT, end, failure, read
from spbench.launch.launchers.search import output_of, search

_CPU_BIND = {"core": "cores", "numa": "ldoms", "none": "none"}
# what the library speaks to Slurm; others take the cluster's own default
_MPI = {"mpich": "pmi2", "mvapich": "pmi2", "mvapich2": "pmi2", "openmpi": "pmix"}
_SIGNALS: dict[str, int] = {
    text: number for number in signal.valid_signals() if (text := signal.strsignal(number))
}
_SIGNALS["Out Of Memory"] = signal.SIGKILL


def _ended(said: re.Match[str]) -> RankEnd:
    status = int(said["status"]) if said["status"] else None
    return RankEnd(
        ranks=tuple(_numbers(said["ranks"])),
        host=said["host"],
        signal=None if status is not None else _SIGNALS[said["how"]],
        status=status,
    )


def _numbers(text: str) -> Iterator[int]:
    for part in text.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


_HOW = "|".join(sorted(map(re.escape, _SIGNALS), key=len, reverse=True))
ENDS = (
    MPI_ABORT,
    end(
        r"srun: error: (?P<host>\S+): tasks? (?P<ranks>[\d,-]+): "
        rf"(?:Exited with exit code (?P<status>\d+)|(?P<how>{_HOW}))",
        _ended,
    ),
)
FAILURES = (
    failure(
        r"(?:slurmstepd-(?P<host>[^\s:]+): )?error: execve\(\): (?P<program>.+): "
        r"(?P<why>[^:\r\n]+)$",
    ),
    failure(
        r"\*\*\* (?:STEP|JOB) \S+ ON (?P<host>\S+) CANCELLED AT \S+ DUE TO (?P<why>[A-Z ]+?) \*",
        lambda said: f"Slurm cancelled the job on {said['host']}: {said['why'].lower()}",
        decisive=True,
    ),
    # Where a task had ended or aborted first, Slurm would cancel the step for that.
    failure(
        r"\A(?:(?!srun: error: \S+ tasks? |application called MPI_Abort)[\s\S])*?"
        r"\*\*\* (?:STEP|JOB) \S+ ON (?P<host>\S+) CANCELLED AT \S+ \*\*\*",
        "Slurm cancelled the job on {host}: somebody ended it there, as scancel does",
        decisive=True,
    ),
    failure(r"Invalid MPI type '(?P<kind>[^']+)'", "this Slurm cannot use --mpi={kind}"),
    failure(r"Unable to allocate resources: (?P<why>[^\r\n]+)", "Slurm gives no resources: {why}"),
    failure(
        r"Unable to create step for job \d+: (?P<why>[^\r\n]+)",
        "the allocation takes no such step: {why}",
    ),
    failure(
        r"srun: unrecognized option '(?P<word>[^']+)'",
        "srun does not know the option {word} of launch.args",
    ),
    failure(
        r"cannot stat file|Unable to contact slurm controller|Unable to establish configuration",
        "Slurm's controller cannot be reached: check SLURM_CONF and slurmctld",
    ),
    failure(
        r"queued and waiting for resources",
        "the job waits in Slurm's queue for free nodes",
        follows=True,
    ),
)
LOSSES = (
    re.compile(r"srun: error: Node failure on (?P<host>\S+)"),
    # a number of a node in the step, not a name
    re.compile(r"srun: error: [^\n]*\b(?:io|IO) error (?:[^\n]* )?on node \d+"),
)


class Srun:
    """Slurm's own launcher, which starts ranks of every library that speaks PMI."""

    name = "srun"
    resolves_names = False
    helper = None
    libraries = frozenset({"openmpi", "mpich", "intelmpi", "mvapich", "mvapich2"})
    shows_binding = "launch.args: [--cpu-bind=verbose]"
    traits = LauncherTraits(
        program="srun",
        title="Slurm's, inside an allocation or making its own",
        starts="any of them, within Slurm",
        allocation_variable="SLURM_JOB_ID",
        places_ranks=True,
    )

    def candidates(self, env: Mapping[str, str], beside: Path) -> Sequence[Path]:
        """Return every ``srun`` beside the interpreter and in PATH."""
        return search(("srun",), env, beside)

    def version(self, executable: Path) -> str | None:
        """Return ``srun 22.05.8``; None for another program."""
        match = re.match(r"slurm\S* (\S+)", output_of(executable, "--version"))
        return f"srun {match[1]}" if match else None

    def hostfile(self, placement: Sequence[Placed]) -> str | None:
        """Return one line a rank, where a list of nodes cannot say the placement; else None."""
        if not placement or _evenly(placement):
            return None
        return "".join(f"{host}\n" * count for host, count in counts(placement).items())

    def command(self, executable: Path, job: JobSpec, env: Mapping[str, str]) -> Command:
        """Return srun's argv and environment.

        The ranks' variables stand in srun's environment, for a comma in a value breaks
        --export lists.
        """
        full_env = {**env, **job.rank_env, **job.private_env}
        argv = [str(executable), "-n", str(job.np), *_nodes(job)]
        if job.hostfile:
            full_env["SLURM_HOSTFILE"] = str(job.hostfile)
        if job.settings.bind != "auto":
            argv.append(f"--cpu-bind={_CPU_BIND[job.settings.bind]}")
        argv += ["--export=ALL", "-K"]
        if job.library in _MPI and not any(word.startswith("--mpi") for word in job.settings.args):
            argv.append(f"--mpi={_MPI[job.library]}")
        return Command((*argv, *job.settings.args, *job.program), full_env)

    def said(self, output: str) -> Said:
        """Return what srun tells of a job's end."""
        return read(ENDS, FAILURES, output, losses=LOSSES, kills=True)


def _evenly(placement: Sequence[Placed]) -> bool:
    # Slurm starts ranks in its own order of the nodes, whatever the order of --nodelist
    hosts = counts(placement)
    return len(set(hosts.values())) == 1 and list(hosts) == sorted(hosts)


def _nodes(job: JobSpec) -> Iterator[str]:
    if job.hostfile:
        yield "--distribution=arbitrary"
    elif job.placement:
        yield from (f"--nodelist={','.join(job.counts)}", "-N", str(len(job.counts)))
        yield f"--ntasks-per-node={job.np // len(job.counts)}"
    elif job.settings.ranks_per_host:
        yield f"--ntasks-per-node={job.settings.ranks_per_host}"


LAUNCHER = Srun()
