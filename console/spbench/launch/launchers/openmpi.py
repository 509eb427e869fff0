"""Open MPI's mpirun."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from spbench.errors import UsageError
from spbench.launch.hosts.names import is_local
from spbench.launch.launcher import (
    ALLOCATIONS,
    Command,
    JobSpec,
    LauncherReport,
    LauncherTraits,
    RankBlock,
    count_ranks_by_host,
)
from spbench.launch.launchers.failures import (
    SSH_FAILURES,
    SSH_LOSSES,
    make_end_pattern,
    make_failure,
    parse_messages,
)
from spbench.launch.launchers.search import capture_stdout, find_programs

# Of mpirun's environment, prted passes only OMPI_ and PMIX_ variables to ranks on other hosts.
FORWARDED = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV")

# A daemon on a host that is cut off ends once it detects that its connection to mpirun is lost.
# With these values that takes 15 s, and with the defaults of 5.0.11 more than 80 s.
KEEPALIVE = {"time": 6, "intvl": 3, "probes": 3}

FOLDER_VARIABLES = ("PRTE_MCA_prte_local_tmpdir_base", "OMPI_MCA_orte_local_tmpdir_base")
"""Variables for the folder of mpirun's files, under Open MPI 5 and under Open MPI 4.

By default mpirun's files are in ``ompi.PID`` of TMPDIR. They remain if it is killed, and a later
mpirun with the same PID then refuses to start. Measured with 5.0.11.
"""

ENDS = (
    make_end_pattern(
        r"process rank (?P<rank>\d+) with PID \d+ on node (?P<host>\S+)\s+exited\s+on\s+"
        r"signal (?P<signal>\d+)"
    ),
    make_end_pattern(
        r"MPI_ABORT was invoked on rank (?P<rank>\d+)[^\0]*?Errorcode:\s*(?P<code>-?\d+)"
    ),
    make_end_pattern(r"Process name: \[[^\]]*,(?P<rank>\d+)\]\s+Exit code:\s+(?P<status>\d+)"),
)
FAILURES = (
    *SSH_FAILURES,
    make_failure(
        r"A daemon failed to report back[^\0]*?Remote host:\s+(?P<host>\S+)",
        "host {host} cannot be reached by ssh, or Open MPI cannot start there",
    ),
    make_failure(
        r"access an executable:\s+Executable: (?P<program>.+)\s+Node: (?P<host>\S+)",
        "program {program} cannot be run on {host}",
    ),
    make_failure(
        r"not enough slots available in the system to satisfy the (?P<np>\d+)",
        "Open MPI has fewer than {np} slots: state slots in a hostfile, or lower the ranks",
    ),
    make_failure(
        r"more cpus than are available in your allocation",
        "more ranks than cores are bound to cores: set launch.bind to none",
    ),
    make_failure(
        r"PMIx server's listener thread failed to start",
        "mpirun could not open its files: if prte_tmpdir_base is set, remove the folder ompi.PID "
        "of a killed mpirun there; otherwise see that TMPDIR can be written",
    ),
    make_failure(
        r"^\s+Option: (?P<word>\S+)", "mpirun does not know the option {word} of launch.args"
    ),
)
LOSSES = (
    *SSH_LOSSES,
    re.compile(
        r"(?:PRTE|ORTE) has lost communication with a remote daemon\.\s+"
        r"HNP daemon\s*: [^\n]*\s+Remote daemon: [^\n]* on node (?P<host>\S+)"
    ),
)
# A rank that uses TCP prints this and aborts after the end of a rank to which it is connected.
# mpirun then often reports only this abort. Measured with 5.0.11.
SURVIVORS = (
    re.compile(
        r"\*\*\* An error occurred in Socket closed\n"
        r"[^\n]*\*\*\* reported by process \[\d+,(?P<rank>\d+)\]"
    ),
)


class OpenMpi:
    """Open MPI 4 and 5 (PRRTE)."""

    name = "openmpi"
    resolves_names = False
    helper = None
    libraries = frozenset({"openmpi"})
    shows_binding = "launch.args: [--report-bindings]"
    traits = LauncherTraits(
        program="mpirun",
        title="Open MPI's mpirun",
        starts="Open MPI",
        preference={"openmpi": 0},
    )

    def candidates(self, env: Mapping[str, str], interpreter_folder: Path) -> Sequence[Path]:
        """Return every ``mpirun`` next to the interpreter and in PATH."""
        return find_programs(("mpirun",), env, interpreter_folder)

    def version(self, executable: Path) -> str | None:
        """Return ``Open MPI 5.0.11``; None for another project's mpirun."""
        match = re.search(
            r"\((Open MPI|OpenRTE|PRRTE|PMIx Reference RunTime Environment)\)\s*(\S+)",
            capture_stdout(executable, "--version"),
        )
        return f"{match[1]} {match[2]}" if match else None

    def hostfile(self, placement: Sequence[RankBlock]) -> str | None:
        """Return ``HOST slots=N`` lines; None without a placement."""
        host_lines = [
            f"{host} slots={count}\n" for host, count in count_ranks_by_host(placement).items()
        ]
        return "".join(host_lines) or None

    def command(self, executable: Path, job: JobSpec, env: Mapping[str, str]) -> Command:
        """Return mpirun's argv and environment."""
        argv = [str(executable), "-n", str(job.np)]
        if job.hostfile:
            argv += ["--hostfile", str(job.hostfile)]
        if job.settings.ranks_per_host:
            argv += ["--map-by", f"ppr:{job.settings.ranks_per_host}:node"]
        if job.oversubscribed:
            argv += ["--oversubscribe"]
        if not _is_local_job(job, env):
            _check_path(executable)
            argv += _list_keepalive_options(job.settings.args)
        argv += ["--bind-to", job.binding]
        full_env = {
            **_build_default_variables(job, env),
            **env,
            **job.hidden_env,
            **job.private_env,
        }
        argv += _list_export_options(job, full_env, env)
        folder_variables = () if _chooses_folder(job, full_env) else FOLDER_VARIABLES
        return Command((*argv, *job.settings.args, *job.program), full_env, folder_variables)

    def parse_output(self, output: str) -> LauncherReport:
        """Return the end of a job that mpirun's output reports."""
        return parse_messages(ENDS, FAILURES, output, losses=LOSSES, survivors=SURVIVORS)


def _chooses_folder(job: JobSpec, env: Mapping[str, str]) -> bool:
    """Whether the user has chosen the folder of mpirun's files."""
    return any(name.endswith("tmpdir_base") for name in (*env, *job.settings.args))


def _list_export_options(
    job: JobSpec, full_env: Mapping[str, str], env: Mapping[str, str]
) -> Iterator[str]:
    # Measured with 5.0.11, here and over ssh, and with 4.1.4 here: with -x NAME and -x NAME=VALUE
    # the value arrives unchanged, also if it is empty or has blanks, quotes, $, backquotes, ; , = :
    # \ newlines or UTF-8. With only a name, the value comes from mpirun's environment, which ps
    # hides.
    for name, value in job.rank_env.items():
        yield from ("-x", name if name in job.hidden_env else f"{name}={value}")
    if _is_local_job(job, env):
        return
    for name in (*job.private_env, *FORWARDED):
        if name in full_env and name not in job.rank_env:
            yield from ("-x", name)


def _check_path(executable: Path) -> None:
    """Reject an mpirun with a path that the shells of other hosts would split.

    Raises:
        UsageError: The path has a blank, a quote or another special character.
    """
    # mpirun passes its path to ssh unquoted. Measured with 5.0.11: "bash: of: command not found".
    if re.search(r"[\s;&|<>()$`\"'\\*?#~]", str(executable)):
        raise UsageError(
            f"{str(executable)!r} cannot start ranks on other hosts: install Open MPI, or the "
            f"environment that has it, in a folder without spaces and quotes in its path"
        )


def _list_keepalive_options(args: Sequence[str]) -> Iterator[str]:
    """Yield the options of a daemon's connection, in the form of Open MPI 4 and 5."""
    for name, value in KEEPALIVE.items():
        if (parameter := f"oob_tcp_keepalive_{name}") not in args:
            yield from ("--mca", parameter, str(value))


def _is_local_job(job: JobSpec, env: Mapping[str, str]) -> bool:
    """Whether all ranks run on this machine; an allocation may have other hosts."""
    uses_allocation_hosts = not job.ranks_by_host and any(name in env for name in ALLOCATIONS)
    return not uses_allocation_hosts and all(is_local(host) for host in job.ranks_by_host)


def _build_default_variables(job: JobSpec, env: Mapping[str, str]) -> dict[str, str]:
    variables = {"OMPI_MCA_osc": "^ucx"}
    if _is_local_job(job, env):
        # These transports reach only other hosts. If ofi finds no network, it sleeps for a second
        # in MPI_Init, which takes 0.05 s without it.
        variables["OMPI_MCA_btl"] = "^ofi,openib,uct"
    if job.oversubscribed:
        # A hostfile with enough slots hides from Open MPI that there are fewer cores. Ranks then
        # spin without yielding: 4 ranks on 2 cores take 28 ms for an exchange of 0.04 ms.
        variables["OMPI_MCA_mpi_yield_when_idle"] = "1"
    if os.geteuid() == 0:
        variables |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return variables


LAUNCHER = OpenMpi()
