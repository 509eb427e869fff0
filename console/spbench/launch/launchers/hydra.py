"""Hydra's mpiexec: MPICH, MVAPICH 3 and 4, and Intel MPI."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from spbench.launch.launcher import (
    Command,
    JobSpec,
    LauncherReport,
    LauncherTraits,
    RankBlock,
    count_ranks_by_host,
)
from spbench.launch.launchers.failures import (
    MPI_ABORT,
    SSH_FAILURES,
    SSH_LOSS_FAILURES,
    make_end_pattern,
    make_failure,
    parse_messages,
)
from spbench.launch.launchers.search import capture_stdout, find_programs

_INTEL_VARIABLES_BY_BINDING = {
    "core": {"I_MPI_PIN": "1", "I_MPI_PIN_DOMAIN": "core"},
    "numa": {"I_MPI_PIN": "1", "I_MPI_PIN_DOMAIN": "numa"},
    "none": {"I_MPI_PIN": "0"},
}

# The pid and the exit code of the BAD TERMINATION banner may be another rank's, so the pattern
# takes no rank from it.
ENDS = (
    make_end_pattern(
        r"rank (?P<rank>\d+) in comm \d+\): application called MPI_Abort\([^,]*, (?P<code>-?\d+)\)"
    ),
    MPI_ABORT,
    make_end_pattern(
        r"RUNNING AT (?P<host>\S+)\s+=\s+EXIT CODE: (?P<status>\d+)"
        r"(?:[^\0]*?EXIT STRING: [^(\n]*\(signal (?P<signal>\d+)\))?"
    ),
)
FAILURES = (
    make_failure(
        r"(?:\[proxy:\d+@(?P<host>[^\]\s]+)\][^\n]*)?execvp error on file (?P<program>.+?) "
        r"\((?P<why>[^)]*)\)",
    ),
    make_failure(
        r"unable to connect to server (?P<server>\S+) at port \d+",
        "a host cannot reach mpiexec at {server}: name an address of this machine that it reaches, "
        "launch.args: [-localhost, ADDRESS], or with Intel MPI [-iface, INTERFACE]",
    ),
    *SSH_FAILURES,
    # Measured with Hydra 5.0.2: the proxy has its own connection, and the job continues.
    *SSH_LOSS_FAILURES,
    make_failure(
        r"Launch proxy failed",
        "a host of the job cannot be started: check ssh to each host, and MPI there",
    ),
    make_failure(
        r"unrecognized argument (?P<word>\S+)",
        "mpiexec does not know the option -{word} of launch.args",
    ),
)


class Hydra:
    """The process manager of MPICH."""

    name = "hydra"
    resolves_names = False
    helper = None
    libraries = frozenset({"mpich", "intelmpi", "mvapich", "mvapich2"})
    shows_binding = "launch.env: {HYDRA_TOPO_DEBUG: 1}, of Intel MPI {I_MPI_DEBUG: 4}"
    traits = LauncherTraits(
        program="mpiexec",
        title="mpiexec of MPICH, MVAPICH and Intel MPI",
        starts="MPICH, Intel MPI and MVAPICH",
        preference={"mpich": 0, "intelmpi": 0, "mvapich": 0, "mvapich2": 1},
    )

    def candidates(self, env: Mapping[str, str], interpreter_folder: Path) -> Sequence[Path]:
        """Return every ``mpiexec`` next to the interpreter and in PATH."""
        return find_programs(("mpiexec", "mpiexec.hydra"), env, interpreter_folder)

    def version(self, executable: Path) -> str | None:
        """Return ``Hydra 5.0.2``; None for another project's mpiexec."""
        version_text = capture_stdout(executable, "--version")
        intel_match = re.search(r"Intel\(R\) MPI Library.*?Version ([^\n]+)", version_text)
        if intel_match:
            return f"Intel MPI {intel_match[1].strip()}"
        hydra_match = re.search(r"HYDRA build details:\s+Version:\s+(\S+)", version_text)
        return f"Hydra {hydra_match[1]}" if hydra_match else None

    def hostfile(self, placement: Sequence[RankBlock]) -> str | None:
        """Return ``HOST:N`` lines; None without a placement."""
        host_lines = [f"{host}:{count}\n" for host, count in count_ranks_by_host(placement).items()]
        return "".join(host_lines) or None

    def command(self, executable: Path, job: JobSpec, env: Mapping[str, str]) -> Command:
        """Return mpiexec's argv and environment."""
        argv = [str(executable), "-n", str(job.np)]
        if job.hostfile:
            # Intel's takes only the names of -f, and fills the first host.
            option = "-machinefile" if job.library == "intelmpi" else "-f"
            argv += [option, str(job.hostfile)]
        if job.settings.ranks_per_host:
            argv += ["-ppn", str(job.settings.ranks_per_host)]
        # Measured with 5.0.2: with an explicit -genvall, mpiexec's environment replaces the
        # variables of the same name on other hosts, with any characters in the values.
        argv += ["-genvall", *_list_binding_options(job)]
        for name, value in _build_rank_variables(job).items():
            argv += ["-genv", name, value]
        full_env = {**env, **job.hidden_env, **job.private_env}
        return Command((*argv, *job.settings.args, *job.program), full_env)

    def parse_output(self, output: str) -> LauncherReport:
        """Return the end of a job that mpiexec's output reports."""
        return parse_messages(ENDS, FAILURES, output, kills=True)


def _list_binding_options(job: JobSpec) -> Iterator[str]:
    if job.library != "intelmpi":
        yield from ("-bind-to", job.binding)


def _build_rank_variables(job: JobSpec) -> Mapping[str, str]:
    pinning_variables = (
        _INTEL_VARIABLES_BY_BINDING[job.binding] if job.library == "intelmpi" else {}
    )
    rank_variables = job.rank_env.items()
    return pinning_variables | {
        name: value for name, value in rank_variables if name not in job.hidden_env
    }


LAUNCHER = Hydra()
