"""The question to a host: a command for its shell, and the program that the command takes in."""

from __future__ import annotations

import os
import shlex
from functools import cache
from pathlib import Path

from spbench.launch.mpi_probe import PROBE
from spbench.launch.program import interpreter, wrapped
from spbench.suites.settings import LaunchSettings
from spbench_core import host_facts

MARK = "spbench-host "
"""Stands before each answer: login shells print banners."""
PROBE_PATIENCE = 5
"""Seconds that the interpreter has to tell its MPI library."""

# the program comes on stdin, which stays open behind it for the question of the time
_TAKE_IN = "import sys; exec(sys.stdin.buffer.read(int(sys.stdin.buffer.readline())))"
_EITHER = 'command -v "$1" >/dev/null 2>&1 && exec "$1" -c "$2"; exec python3 -c "$2" instead'
# Variables come on stdin: arguments are shown to everybody, here and on the host. dd reads one byte
# at a time, so that it leaves the program behind them.
_EXPORT = 'eval "$(dd bs=1 count="$1" 2>/dev/null)"; shift; exec "$@"'
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

answer = collect_facts()
answer["folder"] = inspect_folder(FOLDER)
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
    size = len(_exports(settings))
    exporting = ("sh", "-c", _EXPORT, "spbench-variables", str(size)) if size else ()
    return (*exporting, *wrapped(settings, either))


def _exports(settings: LaunchSettings) -> bytes:
    pairs = settings.env.items()
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in pairs).encode()


def program(settings: LaunchSettings) -> bytes:
    """Return what goes to the stdin of the command that `question` returns.

    These are the settings' variables, a line with a length, and that many bytes of a program.
    It answers with a line of JSON behind `MARK`, then each further line with one that has
    ``clock``, in seconds since 1970. It ends where its stdin does.
    """
    return _exports(settings) + _program(os.getcwd(), host_facts.__file__)


@cache
def _program(folder: str, facts: str) -> bytes:
    given = f"MARK, PROBE, PATIENCE = {MARK!r}, {PROBE!r}, {PROBE_PATIENCE}\nFOLDER = {folder!r}\n"
    text = Path(facts).read_text(encoding="utf-8") + given + _ANSWER
    encoded = text.encode()
    return b"%d\n%s" % (len(encoded), encoded)
