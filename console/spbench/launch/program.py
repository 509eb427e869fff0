"""The program of each rank: setup lines, container, interpreter and worker, as argv."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from spbench.launch.containers import container_prefix
from spbench.suites.case import Case
from spbench.suites.settings import Container, LaunchSettings

# an uncaught exception must end the whole job: `-m mpi4py` turns it into MPI_Abort
WORKER = ("-m", "mpi4py", "-m", "spbench_workers")
# starts no MPI: a program of the user's takes the rank's place
PROGRAM_WORKER = ("-m", "spbench_workers.program")


def interpreter(settings: LaunchSettings) -> str:
    """Return the ranks' Python; links are kept, for a venv is known by its own path.

    An image has its own in its PATH.
    """
    own = "python3" if isinstance(settings.container, Container) else sys.executable
    return settings.python or own


def worker_program(settings: LaunchSettings, worker: Sequence[str] = WORKER) -> tuple[str, ...]:
    """Return the argv of a rank.

    Raises:
        UsageError: ``container`` cannot be split into words.
    """
    return wrapped(settings, (interpreter(settings), *worker))


def wrapped(settings: LaunchSettings, argv: Sequence[str]) -> tuple[str, ...]:
    """Return argv behind the container's prefix and the setup lines.

    Raises:
        UsageError: ``container`` cannot be split into words.
    """
    words = (*container_prefix(settings.container), *argv)
    if not settings.setup:
        return words
    lines = "\n".join(map(_checked_line, settings.setup))
    return ("bash", "-l", "-c", f'{lines}\nexec "$@"', "spbench-setup", *words)


def _checked_line(line: str) -> str:
    # the check has a line of its own, so that a comment at the end of the line does not hide it
    message = shlex.quote(f"spbench: setup line failed: {line}")
    return f"{line}\n[ $? = 0 ] || {{ echo {message} >&2; exit 1; }}"


def program_by_hand(case: Case) -> tuple[str, ...] | None:
    """Return the words of a case's program, as a launcher starts it in each rank.

    None where a rank must know its place to have them, or ranks differ.
    """
    # few runs have programs, and the presets are many
    from spbench_core.programs.placeholders import (
        fill_placeholders,
        find_placeholders,
        texts_with_placeholders,
    )

    params = case.params
    alike = params["per"] == "rank" and not params["by_rank"] and not params["wait_for"]
    texts = [text for _, text in texts_with_placeholders(dict(params))]
    own = {"size", "count", "word"}
    if not alike or params["cwd"] or any(set(find_placeholders(text)) - own for text in texts):
        return None
    env = (f"{name}={value}" for name, value in (params["env"] or {}).items())
    words = (*(("env", *env) if params["env"] else ()), *params["argv"])
    return tuple(fill_placeholders(word, lambda name: str(params[name])) for word in words)


def standalone_arguments(case: Case) -> tuple[str, ...]:
    """Return the worker's arguments that run the case without the console.

    Parameters stand there only where they differ from what the benchmark would take by itself.
    """
    needed = _needed(case)
    params = {param.name: param for param in case.entry.params}
    pairs = (
        (params[name].flag, params[name].format_argument(value)) for name, value in needed.items()
    )
    inject = ("--inject", case.inject) if case.inject else ()
    return (case.benchmark, *(word for pair in pairs for word in pair), *inject)


def _needed(case: Case) -> dict[str, Any]:
    params = case.entry.params
    needed = {
        param.name: case.params[param.name]
        for param in params
        if case.params.get(param.name) not in (None, param.default)
    }
    # a derived parameter has no default: leave out what the others bring about
    for name in [param.name for param in reversed(params) if param.default is None]:
        fewer = {key: value for key, value in needed.items() if key != name}
        if _completes_to(case, fewer):
            needed = fewer
    return needed


def _completes_to(case: Case, given: Mapping[str, Any]) -> bool:
    try:
        return case.entry.complete(given) == dict(case.params)
    except ExceptionGroup:
        return False
