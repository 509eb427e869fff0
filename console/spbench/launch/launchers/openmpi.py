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
    LauncherTraits,
    Placed,
    Said,
    counts,
)
from spbench.launch.launchers.failures import SSH_FAILURES, SSH_LOSSES, end, failure, read
from spbench.launch.launchers.search import output_of, search

# prted gives ranks elsewhere none of mpirun's environment but OMPI_ and PMIX_ names
FORWARDED = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV")

# A daemon whose host is cut off ends once it knows that its connection to mpirun is lost: in 15 s
# with these, and with the defaults of 5.0.11 not within 80 s.
KEEPALIVE = {"time": 6, "intvl": 3, "probes": 3}

FOLDER_VARIABLES = ("PRTE_MCA_prte_local_tmpdir_base", "OMPI_MCA_orte_local_tmpdir_base")
"""Name the folder of mpirun's files, under Open MPI 5 and under Open MPI 4.

By default mpirun's files are in ``ompi.PID`` of TMPDIR. They remain if it is killed, and a later
mpirun with the same PID then refuses to start. Measured with 5.0.11.
"""

ENDS = (
    end(
        r"process rank (?P<rank>\d+) with PID \d+ on node (?P<host>\S+)\s+exited\s+on\s+"
        r"signal (?P<signal>\d+)"
    ),
    end(r"MPI_ABORT was invoked on rank (?P<rank>\d+)[^\0]*?Errorcode:\s*(?P<code>-?\d+)"),
    end(r"Process name: \[[^\]]*,(?P<rank>\d+)\]\s+Exit code:\s+(?P<status>\d+)"),
)
FAILURES = (
    *SSH_FAILURES,
    failure(
        r"A daemon failed to report back[^\0]*?Remote host:\s+(?P<host>\S+)",
        "host {host} cannot be reached by ssh, or Open MPI cannot start there",
    ),
    failure(
        r"access an executable:\s+Executable: (?P<program>.+)\s+Node: (?P<host>\S+)",
        "program {program} cannot be run on {host}",
    ),
    failure(
        r"not enough slots available in the system to satisfy the (?P<np>\d+)",
        "Open MPI has fewer than {np} slots: state slots in a hostfile, or lower the ranks",
    ),
    failure(
        r"more cpus than are available in your allocation",
        "more ranks than cores are bound to cores: set launch.bind to none",
    ),
    failure(
        r"PMIx server's listener thread failed to start",
        "mpirun could not open its files: if prte_tmpdir_base is set, remove the folder ompi.PID "
        "of a killed mpirun there; otherwise see that TMPDIR can be written",
    ),
    failure(r"^\s+Option: (?P<word>\S+)", "mpirun does not know the option {word} of launch.args"),
)
LOSSES = (
    *SSH_LOSSES,
    re.compile(
        r"(?:PRTE|ORTE) has lost communication with a remote daemon\.\s+"
        r"HNP daemon\s*: [^\n]*\s+Remote daemon: [^\n]* on node (?P<host>\S+)"
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

    def candidates(self, env: Mapping[str, str], beside: Path) -> Sequence[Path]:
        """Return every ``mpirun`` beside the interpreter and in PATH."""
        return search(("mpirun",), env, beside)

    def version(self, executable: Path) -> str | None:
        """Return ``Open MPI 5.0.11``; None for another project's mpirun."""
        match = re.search(
            r"\((Open MPI|OpenRTE|PRRTE|PMIx Reference RunTime Environment)\)\s*(\S+)",
            output_of(executable, "--version"),
        )
        return f"{match[1]} {match[2]}" if match else None

    def hostfile(self, placement: Sequence[Placed]) -> str | None:
        """Return ``HOST slots=N`` lines; None without a placement."""
        lines = [f"{host} slots={count}\n" for host, count in counts(placement).items()]
        return "".join(lines) or None

    def command(self, executable: Path, job: JobSpec, env: Mapping[str, str]) -> Command:
        """Return mpirun's argv and environment."""
        argv = [str(executable), "-n", str(job.np)]
        if job.hostfile:
            argv += ["--hostfile", str(job.hostfile)]
        if job.settings.ranks_per_host:
            argv += ["--map-by", f"ppr:{job.settings.ranks_per_host}:node"]
        if job.oversubscribed:
            argv += ["--oversubscribe"]
        if not _stays_here(job, env):
            _check_path(executable)
            argv += _keepalive(job.settings.args)
        argv += ["--bind-to", job.binding]
        full_env = {**_defaults(job, env), **env, **job.hidden_env, **job.private_env}
        argv += _exports(job, full_env, env)
        folders = () if _names_folder(job, full_env) else FOLDER_VARIABLES
        return Command((*argv, *job.settings.args, *job.program), full_env, folders)

    def said(self, output: str) -> Said:
        """Return what mpirun tells of a job's end."""
        return read(ENDS, FAILURES, output, losses=LOSSES)


def _names_folder(job: JobSpec, env: Mapping[str, str]) -> bool:
    """Return whether the user has chosen the folder of mpirun's files."""
    return any(name.endswith("tmpdir_base") for name in (*env, *job.settings.args))


def _exports(job: JobSpec, full_env: Mapping[str, str], env: Mapping[str, str]) -> Iterator[str]:
    # Measured with 5.0.11, here and over ssh, and with 4.1.4 here: the value arrives exactly with
    # -x NAME and with -x NAME=VALUE, be it empty or with blanks, quotes, $, backquotes, ; , = : \
    # newlines or UTF-8. A name alone takes the value of mpirun's environment, which ps hides.
    for name, value in job.rank_env.items():
        yield from ("-x", name if name in job.hidden_env else f"{name}={value}")
    if _stays_here(job, env):
        return
    for name in (*job.private_env, *FORWARDED):
        if name in full_env and name not in job.rank_env:
            yield from ("-x", name)


def _check_path(executable: Path) -> None:
    """Refuse an mpirun whose path the shells of other hosts would split.

    Raises:
        UsageError: naming it.
    """
    # mpirun passes its path to ssh unquoted. Measured with 5.0.11: "bash: of: command not found".
    if re.search(r"[\s;&|<>()$`\"'\\*?#~]", str(executable)):
        raise UsageError(
            f"{str(executable)!r} cannot start ranks on other hosts: install Open MPI, or the "
            f"environment that has it, in a folder without spaces and quotes in its path"
        )


def _keepalive(args: Sequence[str]) -> Iterator[str]:
    """Yield the options of a daemon's connection, in the form of Open MPI 4 and 5."""
    for name, value in KEEPALIVE.items():
        if (parameter := f"oob_tcp_keepalive_{name}") not in args:
            yield from ("--mca", parameter, str(value))


def _stays_here(job: JobSpec, env: Mapping[str, str]) -> bool:
    """Say whether all ranks run on this machine; an allocation may have others."""
    allocated = not job.counts and any(name in env for name in ALLOCATIONS)
    return not allocated and all(is_local(host) for host in job.counts)


def _defaults(job: JobSpec, env: Mapping[str, str]) -> dict[str, str]:
    defaults = {"OMPI_MCA_osc": "^ucx"}
    if _stays_here(job, env):
        # These reach other hosts only. Where ofi finds no network to do it, it sleeps for a second
        # in MPI_Init, which takes 0.05 s without it.
        defaults["OMPI_MCA_btl"] = "^ofi,openib,uct"
    if job.oversubscribed:
        # A hostfile with slots enough hides from Open MPI that cores are not: ranks then spin
        # without yielding, and 4 ranks on 2 cores take 28 ms for an exchange of 0.04 ms.
        defaults["OMPI_MCA_mpi_yield_when_idle"] = "1"
    if os.geteuid() == 0:
        defaults |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return defaults


LAUNCHER = OpenMpi()
