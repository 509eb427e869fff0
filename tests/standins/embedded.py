"""Starts the ranks of a stand-in launcher with an embedded Open MPI.

Each rank is an exec of a shim, which is this file run as a program. The shim gives the rank the
environment that the real launcher would give it, and reports its end like the real launcher.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

TOLERANT = ("--with-ft", "ulfm")
"""With these options, a rank's death does not end the others: their MPI calls fail."""
LATE = "STANDIN_LATE"
"""Seconds by which the launcher reports a kill late. Until then, the rank's connection to the
console stays open, while the other ranks already have their errors. Default: 0.1 to 1 s for half of
the ranks."""
SHIM_PREFIXES = (b"[", b"srun: ", b"=", b"YOUR APPLICATION")
PIDFD_GETFD = 438
RUNTIME = ("OMPI_", "OPAL_", "PMIX_", "PRTE_", "HWLOC_")
HIDDEN = "OMPI_COMM_WORLD"
PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36
CLONE_NEWUTS = 0x04000000


def fail(text: str, status: int) -> None:
    """End the launcher with a message."""
    print(text, file=sys.stderr, flush=True)
    raise SystemExit(status)


def get_host_name() -> str:
    """Return the name of this host."""
    return socket.gethostname()


def is_here(host: str) -> bool:
    """Return whether a host is this machine: its name, localhost or 127.*."""
    return host in (get_host_name(), "localhost") or host.startswith("127.")


def assign_local_ranks(hosts: list[str]) -> list[tuple[int, int, int]]:
    """Return local rank, local size and node number of each rank."""
    nodes = list(dict.fromkeys(hosts))
    counts: dict[str, int] = {}
    assignments = []
    for host in hosts:
        assignments.append((counts.get(host, 0), hosts.count(host), nodes.index(host)))
        counts[host] = counts.get(host, 0) + 1
    return assignments


def run_ranks(
    ranks: list[dict[str, Any]],
    texts: dict[str, str],
    blocked: tuple[int, ...] = (),
    tolerant: bool = False,
    helper: str = "",
) -> Ranks:
    """Start ranks.

    Args:
        ranks: The ``argv``, ``env``, ``host`` and ``node`` of each rank.
        texts: The messages on stderr for ranks that have ``exited``, were ``killed`` or are
            ``missing``.
        blocked: The signals that ranks block.
        tolerant: Whether the launcher, not Open MPI, ends the others when a rank has died.
        helper: The name of a process that is the parent of each rank. If it is killed, the rank
            continues.
    """
    folder = Path(tempfile.mkdtemp(prefix="standin-"))
    spec_path = folder / "spec.json"
    text = json.dumps(
        {
            "ranks": ranks,
            "texts": texts,
            "blocked": [int(number) for number in blocked],
            "tolerant": tolerant,
            "helper": helper,
        }
    )
    spec_path.write_text(text, errors="surrogateescape")
    command = [find_mpirun(ranks[0]), *(TOLERANT if tolerant else ()), "-n", str(len(ranks))]
    command += ["--oversubscribe", "--bind-to", "none"]
    env = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    if os.geteuid() == 0:
        env |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    env["PRTE_MCA_prte_local_tmpdir_base"] = str(folder)
    process = subprocess.Popen(
        [*command, sys.executable, __file__, str(spec_path)],
        env=env,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    copying = threading.Thread(target=_copy_stderr, args=(process.stderr,))
    copying.start()
    threading.Thread(target=_report_late_kills, args=(process, folder, copying)).start()
    return Ranks(process, folder)


@dataclass(frozen=True)
class Ranks:
    """Started ranks, and the folder in which their shims report pids and ends."""

    mpirun: subprocess.Popen[bytes]
    folder: Path

    @property
    def has_death(self) -> bool:
        return any(self.folder.glob("died-*"))

    def signal(self, number: int, spared: Collection[int] = ()) -> None:
        """Send a signal to each rank that has not ended and is not spared."""
        for path in self.folder.glob("pid-*"):
            if int(path.name.removeprefix("pid-")) in spared:
                continue
            if not path.with_name(path.name.replace("pid-", "ended-")).exists():
                with suppress(ProcessLookupError, ValueError):
                    os.kill(int(path.read_text()), number)


def find_mpirun(rank: dict[str, Any]) -> str:
    """Return the mpirun next to an argument of the rank, or the one in PATH."""
    for argument in rank["argv"]:
        path = Path(argument).parent / "mpirun"
        if argument.startswith("/") and len(argument) < 4096 and os.access(path, os.X_OK):
            return str(path)
    program = shutil.which("mpirun")
    if program is None:
        fail("stand-in: no Open MPI next to the program or in PATH", 1)
    return str(program)


def _report_late_kills(
    process: subprocess.Popen[bytes], folder: Path, copying: threading.Thread
) -> None:
    """Write the lines of `_report_kill_late` to stderr, until all ranks have ended."""
    ended = False
    while not ended:
        ended = process.poll() is not None and not any(folder.glob("late-*"))
        for path in sorted(folder.glob("reported-*")):
            _print_bytes(path.read_bytes())
            path.unlink()
        time.sleep(0.02)
    copying.join()
    shutil.rmtree(folder, ignore_errors=True)


def _copy_stderr(stream: IO[bytes] | None) -> None:
    """Copy stderr, without the boxes in which Open MPI describes its own end."""
    box: list[bytes] = []
    for line in stream or ():
        if line.startswith(SHIM_PREFIXES):
            _print_bytes(line)  # from a shim, between the lines of a box
        elif re.fullmatch(rb"\s*-{50,}\s*", line):
            box.append(line)
            if len(box) > 1:
                _print_bytes(_translate_box(b"".join(box)))
                box = []
        elif box:
            box.append(line)
        else:
            _print_bytes(line)
    _print_bytes(b"".join(box))


def _print_bytes(text: bytes) -> None:
    sys.stderr.buffer.write(text)
    sys.stderr.buffer.flush()


def _translate_box(text: bytes) -> bytes:
    """Return MPICH's text for an abort, and an empty one for other boxes of Open MPI."""
    aborted = re.search(rb"MPI_ABORT was invoked on rank (\d+)[^\0]*?Errorcode: (-?\d+)", text)
    if aborted:
        message = "application called MPI_Abort(MPI_COMM_WORLD, {1}) - process {0}\n"
        return message.format(*(group.decode() for group in aborted.groups())).encode()
    return b"" if re.search(rb"prterun|MPI_ABORT", text) else text


def _run_shim(spec_path: str) -> int:
    spec = json.loads(Path(spec_path).read_text())
    number = int(os.environ["OMPI_COMM_WORLD_RANK"])
    rank_spec = spec["ranks"][number]
    runtime = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(RUNTIME) and not name.startswith(HIDDEN)
    }
    env = {**runtime, **rank_spec["env"]}
    if spec["helper"]:
        pid = _start_by_helper(rank_spec, env, spec)
    else:
        pid = os.fork()
        if pid == 0:
            _exec_rank(rank_spec["argv"], env, {**spec, "node": rank_spec["node"]})
    folder = Path(spec_path).parent
    (folder / f"pid-{number}").write_text(str(pid))
    seconds = _draw_report_delay() if spec["tolerant"] else 0.0
    wait = _wait_for_end(pid, rank_spec["env"], copied=seconds > 0)
    (folder / f"ended-{number}").touch()
    first = not any(folder.glob("died-*"))
    if wait:
        (folder / f"died-{number}").touch()
    fields = {"rank": number, "pid": pid, "program": rank_spec["argv"][0]}
    fields |= {"host": rank_spec["host"], "node": rank_spec["node"]}
    if not os.WIFSIGNALED(wait):
        if wait:
            _print_text(spec["texts"]["exited"], fields, status=os.WEXITSTATUS(wait))
        return os.WEXITSTATUS(wait)
    line = _format_text(spec["texts"]["killed"], fields, signal=os.WTERMSIG(wait))
    if first and seconds:
        _report_kill_late(line, folder / f"late-{number}", seconds)
    else:
        os.write(2, line)
    if spec["tolerant"]:
        os.kill(os.getpid(), signal.SIGKILL)  # a status would end the whole job
    return 128 + os.WTERMSIG(wait)


def _start_by_helper(rank_spec: dict[str, Any], env: dict[str, str], spec: dict[str, Any]) -> int:
    """Start a rank as the child of a helper; return its pid.

    This process becomes the rank's parent when the helper ends, and can then wait for the rank.
    """
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    reading, writing = os.pipe()
    helper = os.fork()
    if helper == 0:
        prctl(PR_SET_NAME, spec["helper"].encode())
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        rank = os.fork()
        if rank == 0:
            os.closerange(reading, writing + 1)
            _name_host(rank_spec["host"])
            _exec_rank(rank_spec["argv"], env, {**spec, "node": rank_spec["node"]})
        signal.signal(signal.SIGTERM, lambda *_: os.kill(rank, signal.SIGKILL))
        os.write(writing, str(rank).encode())
        os.closerange(0, 3)
        os.waitid(os.P_PID, rank, os.WEXITED | os.WNOWAIT)
        os._exit(0)
    os.close(writing)
    rank = int(os.read(reading, 20))
    os.close(reading)

    def stop(*_: object) -> None:
        os.kill(rank, signal.SIGKILL)
        os._exit(128 + signal.SIGTERM)

    # The rank blocks SIGTERM and must not outlive this process.
    signal.signal(signal.SIGTERM, stop)
    return rank


def _name_host(host: str) -> None:
    """Set the rank's host name to the name of its node, if this user is allowed to."""
    if host == get_host_name():
        return
    libc = ctypes.CDLL(None)
    if libc.unshare(CLONE_NEWUTS) == 0:
        libc.sethostname(host.encode(), len(host.encode()))


def _report_kill_late(line: bytes, path: Path, seconds: float) -> None:
    """Report a death from a separate process.

    Ranks learn of the death by the end of this process. The launcher reads the report from a file,
    because mpirun may have closed the streams by then.
    """
    path.touch()
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()  # so that it does not end with the group of this process
        os.closerange(0, 3)
        os.write(writing, b".")
        time.sleep(seconds)
        path.write_bytes(line)
        path.rename(path.with_name(path.name.replace("late-", "reported-")))
        os._exit(0)
    os.read(reading, 1)


def _draw_report_delay() -> float:
    """Return the seconds until the console learns of a rank's death."""
    return float(os.environ.get(LATE, random.choice((0.0, random.uniform(0.1, 1.0)))))


def _wait_for_end(pid: int, env: dict[str, str], *, copied: bool) -> int:
    """Wait for a rank's end; a copy may keep its connection to the console open."""
    collectors = [address for address in env.get("SPBENCH_COLLECTOR", "").split(",") if address]
    is_missing = copied and bool(collectors)
    while is_missing:
        ended, wait = _wait_for_rank(pid, os.WNOHANG)
        if ended:
            return wait
        is_missing = _copy_connection(pid, collectors) is None
        time.sleep(0.02)
    return _wait_for_rank(pid, 0)[1]


def _wait_for_rank(pid: int, flags: int) -> tuple[int, int]:
    """Wait for a rank, which becomes a child of this process when its helper ends."""
    while True:
        ended, wait = os.waitpid(-1, flags)
        if ended in (0, pid):
            return ended, wait


def _copy_connection(pid: int, collectors: list[str]) -> int | None:
    """Return a copy of a process's connection to an address; None without one."""
    try:
        process = os.pidfd_open(pid)
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return None
    for name in names:
        copy = ctypes.CDLL(None).syscall(PIDFD_GETFD, process, int(name), 0)
        if copy >= 0 and _get_peer(copy) in collectors:
            os.close(process)
            return int(copy)
        if copy >= 0:
            os.close(copy)
    os.close(process)
    return None


def _get_peer(descriptor: int) -> str:
    if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
        return ""  # a copy of the end of a pipe would let its reader wait forever
    try:
        with socket.socket(fileno=os.dup(descriptor)) as copy:
            host, port = copy.getpeername()[:2]
    except (OSError, ValueError):
        return ""
    return f"{host}:{port}"


def _exec_rank(argv: list[str], env: dict[str, str], spec: dict[str, Any]) -> None:
    # mpirun kills the shim and its group. A rank with blocked signals must end with its shim; a
    # helper ends its rank itself.
    if not spec["helper"]:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_BLOCK, spec["blocked"])
    try:
        os.execvpe(argv[0], argv, env)
    except OSError as error:
        fields = {
            "node": spec["node"],
            "program": argv[0],
            "why": error.strerror,
            "errno": error.errno,
        }
        _print_text(spec["texts"]["missing"], fields)
        os._exit(1)


def _print_text(text: str, fields: dict[str, Any], **more: Any) -> None:
    os.write(2, _format_text(text, fields, **more))


def _format_text(text: str, fields: dict[str, Any], **more: Any) -> bytes:
    name = signal.strsignal(more["signal"]) if "signal" in more else ""
    line = text.format(**fields, **more, own=get_host_name(), signal_name=name)
    return line.encode() + b"\n" if text else b""


if __name__ == "__main__":
    sys.exit(_run_shim(sys.argv[1]))
