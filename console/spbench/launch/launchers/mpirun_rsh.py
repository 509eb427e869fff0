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
from spbench.launch.launchers.search import capture_stdout, find_programs
from spbench_core.mpi_builds import is_built_with_cuda

NVIDIA_DEVICE = Path("/dev/nvidia0")
# mpirun_rsh reads these from its own environment, so they are set there and not for the ranks.
_LAUNCHER_VARIABLES = ("MV2_MPIRUN_TIMEOUT", "MVP_MPIRUN_TIMEOUT", "MPIEXEC_TIMEOUT")
# Without these, mpirun_rsh may not find its libraries and helpers. They are set in its environment
# and in that of the ranks.
_SHARED_VARIABLES = ("PATH", "LD_LIBRARY_PATH")
# From 800 hosts on it would use -fastssh, which breaks arguments and hides exit codes.
_NO_FASTSSH = {"MV2_FASTSSH_THRESHOLD": str(2**31 - 1)}
_MAX_TIMEOUT_S = 1000
_MAX_PATH_LENGTH = 255
# Only ch3:mrail accepts memory of a GPU, and only if it is built with CUDA. Without CUDA it ends in
# MPI_Init.
_MRAIL_DEVICE = re.compile(r"\bch3:mrail\b")
_SAFE_FOLDER = re.compile(r"[\w@%+=:,./-]+", re.ASCII)

# This is the name that the host has for itself. "from node X" of other messages can be another's.
_MPISPAWN_PREFIX = r"(?:\[(?P<host>[^\s\]:]+):mpispawn_\d+\]\[\w+\] )?"
_RANK_PREFIX = _MPISPAWN_PREFIX + r"MPI process \(rank: (?P<rank>\d+), pid: \d+\) "
ENDS = (
    make_end_pattern(_RANK_PREFIX + r"terminated with signal (?P<signal>\d+)"),
    MPI_ABORT,
    make_end_pattern(_RANK_PREFIX + r"exited with status (?P<status>[1-9]\d*)"),
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
        _MPISPAWN_PREFIX
        + r"Failed to execvp\(\) '(?P<program>[^']*)': (?P<why>[^\r\n(]+?) \(\d+\)",
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
        home_folders = [Path(env["MV2_HOME"]) / "bin"] if env.get("MV2_HOME") else []
        return find_programs(("mpirun_rsh",), env, *home_folders, interpreter_folder)

    def version(self, executable: Path) -> str | None:
        """Return ``mvapich2-2.3.7`` from ``mpirun_rsh -v``; None for another program."""
        match = re.search(
            r"^Version: (mvapich2?-\S.*)$", capture_stdout(executable, "-v"), re.MULTILINE
        )
        return match[1].strip() if match else None

    def hostfile(self, placement: Sequence[RankBlock]) -> str | None:
        """Return ``HOST:N[:HCA]`` lines; without a placement, this machine.

        Raises:
            UsageError: A host is an IPv6 address or a number.
        """
        if not placement:
            return f"{_read_hostname()}\n"
        return "".join(map(_format_host_line, placement))

    def command(self, executable: Path, job: JobSpec, env: Mapping[str, str]) -> Command:
        """Return mpirun_rsh's argv and environment.

        Raises:
            UsageError: The program, the working folder or a path has a name that it cannot handle,
                or an option breaks its quoting.
        """
        _check_paths(job, _find_working_folder(env))
        variables = _build_rank_variables(executable, job, env)
        _check_quoting(job, {**env, **variables})
        argv = [str(executable), "--export-all", "-np", str(job.np), *job.settings.args]
        argv += ["-hostfile", str(job.hostfile)]
        argv += [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
        # a shell line has each argument between '...', so that only ' needs escaping
        argv += [arg.replace("'", "'\\''") for arg in job.program]
        # --export-all overrides the variables in argv, and LD_PRELOAD here would load into every
        # helper process
        kept_env = {name: value for name, value in env.items() if name not in variables}
        kept_env |= {name: variables[name] for name in _SHARED_VARIABLES if name in variables}
        # mpirun_rsh sends its environment over a connection. Variables in argv are also arguments
        # of ssh, which every user can read.
        kept_env |= job.hidden_env
        full_env = {**_NO_FASTSSH, **kept_env, **_build_timeout_variables(job), **job.private_env}
        return Command(tuple(argv), full_env)

    def parse_output(self, output: str) -> LauncherReport:
        """Return the end of a job that its output reports; its exit code shows nothing."""
        return parse_messages(ENDS, FAILURES, output, losses=SSH_LOSSES)


def _format_host_line(block: RankBlock) -> str:
    # to mpirun_rsh, localhost is another machine that it reaches by ssh
    host = _read_hostname() if block.host in ("localhost", "127.0.0.1", "::1") else block.host
    if ":" in host:
        raise UsageError(f"mpirun_rsh takes no IPv6 address: give the name of {host}")
    if host.isdigit():
        raise UsageError(f"mpirun_rsh takes no host name of digits only: give another of {host}")
    return f"{host}:{block.count}{f':{block.hca}' if block.hca else ''}\n"


def _read_hostname() -> str:
    return socket.gethostname()


def _find_working_folder(env: Mapping[str, str]) -> str:
    # mpirun_rsh changes to the logical folder, with links kept
    logical_folder = env.get("PWD", "")
    return (
        logical_folder
        if logical_folder and Path(logical_folder).resolve() == Path.cwd()
        else os.getcwd()
    )


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
    if len(str(job.hostfile)) > _MAX_PATH_LENGTH:
        raise UsageError(
            f"mpirun_rsh cannot read a hostfile with a path as long as {job.hostfile}: "
            f"choose a shorter --home"
        )


def _check_quoting(job: JobSpec, env: Mapping[str, str]) -> None:
    """Reject options that mpirun_rsh passes to a shell with wrong quotes.

    Raises:
        UsageError: The message names the option.
    """
    library_path = env.get("LD_LIBRARY_PATH", "")
    if library_path and not _SAFE_FOLDER.fullmatch(library_path):
        raise UsageError(
            f"mpirun_rsh passes LD_LIBRARY_PATH on unquoted, and {library_path!r} would break "
            f"there: give it folders whose paths have only letters, digits and ._-/"
        )
    for option in job.settings.args:
        option_name = option.lstrip("-").partition("=")[0]
        # getopt_long_only accepts one dash or two, and each unique prefix of a name
        if (
            option.startswith("-")
            and option_name
            and (option_name == "sg" or "fastssh".startswith(option_name))
        ):
            raise UsageError(
                f"launch.args: with {option} mpirun_rsh has shells read values and arguments "
                f"twice, which breaks or runs them: leave it out"
            )


def _build_rank_variables(executable: Path, job: JobSpec, env: Mapping[str, str]) -> dict[str, str]:
    prefix = "MVP" if job.library == "mvapich" else "MV2"
    variables = {f"{prefix}_{name}": value for name, value in _build_binding_variables(job).items()}
    variables["PYTHONNOUSERSITE"] = "true"
    use_cuda = str(int(_takes_gpu_memory(executable)))
    variables |= {f"{prefix}_USE_CUDA": use_cuda, f"{prefix}_USE_GDRCOPY": "0"}
    mpi_preload = Path(env.get("MV2_HOME") or "/nonexistent") / "lib" / "libmpi.so"
    if mpi_preload.is_file():
        variables["LD_PRELOAD"] = str(mpi_preload)
    variables |= {name: value for name, value in job.rank_env.items() if name not in job.hidden_env}
    if job.settings.allocator == "tcmalloc" and mpi_preload.is_file():
        variables["LD_PRELOAD"] = f"{mpi_preload}:{job.rank_env['LD_PRELOAD']}"
    return {name: value for name, value in variables.items() if name not in _LAUNCHER_VARIABLES}


def _takes_gpu_memory(executable: Path) -> bool:
    """Whether this machine has a GPU and mpirun_rsh's MVAPICH2 accepts its memory.

    On a login node without a GPU, users set ``MV2_USE_CUDA=1`` in launch.env.
    """
    if not NVIDIA_DEVICE.exists():
        return False
    build_text = capture_stdout(executable.with_name("mpiname"), "-a")
    return is_built_with_cuda(build_text) and _MRAIL_DEVICE.search(build_text) is not None


def _build_binding_variables(job: JobSpec) -> dict[str, str]:
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


def _build_timeout_variables(job: JobSpec) -> dict[str, str]:
    timeout_s = str(min(_MAX_TIMEOUT_S, max(1, math.ceil(job.settings.start_timeout))))
    name = "MVP_MPIRUN_TIMEOUT" if job.library == "mvapich" else "MV2_MPIRUN_TIMEOUT"
    configured_timeouts = {
        variable: setting
        for variable, setting in job.settings.env.items()
        if variable in _LAUNCHER_VARIABLES
    }
    return {name: timeout_s} | configured_timeouts


LAUNCHER = MpirunRsh()
