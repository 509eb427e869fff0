"""Slurm's srun, inside an allocation or with its own."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from spbench.launch.launcher import (
    Command,
    JobSpec,
    LauncherReport,
    LauncherTraits,
    RankBlock,
    RankEnd,
    count_ranks_by_host,
)
from spbench.launch.launchers.failures import (
    MPI_ABORT,
    make_end_pattern,
    make_failure,
    parse_messages,
)
from spbench.launch.launchers.search import capture_stdout, find_programs

_CPU_BIND_BY_BINDING = {"core": "cores", "numa": "ldoms", "none": "none"}
# The PMI version of each library; others use the cluster's default.
_PMI_BY_LIBRARY = {"mpich": "pmi2", "mvapich": "pmi2", "mvapich2": "pmi2", "openmpi": "pmix"}
_SIGNAL_BY_TEXT: dict[str, int] = {
    text: number for number in signal.valid_signals() if (text := signal.strsignal(number))
}
_SIGNAL_BY_TEXT["Out Of Memory"] = signal.SIGKILL


def _parse_rank_end(match: re.Match[str]) -> RankEnd:
    status = int(match["status"]) if match["status"] else None
    return RankEnd(
        ranks=tuple(_parse_rank_ranges(match["ranks"])),
        host=match["host"],
        signal=None if status is not None else _SIGNAL_BY_TEXT[match["how"]],
        status=status,
    )


def _parse_rank_ranges(text: str) -> Iterator[int]:
    for rank_range in text.split(","):
        first_rank, _, last_rank = rank_range.partition("-")
        yield from range(int(first_rank), int(last_rank or first_rank) + 1)


_SIGNAL_TEXTS = "|".join(sorted(map(re.escape, _SIGNAL_BY_TEXT), key=len, reverse=True))
ENDS = (
    MPI_ABORT,
    make_end_pattern(
        r"srun: error: (?P<host>\S+): tasks? (?P<ranks>[\d,-]+): "
        rf"(?:Exited with exit code (?P<status>\d+)|(?P<how>{_SIGNAL_TEXTS}))",
        _parse_rank_end,
    ),
)
FAILURES = (
    make_failure(
        r"(?:slurmstepd-(?P<host>[^\s:]+): )?error: execve\(\): (?P<program>.+): "
        r"(?P<why>[^:\r\n]+)$",
    ),
    make_failure(
        r"\*\*\* (?:STEP|JOB) \S+ ON (?P<host>\S+) CANCELLED AT \S+ DUE TO (?P<why>[A-Z ]+?) \*",
        lambda match: f"Slurm cancelled the job on {match['host']}: {match['why'].lower()}",
        decisive=True,
    ),
    # If a task had ended or aborted first, Slurm would cancel the step because of that.
    make_failure(
        r"\A(?:(?!srun: error: \S+ tasks? |application called MPI_Abort)[\s\S])*?"
        r"\*\*\* (?:STEP|JOB) \S+ ON (?P<host>\S+) CANCELLED AT \S+ \*\*\*",
        "Slurm cancelled the job on {host}: somebody ended it there, as scancel does",
        decisive=True,
    ),
    make_failure(r"Invalid MPI type '(?P<kind>[^']+)'", "this Slurm cannot use --mpi={kind}"),
    make_failure(
        r"Unable to allocate resources: (?P<why>[^\r\n]+)", "Slurm gives no resources: {why}"
    ),
    make_failure(
        r"Unable to create step for job \d+: (?P<why>[^\r\n]+)",
        "the allocation takes no such step: {why}",
    ),
    make_failure(
        r"srun: unrecognized option '(?P<word>[^']+)'",
        "srun does not know the option {word} of launch.args",
    ),
    make_failure(
        r"cannot stat file|Unable to contact slurm controller|Unable to establish configuration",
        "Slurm's controller cannot be reached: check SLURM_CONF and slurmctld",
    ),
    make_failure(
        r"queued and waiting for resources",
        "the job waits in Slurm's queue for free nodes",
        follows=True,
    ),
)
LOSSES = (
    re.compile(r"srun: error: Node failure on (?P<host>\S+)"),
    # the number of a node in the step, not a name: the host stays unknown
    re.compile(r"srun: error: [^\n]*\b(?:io|IO) error (?:[^\n]* )?on node \d+"),
)


class Srun:
    """Slurm's launcher, which starts ranks of every library that supports PMI."""

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

    def candidates(self, env: Mapping[str, str], interpreter_folder: Path) -> Sequence[Path]:
        """Return every ``srun`` next to the interpreter and in PATH."""
        return find_programs(("srun",), env, interpreter_folder)

    def version(self, executable: Path) -> str | None:
        """Return ``srun 22.05.8``; None for another program."""
        match = re.match(r"slurm\S* (\S+)", capture_stdout(executable, "--version"))
        return f"srun {match[1]}" if match else None

    def hostfile(self, placement: Sequence[RankBlock]) -> str | None:
        """Return one line per rank if a list of nodes cannot express the placement."""
        if not placement or _has_equal_sorted_hosts(placement):
            return None
        return "".join(
            f"{host}\n" * count for host, count in count_ranks_by_host(placement).items()
        )

    def command(self, executable: Path, job: JobSpec, env: Mapping[str, str]) -> Command:
        """Return srun's argv and environment.

        The ranks' variables are in srun's environment, because a comma in a value breaks
        --export lists.
        """
        full_env = {**env, **job.rank_env, **job.private_env}
        argv = [str(executable), "-n", str(job.np), *_list_node_options(job)]
        if job.hostfile:
            full_env["SLURM_HOSTFILE"] = str(job.hostfile)
        if job.settings.bind != "auto":
            argv.append(f"--cpu-bind={_CPU_BIND_BY_BINDING[job.settings.bind]}")
        argv += ["--export=ALL", "-K"]
        if job.library in _PMI_BY_LIBRARY and not any(
            arg.startswith("--mpi") for arg in job.settings.args
        ):
            argv.append(f"--mpi={_PMI_BY_LIBRARY[job.library]}")
        return Command((*argv, *job.settings.args, *job.program), full_env)

    def parse_output(self, output: str) -> LauncherReport:
        """Return the end of a job that srun's output reports."""
        return parse_messages(ENDS, FAILURES, output, losses=LOSSES, kills=True)


def _has_equal_sorted_hosts(placement: Sequence[RankBlock]) -> bool:
    # Slurm starts ranks in its own order of nodes, not in that of --nodelist
    ranks_by_host = count_ranks_by_host(placement)
    return len(set(ranks_by_host.values())) == 1 and list(ranks_by_host) == sorted(ranks_by_host)


def _list_node_options(job: JobSpec) -> Iterator[str]:
    if job.hostfile:
        yield "--distribution=arbitrary"
    elif job.placement:
        yield from (f"--nodelist={','.join(job.ranks_by_host)}", "-N", str(len(job.ranks_by_host)))
        yield f"--ntasks-per-node={job.np // len(job.ranks_by_host)}"
    elif job.settings.ranks_per_host:
        yield f"--ntasks-per-node={job.settings.ranks_per_host}"


LAUNCHER = Srun()
