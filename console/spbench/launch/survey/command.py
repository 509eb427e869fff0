"""The survey's command for the shell of a host, and its program."""

from __future__ import annotations

import os
import shlex
from functools import cache
from pathlib import Path

from spbench.launch.mpi_probe import PROBE
from spbench.launch.program import find_interpreter, wrap_argv
from spbench.suites.settings import LaunchSettings
from spbench_core import host_facts

MARK = "spbench-host "
"""Precedes each answer, because login shells print banners."""
PROBE_TIMEOUT = 5
"""Seconds after which the probe of the interpreter's MPI library is ended."""

# The program comes on stdin, which stays open after it for requests of the time.
_READ_PROGRAM = "import sys; exec(sys.stdin.buffer.read(int(sys.stdin.buffer.readline())))"
_RUN_OR_PYTHON3 = (
    'command -v "$1" >/dev/null 2>&1 && exec "$1" -c "$2"; exec python3 -c "$2" instead'
)
# Variables come on stdin, because all users can read arguments, here and on the host. dd reads one
# byte at a time, so that it does not consume the program after them.
_EXPORT_VARIABLES = 'eval "$(dd bs=1 count="$1" 2>/dev/null)"; shift; exec "$@"'
# Python 3.6 must be able to run this, because python3 may be that old.
_ANSWER_CODE = """
import json, platform, subprocess, sys, time

def send(fields):
    print("\\n" + MARK + json.dumps(fields), flush=True)

def run_probe():
    try:
        process = subprocess.run(
            [sys.executable, "-c", PROBE],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=TIMEOUT,
        )
    except subprocess.TimeoutExpired:
        return {"status": None, "stdout": "", "stderr": ""}
    texts = {"stdout": process.stdout, "stderr": process.stderr}
    ends = {name: text[-65536:].decode("utf-8", "replace") for name, text in texts.items()}
    return {"status": process.returncode, **ends}

answer = collect_facts()
answer["folder"] = inspect_folder(FOLDER)
answer["python"] = platform.python_version()
answer["interpreter"] = sys.executable
answer["probe"] = None if "instead" in sys.argv else run_probe()
send(answer)
while sys.stdin.buffer.readline():
    send({"clock": time.time()})
"""


def find_survey_interpreter(settings: LaunchSettings) -> str:
    """Return the ranks' interpreter, independent of the shell's folder."""
    python = find_interpreter(settings)
    return os.path.abspath(python) if "/" in python else python


def build_survey_command(settings: LaunchSettings) -> tuple[str, ...]:
    """Return the argv that runs the survey's program in the ranks' interpreter.

    If that is missing, ``python3`` runs it. It runs like in a job: after setup lines, in the
    container, and with the settings' environment.

    Raises:
        UsageError: ``container`` cannot be split into words.
    """
    run_or_python3 = (
        "sh",
        "-c",
        _RUN_OR_PYTHON3,
        "spbench-survey",
        find_survey_interpreter(settings),
        _READ_PROGRAM,
    )
    export_bytes = len(_format_exports(settings))
    export_command = (
        ("sh", "-c", _EXPORT_VARIABLES, "spbench-variables", str(export_bytes))
        if export_bytes
        else ()
    )
    return (*export_command, *wrap_argv(settings, run_or_python3))


def _format_exports(settings: LaunchSettings) -> bytes:
    variables = settings.env.items()
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables).encode()


def build_survey_input(settings: LaunchSettings) -> bytes:
    """Return the stdin of the command that `build_survey_command` returns.

    It contains the settings' variables, a line with a length, and a program with that number of
    bytes. The program answers with a line of JSON after `MARK`. Then it answers each further line
    with one that has ``clock``, in seconds since 1970. It ends at the end of its stdin.
    """
    return _format_exports(settings) + _build_program(os.getcwd(), host_facts.__file__)


@cache
def _build_program(folder: str, facts_path: str) -> bytes:
    constants = (
        f"MARK, PROBE, TIMEOUT = {MARK!r}, {PROBE!r}, {PROBE_TIMEOUT}\nFOLDER = {folder!r}\n"
    )
    program_text = Path(facts_path).read_text(encoding="utf-8") + constants + _ANSWER_CODE
    program_bytes = program_text.encode()
    return b"%d\n%s" % (len(program_bytes), program_bytes)
