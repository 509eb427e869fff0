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
from spbench.launch.launcher import Command, JobSpec, LauncherTraits, Placed, Said, signal_name
from spbench.launch.launchers.failures import (
    MPI_ABORT,
    SSH_FAILURES,
    SSH_LOSSES,
    end,
    failure,
    read,
)
from spbench.launch.launchers.search import output_of, search
from spbench_core.mpi_builds import is_built_with_cuda

NVIDIA_DEVICE = Path("/dev/nvidia0")
# read by mpirun_rsh itself, not by the ranks
_OWN = ("MV2_MPIRUN_TIMEOUT", "MVP_MPIRUN_TIMEOUT", "MPIEXEC_TIMEOUT")
# without them mpirun_rsh may not find its libraries and helpers: given alike in both places
_NEEDED = ("PATH", "LD_LIBRARY_PATH")
# else it takes -fastssh by itself from 800 hosts on, which breaks arguments and hides exit codes
_NO_FASTSSH = {"MV2_FASTSSH_THRESHOLD": str(2**31 - 1)}
_LONGEST_TIMEOUT = 1000
_LONGEST_PATH = 255
# ch3:mrail alone takes memory of a GPU, and only with CUDA in it; without, it ends in MPI_Init
_RAIL = re.compile(r"\bch3:mrail\b")
_SAFE_FOLDER = re.compile(r"[\w@%+=:,./-]+", re.ASCII)

# the name is the host's own; "from node X" of other messages can be another's
_SPAWN = r"(?:\[(?P<host>[^\s\]:]+):mpispawn_\d+\]\[\w+\] )?"
_RANK = _SPAWN + r"MPI process \(rank: (?P<rank>\d+), pid: \d+\) "
ENDS = (
    end(_RANK + r"terminated with signal (?P<signal>\d+)"),
    MPI_ABORT,
    end(_RANK + r"exited with status (?P<status>[1-9]\d*)"),
)
FAILURES = (
    failure(
        r"Timeout \[TIMEOUT = (?P<seconds>\d+) seconds\]",
        "mpirun_rsh ended the job after {seconds} s, its MPIEXEC_TIMEOUT",
        decisive=True,
    ),
    failure(
        r"\[signal_processor\] Caught signal (?P<number>\d+), killing job",
        lambda said: f"mpirun_rsh got {signal_name(int(said['number']))} and ended the job",
        decisive=True,
    ),
    failure(
        _SPAWN + r"Failed to execvp\(\) '(?P<program>[^']*)': (?P<why>[^\r\n(]+?) \(\d+\)",
    ),
    failure(
        # where it tells which rank, that says more
        r"\A(?![^\0]*MPI process \(rank: )[^\0]*"
        r"Unexpected End-Of-File on file descriptor \d+\. MPI process died\?",
        "a rank ended without MPI_Finalize",
        follows=True,
    ),
    *SSH_FAILURES,
    failure(
        r"Error in init phase, aborting! \((?P<up>\d+)/(?P<all>\d+) mpispawn connections\)",
        "{up} of {all} hosts started: check ssh to each host, that MVAPICH2 is installed there, "
        "and that the working folder exists there",
    ),
    failure(
        r"getaddrinfo \[(?P<host>[^\]\s]+):\d+\]",
        "mpirun_rsh cannot resolve {host}: it asks the resolver and not ssh's configuration",
    ),
    failure(
        r"mpirun_rsh: (?:unrecognized|ambiguous) option '(?P<word>[^']+)'",
        "mpirun_rsh does not know the option {word} of launch.args",
    ),
    failure(
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

    def candidates(self, env: Mapping[str, str], beside: Path) -> Sequence[Path]:
        """Return every ``mpirun_rsh`` in MV2_HOME, beside the interpreter and in PATH."""
        home = [Path(env["MV2_HOME"]) / "bin"] if env.get("MV2_HOME") else []
        return search(("mpirun_rsh",), env, *home, beside)

    def version(self, executable: Path) -> str | None:
        """Return ``mvapich2-2.3.7``, as ``mpirun_rsh -v`` says; None for another program."""
        match = re.search(r"^Version: (mvapich2?-\S.*)$", output_of(executable, "-v"), re.MULTILINE)
        return match[1].strip() if match else None

    def hostfile(self, placement: Sequence[Placed]) -> str | None:
        """Return ``HOST:N[:HCA]`` lines; without a placement, this machine.

        Raises:
            UsageError: A host is an IPv6 address or a number.
        """
        if not placement:
            return f"{_own_name()}\n"
        return "".join(map(_line, placement))

    def command(self, executable: Path, job: JobSpec, env: Mapping[str, str]) -> Command:
        """Return mpirun_rsh's argv and environment.

        Raises:
            UsageError: The program, the working folder or a path has a name that it cannot handle,
                or an option breaks its quoting.
        """
        _check(job, _folder(env))
        words = _words(executable, job, env)
        _check_quoting(job, {**env, **words})
        argv = [str(executable), "--export-all", "-np", str(job.np), *job.settings.args]
        argv += ["-hostfile", str(job.hostfile)]
        argv += [f"{name}={shlex.quote(value)}" for name, value in words.items()]
        # each argument ends between '...' in a shell line, where nothing else needs escaping
        argv += [word.replace("'", "'\\''") for word in job.program]
        # --export-all beats the words, and LD_PRELOAD here would load into every helper process
        kept = {name: value for name, value in env.items() if name not in words}
        kept |= {name: words[name] for name in _NEEDED if name in words}
        # it sends its environment over a connection, while words stand in the arguments of ssh too
        kept |= job.hidden_env
        return Command(tuple(argv), {**_NO_FASTSSH, **kept, **_timeouts(job), **job.private_env})

    def said(self, output: str) -> Said:
        """Return what mpirun_rsh tells of a job's end; its exit code tells nothing."""
        return read(ENDS, FAILURES, output, losses=SSH_LOSSES)


def _line(placed: Placed) -> str:
    # to mpirun_rsh, localhost is another machine, to be reached by ssh
    host = _own_name() if placed.host in ("localhost", "127.0.0.1", "::1") else placed.host
    if ":" in host:
        raise UsageError(f"mpirun_rsh takes no IPv6 address: give the name of {host}")
    if host.isdigit():
        raise UsageError(f"mpirun_rsh takes no host name of digits only: give another of {host}")
    return f"{host}:{placed.count}{f':{placed.hca}' if placed.hca else ''}\n"


def _own_name() -> str:
    return socket.gethostname()


def _folder(env: Mapping[str, str]) -> str:
    # mpirun_rsh goes to the logical folder, links kept
    logical = env.get("PWD", "")
    return logical if logical and Path(logical).resolve() == Path.cwd() else os.getcwd()


def _check(job: JobSpec, folder: str) -> None:
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
    """Refuse what mpirun_rsh writes into a shell line without quotes, or quotes twice.

    Raises:
        UsageError: naming it.
    """
    path = env.get("LD_LIBRARY_PATH", "")
    if path and not _SAFE_FOLDER.fullmatch(path):
        raise UsageError(
            f"mpirun_rsh passes LD_LIBRARY_PATH on unquoted, and {path!r} would break there: give "
            f"it folders whose paths have only letters, digits and ._-/"
        )
    for word in job.settings.args:
        name = word.lstrip("-").partition("=")[0]
        # getopt_long_only takes one dash or two, and each unique beginning of a name
        if word.startswith("-") and name and (name == "sg" or "fastssh".startswith(name)):
            raise UsageError(
                f"launch.args: with {word} mpirun_rsh has shells read values and arguments twice, "
                f"which breaks or runs them: leave it out"
            )


def _words(executable: Path, job: JobSpec, env: Mapping[str, str]) -> dict[str, str]:
    prefix = "MVP" if job.library == "mvapich" else "MV2"
    words = {f"{prefix}_{name}": value for name, value in _binding(job).items()}
    words["PYTHONNOUSERSITE"] = "true"
    cuda = str(int(_takes_gpu_memory(executable)))
    words |= {f"{prefix}_USE_CUDA": cuda, f"{prefix}_USE_GDRCOPY": "0"}
    preload = Path(env.get("MV2_HOME") or "/nonexistent") / "lib" / "libmpi.so"
    if preload.is_file():
        words["LD_PRELOAD"] = str(preload)
    words |= {name: value for name, value in job.rank_env.items() if name not in job.hidden_env}
    if job.settings.allocator == "tcmalloc" and preload.is_file():
        words["LD_PRELOAD"] = f"{preload}:{job.rank_env['LD_PRELOAD']}"
    return {name: value for name, value in words.items() if name not in _OWN}


def _takes_gpu_memory(executable: Path) -> bool:
    """Say whether this machine has a GPU, and the MVAPICH2 of this mpirun_rsh takes its memory.

    A login node without a GPU wants ``MV2_USE_CUDA=1`` in launch.env.
    """
    if not NVIDIA_DEVICE.exists():
        return False
    text = output_of(executable.with_name("mpiname"), "-a")
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
    own = {key: value for key, value in job.settings.env.items() if key in _OWN}
    return {name: seconds} | own


LAUNCHER = MpirunRsh()
