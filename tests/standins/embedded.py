"""Starts the ranks of a stand-in launcher with the Open MPI beside their interpreter.

Each rank is an exec of a shim, this file run as a program, which gives the rank the environment
that the real launcher would give it and tells of its end in the real launcher's words.
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
"""A rank's death does not end the others, whose MPI calls fail with an error."""
LATE = "STANDIN_LATE"
"""Seconds by which a kill is told late, while the connection to the console still seems to stand
and the others have their errors already; without it 0.1 to 1 s for half of the ranks."""
OWN_WORDS = (b"[", b"srun: ", b"=", b"YOUR APPLICATION")
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


def own_name() -> str:
    return socket.gethostname()


def is_here(host: str) -> bool:
    """Say whether the stand-in can play this host: own name, localhost, 127.*."""
    return host in (own_name(), "localhost") or host.startswith("127.")


def local_places(hosts: list[str]) -> list[tuple[int, int, int]]:
    """Return (local rank, local size, node number) of each rank, given its host."""
    nodes = list(dict.fromkeys(hosts))
    seen: dict[str, int] = {}
    places = []
    for host in hosts:
        places.append((seen.get(host, 0), hosts.count(host), nodes.index(host)))
        seen[host] = seen.get(host, 0) + 1
    return places


def run_ranks(
    ranks: list[dict[str, Any]],
    texts: dict[str, str],
    blocked: tuple[int, ...] = (),
    tolerant: bool = False,
    helper: str = "",
) -> Ranks:
    """Start ranks ({argv, env, host, node}); ``texts`` has exited, killed and missing, for stderr.

    Tolerant, the launcher itself ends the others when a rank has died. With a ``helper`` each
    rank's parent is a process of this name. If it is killed, nobody notices and the rank runs on.
    """
    folder = Path(tempfile.mkdtemp(prefix="standin-"))
    spec = folder / "spec.json"
    text = json.dumps(
        {
            "ranks": ranks,
            "texts": texts,
            "blocked": [int(s) for s in blocked],
            "tolerant": tolerant,
            "helper": helper,
        }
    )
    spec.write_text(text, errors="surrogateescape")
    command = [mpirun(ranks[0]), *(TOLERANT if tolerant else ()), "-n", str(len(ranks))]
    command += ["--oversubscribe", "--bind-to", "none"]
    env = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    if os.geteuid() == 0:
        env |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    env["PRTE_MCA_prte_local_tmpdir_base"] = str(folder)
    process = subprocess.Popen(
        [*command, sys.executable, __file__, str(spec)],
        env=env,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    passing = threading.Thread(target=_pass_on, args=(process.stderr,))
    passing.start()
    threading.Thread(target=_tell_what_came_late, args=(process, folder, passing)).start()
    return Ranks(process, folder)


@dataclass(frozen=True)
class Ranks:
    """The ranks under way, and the folder in which their shims tell pids and ends."""

    mpirun: subprocess.Popen[bytes]
    folder: Path

    @property
    def one_died(self) -> bool:
        return any(self.folder.glob("died-*"))

    def signal(self, number: int, spared: Collection[int] = ()) -> None:
        """Send a signal to each rank that is still there and not spared."""
        for path in self.folder.glob("pid-*"):
            if int(path.name.removeprefix("pid-")) in spared:
                continue
            if not path.with_name(path.name.replace("pid-", "ended-")).exists():
                with suppress(ProcessLookupError, ValueError):
                    os.kill(int(path.read_text()), number)


def mpirun(rank: dict[str, Any]) -> str:
    """Return the mpirun beside the first of the rank's words that has one, else PATH's."""
    for word in rank["argv"]:
        beside = Path(word).parent / "mpirun"
        if word.startswith("/") and len(word) < 4096 and os.access(beside, os.X_OK):
            return str(beside)
    found = shutil.which("mpirun")
    if found is None:
        fail("stand-in: no Open MPI beside the program or in PATH", 1)
    return str(found)


def _tell_what_came_late(
    process: subprocess.Popen[bytes], folder: Path, passing: threading.Thread
) -> None:
    """Write on stderr what `_tell_late` leaves in files, until all has ended."""
    ended = False
    while not ended:
        ended = process.poll() is not None and not any(folder.glob("late-*"))
        for path in sorted(folder.glob("told-*")):
            _show(path.read_bytes())
            path.unlink()
        time.sleep(0.02)
    passing.join()
    shutil.rmtree(folder, ignore_errors=True)


def _pass_on(stream: IO[bytes] | None) -> None:
    """Copy stderr, without the boxes in which Open MPI speaks of itself."""
    box: list[bytes] = []
    for line in stream or ():
        if line.startswith(OWN_WORDS):
            _show(line)  # a shim's, between the lines of a box
        elif re.fullmatch(rb"\s*-{50,}\s*", line):
            box.append(line)
            if len(box) > 1:
                _show(_unboxed(b"".join(box)))
                box = []
        elif box:
            box.append(line)
        else:
            _show(line)
    _show(b"".join(box))


def _show(text: bytes) -> None:
    sys.stderr.buffer.write(text)
    sys.stderr.buffer.flush()


def _unboxed(text: bytes) -> bytes:
    """Return what MPICH and its kin write of an abort, nothing of what Open MPI says of itself."""
    aborted = re.search(rb"MPI_ABORT was invoked on rank (\d+)[^\0]*?Errorcode: (-?\d+)", text)
    if aborted:
        words = "application called MPI_Abort(MPI_COMM_WORLD, {1}) - process {0}\n"
        return words.format(*(group.decode() for group in aborted.groups())).encode()
    return b"" if re.search(rb"prterun|MPI_ABORT", text) else text


def _rank(spec_path: str) -> int:
    spec = json.loads(Path(spec_path).read_text())
    number = int(os.environ["OMPI_COMM_WORLD_RANK"])
    mine = spec["ranks"][number]
    runtime = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(RUNTIME) and not name.startswith(HIDDEN)
    }
    env = {**runtime, **mine["env"]}
    if spec["helper"]:
        pid = _start_by_helper(mine, env, spec)
    else:
        pid = os.fork()
        if pid == 0:
            _become(mine["argv"], env, {**spec, "node": mine["node"]})
    folder = Path(spec_path).parent
    (folder / f"pid-{number}").write_text(str(pid))
    seconds = _late() if spec["tolerant"] else 0.0
    wait = _end_of(pid, mine["env"], copied=seconds > 0)
    (folder / f"ended-{number}").touch()
    first = not any(folder.glob("died-*"))
    if wait:
        (folder / f"died-{number}").touch()
    words = {"rank": number, "pid": pid, "program": mine["argv"][0]}
    words |= {"host": mine["host"], "node": mine["node"]}
    if not os.WIFSIGNALED(wait):
        if wait:
            _say(spec["texts"]["exited"], words, status=os.WEXITSTATUS(wait))
        return os.WEXITSTATUS(wait)
    line = _line(spec["texts"]["killed"], words, signal=os.WTERMSIG(wait))
    if first and seconds:
        _tell_late(line, folder / f"late-{number}", seconds)
    else:
        os.write(2, line)
    if spec["tolerant"]:
        os.kill(os.getpid(), signal.SIGKILL)  # a status would end the whole job
    return 128 + os.WTERMSIG(wait)


def _start_by_helper(mine: dict[str, Any], env: dict[str, str], spec: dict[str, Any]) -> int:
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
            _name_host(mine["host"])
            _become(mine["argv"], env, {**spec, "node": mine["node"]})
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

    # the rank has SIGTERM blocked and must not outlive this process
    signal.signal(signal.SIGTERM, stop)
    return rank


def _name_host(host: str) -> None:
    """Give the rank its node's name as the name of its host, if this user may."""
    if host == own_name():
        return
    libc = ctypes.CDLL(None)
    if libc.unshare(CLONE_NEWUTS) == 0:
        libc.sethostname(host.encode(), len(host.encode()))


def _tell_late(line: bytes, path: Path, seconds: float) -> None:
    """Tell of a death in a process of its own: others learn of it by the end of this one.

    The launcher reads it from a file, for mpirun may have closed the streams by then.
    """
    path.touch()
    away, gone = os.pipe()
    if os.fork() == 0:
        os.setsid()  # so that it is not ended with this one's group
        os.closerange(0, 3)
        os.write(gone, b".")
        time.sleep(seconds)
        path.write_bytes(line)
        path.rename(path.with_name(path.name.replace("late-", "told-")))
        os._exit(0)
    os.read(away, 1)


def _late() -> float:
    """Return the seconds by which the launcher and the console learn late of a rank's death."""
    return float(os.environ.get(LATE, random.choice((0.0, random.uniform(0.1, 1.0)))))


def _end_of(pid: int, env: dict[str, str], *, copied: bool) -> int:
    """Wait for a rank's end, holding a copy of its connection to the console."""
    collectors = [address for address in env.get("SPBENCH_COLLECTOR", "").split(",") if address]
    missing = copied and bool(collectors)
    while missing:
        ended, wait = _wait_for(pid, os.WNOHANG)
        if ended:
            return wait
        missing = _connection(pid, collectors) is None
        time.sleep(0.02)
    return _wait_for(pid, 0)[1]


def _wait_for(pid: int, flags: int) -> tuple[int, int]:
    """Wait for a rank, which is this process's child as soon as its helper, if any, has ended."""
    while True:
        ended, wait = os.waitpid(-1, flags)
        if ended in (0, pid):
            return ended, wait


def _connection(pid: int, collectors: list[str]) -> int | None:
    """Return a copy of a process's connection to one of the addresses, if it has one yet."""
    try:
        process = os.pidfd_open(pid)
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return None
    for name in names:
        copy = ctypes.CDLL(None).syscall(PIDFD_GETFD, process, int(name), 0)
        if copy >= 0 and _peer(copy) in collectors:
            os.close(process)
            return int(copy)
        if copy >= 0:
            os.close(copy)
    os.close(process)
    return None


def _peer(descriptor: int) -> str:
    if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
        return ""  # a copy of a pipe's end, were it kept, would let its reader wait for ever
    try:
        with socket.socket(fileno=os.dup(descriptor)) as copy:
            host, port = copy.getpeername()[:2]
    except (OSError, ValueError):
        return ""
    return f"{host}:{port}"


def _become(argv: list[str], env: dict[str, str], spec: dict[str, Any]) -> None:
    # mpirun kills the shim and its group; a rank with blocked signals must go with its shim
    # (its helper, if it has one, sees to that).
    if not spec["helper"]:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_BLOCK, spec["blocked"])
    try:
        os.execvpe(argv[0], argv, env)
    except OSError as error:
        words = {
            "node": spec["node"],
            "program": argv[0],
            "why": error.strerror,
            "errno": error.errno,
        }
        _say(spec["texts"]["missing"], words)
        os._exit(1)


def _say(text: str, words: dict[str, Any], **more: Any) -> None:
    os.write(2, _line(text, words, **more))


def _line(text: str, words: dict[str, Any], **more: Any) -> bytes:
    name = signal.strsignal(more["signal"]) if "signal" in more else ""
    line = text.format(**words, **more, own=own_name(), signal_name=name)
    return line.encode() + b"\n" if text else b""


if __name__ == "__main__":
    sys.exit(_rank(sys.argv[1]))
