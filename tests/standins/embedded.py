"""Starts the ranks of a stand-in launcher with the Open MPI beside their interpreter.

Each rank is an exec of a shim, this file run as a program, which gives the rank the environment
that the real launcher would give it and tells of its end in the real launcher's words.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO, Any

RUNTIME = ("OMPI_", "OPAL_", "PMIX_", "PRTE_", "HWLOC_")
HIDDEN = "OMPI_COMM_WORLD"
PR_SET_PDEATHSIG = 1


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
    ranks: list[dict[str, Any]], texts: dict[str, str], blocked: tuple[int, ...] = ()
) -> subprocess.Popen[bytes]:
    """Start ranks ({argv, env, host}); ``texts`` has exited, killed and missing, for stderr."""
    folder = Path(tempfile.mkdtemp(prefix="standin-"))
    spec = folder / "spec.json"
    text = json.dumps({"ranks": ranks, "texts": texts, "blocked": [int(s) for s in blocked]})
    spec.write_text(text, errors="surrogateescape")
    command = [mpirun(ranks[0]), "-n", str(len(ranks)), "--oversubscribe", "--bind-to", "none"]
    env = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    if os.geteuid() == 0:
        env |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    process = subprocess.Popen(
        [*command, sys.executable, __file__, str(spec)],
        env=env,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    threading.Thread(target=_pass_on, args=(process.stderr, folder), daemon=False).start()
    return process


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


def _pass_on(stream: IO[bytes] | None, folder: Path) -> None:
    """Copy stderr, without the boxes in which Open MPI speaks of itself."""
    box: list[bytes] = []
    for line in stream or ():
        if re.fullmatch(rb"\s*-{50,}\s*", line):
            if box and re.search(rb"prterun|MPI_ABORT", b"".join(box)):
                line = b""
            elif not box:
                box = [line]
                continue
            line, box = b"".join(box) + line if line else b"", []
        elif box:
            box.append(line)
            continue
        sys.stderr.buffer.write(line)
        sys.stderr.buffer.flush()
    sys.stderr.buffer.write(b"".join(box))
    sys.stderr.buffer.flush()
    shutil.rmtree(folder, ignore_errors=True)


def _rank(spec_path: str) -> int:
    spec = json.loads(Path(spec_path).read_text())
    number = int(os.environ["OMPI_COMM_WORLD_RANK"])
    mine = spec["ranks"][number]
    runtime = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(RUNTIME) and not name.startswith(HIDDEN)
    }
    pid = os.fork()
    if pid == 0:
        _become(mine["argv"], {**runtime, **mine["env"]}, spec)
    _, wait = os.waitpid(pid, 0)
    words = {"rank": number, "pid": pid, "host": mine["host"], "program": mine["argv"][0]}
    if os.WIFSIGNALED(wait):
        _say(spec["texts"]["killed"], words, signal=os.WTERMSIG(wait))
        return 128 + os.WTERMSIG(wait)
    status = os.WEXITSTATUS(wait)
    if status:
        _say(spec["texts"]["exited"], words, status=status)
    return status


def _become(argv: list[str], env: dict[str, str], spec: dict[str, Any]) -> None:
    # mpirun kills the shim and its group; a rank with blocked signals must go with its shim
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_BLOCK, spec["blocked"])
    try:
        os.execvpe(argv[0], argv, env)
    except OSError as error:
        words = {"program": argv[0], "why": error.strerror, "errno": error.errno}
        _say(spec["texts"]["missing"], words)
        os._exit(1)


def _say(text: str, words: dict[str, Any], **more: Any) -> None:
    name = signal.strsignal(more["signal"]) if "signal" in more else ""
    if text:
        line = text.format(**words, **more, own=own_name(), signal_name=name)
        os.write(2, line.encode() + b"\n")


if __name__ == "__main__":
    sys.exit(_rank(sys.argv[1]))
