"""MVAPICH2's mpirun_rsh."""

from __future__ import annotations

import math
import os
import re
import shlex
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from spbench.errors import UsageError
from spbench.launch.launcher import (
    Command,
    JobSpec,
    LauncherReport,
    LauncherTraits,
    RankBlock,
    signal_name,
)
from spbench.launch.launchers.failures import (
    MPI_ABORT,
    SSH_FAILURES,
    SSH_LOSSES,
    make_end_pattern,
    make_failure,
    parse_messages,
)
from spbench.launch.launchers.search import find_programs, read_output
from spbench_core.mpi_builds import is_built_with_cuda

NVIDIA_DEVICE = Path("/dev/nvidia0")
# mpirun_rsh reads these from its own environment, so they are set there and not for the ranks.
_OWN = ("MV2_MPIRUN_TIMEOUT", "MVP_MPIRUN_TIMEOUT", "MPIEXEC_TIMEOUT")
# Without these, mpirun_rsh may not find its libraries and helpers. They are set in its environment
# and in that of the ranks.
_NEEDED = ("PATH", "LD_LIBRARY_PATH")
# From 800 hosts on it would use -fastssh, which breaks arguments and hides exit codes.
_NO_FASTSSH = {"MV2_FASTSSH_THRESHOLD": str(2**31 - 1)}
_LONGEST_TIMEOUT = 1000
_LONGEST_PATH = 255
# Only ch3:mrail accepts memory of a GPU, and only if it is built with CUDA. Without CUDA it ends in
# MPI_Init.
_RAIL = re.compile(r"\bch3:mrail\b")
_SAFE_FOLDER = re.compile(r"[\w@%+=:,./-]+", re.ASCII)

# This is the name that the host has for itself. "from node X" of other messages can be another's.
_SPAWN = r"(?:\[(?P<host>[^\s\]:]+):mpispawn_\d+\]\[\w+\] )?"
_RANK = _SPAWN + r"MPI process \(rank: (?P<rank>\d+), pid: \d+\) "
ENDS = (
    make_end_pattern(_RANK + r"terminated with signal (?P<signal>\d+)"),
    MPI_ABORT,
    make_end_pattern(_RANK + r"exited with status (?P<status>[1-9]\d*)"),
)
FAILURES = (
    make_failure(
        r"Timeout \[TIMEOUT = (?P<seconds>\d+) seconds\]",
        "mpirun_rsh ended the job after {seconds} s, its MPIEXEC_TIMEOUT",
        decisive=True,
    ),
    make_failure(
        r"\[signal_processor\] Caught signal (?P<number>\d+), killing job",
        lambda match: f"mpirun_rsh got {signal_name(int(match['number']))} and ended the job",
        decisive=True,
    ),
    make_failure(
        _SPAWN + r"Failed to execvp\(\) '(?P<program>[^']*)': (?P<why>[^\r\n(]+?) \(\d+\)",
    ),
    make_failure(
        # if the output names the rank, that message explains more
        r"\A(?![^\0]*MPI process \(rank: )[^\0]*"
        r"Unexpected End-Of-File on file descriptor \d+\. MPI process died\?",
        "a rank ended without MPI_Finalize",
        follows=True,
    ),
    *SSH_FAILURES,
    make_failure(
        r"Error in init phase, aborting! \((?P<up>\d+)/(?P<all>\d+) mpispawn connections\)",
        "{up} of {all} hosts started: check ssh to each host, that MVAPICH2 is installed there, "
        "and that the working folder exists there",
    ),
    make_failure(
        r"getaddrinfo \[(?P<host>[^\]\s]+):\d+\]",
        "mpirun_rsh cannot resolve {host}: it asks the resolver and not ssh's configuration",
    ),
    make_failure(
        r"mpirun_rsh: (?:unrecognized|ambiguous) option '(?P<word>[^']+)'",
        "mpirun_rsh does not know the option {word} of launch.args",
    ),
    make_failure(
        r"Timeout during client startup",
        "some host did not start within launch.start_timeout: check ssh to each host",
    ),
)


class MpirunRsh:
    """mpirun_rsh of MVAPICH2 2.3 and MVAPICH 3.0."""

    name = "mpirun_rsh"
    resolves_names = True
    helper = "mpispawn"
    libraries = frozenset({"mvapich2", "mvapich"})
    shows_binding = "launch.env: {MV2_SHOW_CPU_BINDING: 1}"
    traits = LauncherTraits(
        program="mpirun_rsh",
        title="MVAPICH2's",
        starts="MVAPICH2",
        preference={"mvapich2": 0, "mvapich": 1},
        dropped_in={"mvapich": 4},
        needs_hostfile=True,
    )

    def candidates(self, env: Mapping[str, str], interpreter_folder: Path) -> Sequence[Path]:
        """Return every ``mpirun_rsh`` in MV2_HOME, next to the interpreter and in PATH."""
        home = [Path(env["MV2_HOME"]) / "bin"] if env.get("MV2_HOME") else []
        return find_programs(("mpirun_rsh",), env, *home, interpreter_folder)

    def version(self, executable: Path) -> str | None:
        """Return ``mvapich2-2.3.7`` from ``mpirun_rsh -v``; None for another program."""
        match = re.search(
            r"^Version: (mvapich2?-\S.*)$", read_output(executable, "-v"), re.MULTILINE
        )
        return match[1].strip() if match else None

    def hostfile(self, placement: Sequence[RankBlock]) -> str | None:
        """Return ``HOST:N[:HCA]`` lines; without a placement, this machine.

        Raises:
            UsageError: A host is an IPv6 address or a number.
        """
        if not placement:
            return f"{_own_name()}\n"
        return "".join(map(_format_line, placement))

    def command(self, executable: Path, job: JobSpec, env: Mapping[str, str]) -> Command:
        """Return mpirun_rsh's argv and environment.

        Raises:
            UsageError: The program, the working folder or a path has a name that it cannot handle,
                or an option breaks its quoting.
        """
        _check_paths(job, _folder(env))
        variables = _rank_variables(executable, job, env)
        _check_quoting(job, {**env, **variables})
        argv = [str(executable), "--export-all", "-np", str(job.np), *job.settings.args]
        argv += ["-hostfile", str(job.hostfile)]
        argv += [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
        # a shell line has each argument between '...', so that only ' needs escaping
        argv += [arg.replace("'", "'\\''") for arg in job.program]
        # --export-all overrides the variables in argv, and LD_PRELOAD here would load into every
        # helper process
        kept_env = {name: value for name, value in env.items() if name not in variables}
        kept_env |= {name: variables[name] for name in _NEEDED if name in variables}
        # mpirun_rsh sends its environment over a connection. Variables in argv are also arguments
        # of ssh, which every user can read.
        kept_env |= job.hidden_env
        full_env = {**_NO_FASTSSH, **kept_env, **_timeouts(job), **job.private_env}
        return Command(tuple(argv), full_env)

    def parse_output(self, output: str) -> LauncherReport:
        """Return the end of a job that its output reports; its exit code shows nothing."""
        return parse_messages(ENDS, FAILURES, output, losses=SSH_LOSSES)


def _format_line(block: RankBlock) -> str:
    # to mpirun_rsh, localhost is another machine that it reaches by ssh
    host = _own_name() if block.host in ("localhost", "127.0.0.1", "::1") else block.host
    if ":" in host:
        raise UsageError(f"mpirun_rsh takes no IPv6 address: give the name of {host}")
    if host.isdigit():
        raise UsageError(f"mpirun_rsh takes no host name of digits only: give another of {host}")
    return f"{host}:{block.count}{f':{block.hca}' if block.hca else ''}\n"


def _own_name() -> str:
    return socket.gethostname()


def _folder(env: Mapping[str, str]) -> str:
    # mpirun_rsh changes to the logical folder, with links kept
    logical = env.get("PWD", "")
    return logical if logical and Path(logical).resolve() == Path.cwd() else os.getcwd()


def _check_paths(job: JobSpec, folder: str) -> None:
    if "=" in job.program[0]:
        raise UsageError(
            f"mpirun_rsh takes {job.program[0]!r} for an assignment: give launch.python a path "
            f"without ="
        )
    if not _SAFE_FOLDER.fullmatch(folder):
        raise UsageError(
            f"mpirun_rsh cannot start ranks in {folder!r}: go to a folder whose path has only "
            f"letters, digits and ._-/"
        )
    if len(str(job.hostfile)) > _LONGEST_PATH:
        raise UsageError(
            f"mpirun_rsh cannot read a hostfile with a path as long as {job.hostfile}: "
            f"choose a shorter --home"
        )


def _check_quoting(job: JobSpec, env: Mapping[str, str]) -> None:
    """Reject options that mpirun_rsh passes to a shell with wrong quotes.

    Raises:
        UsageError: The message names the option.
    """
    path = env.get("LD_LIBRARY_PATH", "")
    if path and not _SAFE_FOLDER.fullmatch(path):
        raise UsageError(
            f"mpirun_rsh passes LD_LIBRARY_PATH on unquoted, and {path!r} would break there: give "
            f"it folders whose paths have only letters, digits and ._-/"
        )
    for option in job.settings.args:
        name = option.lstrip("-").partition("=")[0]
        # getopt_long_only accepts one dash or two, and each unique prefix of a name
        if option.startswith("-") and name and (name == "sg" or "fastssh".startswith(name)):
            raise UsageError(
                f"launch.args: with {option} mpirun_rsh has shells read values and arguments "
                f"twice, which breaks or runs them: leave it out"
            )


def _rank_variables(executable: Path, job: JobSpec, env: Mapping[str, str]) -> dict[str, str]:
    prefix = "MVP" if job.library == "mvapich" else "MV2"
    variables = {f"{prefix}_{name}": value for name, value in _binding(job).items()}
    variables["PYTHONNOUSERSITE"] = "true"
    cuda = str(int(_takes_gpu_memory(executable)))
    variables |= {f"{prefix}_USE_CUDA": cuda, f"{prefix}_USE_GDRCOPY": "0"}
    preload = Path(env.get("MV2_HOME") or "/nonexistent") / "lib" / "libmpi.so"
    if preload.is_file():
        variables["LD_PRELOAD"] = str(preload)
    variables |= {name: value for name, value in job.rank_env.items() if name not in job.hidden_env}
    if job.settings.allocator == "tcmalloc" and preload.is_file():
        variables["LD_PRELOAD"] = f"{preload}:{job.rank_env['LD_PRELOAD']}"
    return {name: value for name, value in variables.items() if name not in _OWN}


def _takes_gpu_memory(executable: Path) -> bool:
    """Whether this machine has a GPU and mpirun_rsh's MVAPICH2 accepts its memory.

    On a login node without a GPU, users set ``MV2_USE_CUDA=1`` in launch.env.
    """
    if not NVIDIA_DEVICE.exists():
        return False
    text = read_output(executable.with_name("mpiname"), "-a")
    return is_built_with_cuda(text) and _RAIL.search(text) is not None


def _binding(job: JobSpec) -> dict[str, str]:
    if job.settings.bind == "auto" and job.binding == "core":
        # the policy of the reference commands
        return {"HYBRID_BINDING_POLICY": "spread", "CPU_BINDING_POLICY": "hybrid"}
    if job.binding == "none":
        return {"ENABLE_AFFINITY": "0"}
    level = "core" if job.binding == "core" else "numanode"
    return {
        "ENABLE_AFFINITY": "1",
        "CPU_BINDING_POLICY": "bunch",
        "CPU_BINDING_LEVEL": level,
    }


def _timeouts(job: JobSpec) -> dict[str, str]:
    seconds = str(min(_LONGEST_TIMEOUT, max(1, math.ceil(job.settings.start_timeout))))
    name = "MVP_MPIRUN_TIMEOUT" if job.library == "mvapich" else "MV2_MPIRUN_TIMEOUT"
    configured = {key: value for key, value in job.settings.env.items() if key in _OWN}
    return {name: seconds} | configured


LAUNCHER = MpirunRsh()
