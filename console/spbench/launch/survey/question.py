"""The question to a host: a command for its shell, and the program that the command takes in."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from spbench.launch.mpi_probe import PROBE
from spbench.launch.program import interpreter, wrapped
from spbench.suites.settings import LaunchSettings
from spbench_core import host_facts
from spbench_core.credentials import holds_secret

MARK = "spbench-host "
"""Stands before each answer: login shells print banners."""
PROBE_PATIENCE = 5
"""Seconds that the interpreter has to tell its MPI library."""

# the program comes on stdin, which stays open behind it for the question of the time
_TAKE_IN = "import sys; exec(sys.stdin.buffer.read(int(sys.stdin.buffer.readline())))"
_EITHER = 'command -v "$1" >/dev/null 2>&1 && exec "$1" -c "$2"; exec python3 -c "$2" instead'
# words that Python 3.6 knows, for python3 may be that old
_ANSWER = """
import json, platform, subprocess, sys, time

def tell(fields):
    print("\\n" + MARK + json.dumps(fields), flush=True)

def probed():
    try:
        done = subprocess.run(
            [sys.executable, "-c", PROBE],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=PATIENCE,
        )
    except subprocess.TimeoutExpired:
        return {"status": None, "stdout": "", "stderr": ""}
    texts = {"stdout": done.stdout, "stderr": done.stderr}
    cut = {name: text[-65536:].decode("utf-8", "replace") for name, text in texts.items()}
    return {"status": done.returncode, **cut}

answer = facts()
answer["folder"] = folder(FOLDER)
answer["python"] = platform.python_version()
answer["interpreter"] = sys.executable
answer["probe"] = None if "instead" in sys.argv else probed()
tell(answer)
while sys.stdin.buffer.readline():
    tell({"clock": time.time()})
"""


def asked_interpreter(settings: LaunchSettings) -> str:
    """Return the ranks' interpreter as the hosts are to find it, wherever their shells stand."""
    python = interpreter(settings)
    return os.path.abspath(python) if "/" in python else python


def question(settings: LaunchSettings) -> tuple[str, ...]:
    """Return the argv that runs `program` in the ranks' interpreter, else in ``python3``.

    It runs as in a job: behind setup lines and container, with the settings' environment.

    Raises:
        UsageError: ``container`` cannot be split into words.
    """
    either = ("sh", "-c", _EITHER, "spbench-survey", asked_interpreter(settings), _TAKE_IN)
    # Other users of a host can read this command line, and the answers do not need credentials.
    pairs = [
        f"{name}={value}" for name, value in settings.env.items() if not holds_secret(name, value)
    ]
    return (*(("env", *pairs) if pairs else ()), *wrapped(settings, either))


def program() -> bytes:
    """Return what goes to the command's stdin: a line with a length, and that many bytes.

    It answers with a line of JSON behind `MARK`, then each further line with one that has
    ``clock``, in seconds since 1970. It ends where its stdin does.
    """
    return _program(os.getcwd(), host_facts.__file__)


@cache
def _program(folder: str, facts: str) -> bytes:
    given = f"MARK, PROBE, PATIENCE = {MARK!r}, {PROBE!r}, {PROBE_PATIENCE}\nFOLDER = {folder!r}\n"
    text = Path(facts).read_text(encoding="utf-8") + given + _ANSWER
    encoded = text.encode()
    return b"%d\n%s" % (len(encoded), encoded)
