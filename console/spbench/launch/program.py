"""The argv of each rank: setup lines, container, interpreter and worker."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from spbench.launch.containers import build_container_prefix
from spbench.suites.case import Case
from spbench.suites.settings import Container, LaunchSettings

# An uncaught exception must end the whole job: `-m mpi4py` turns it into MPI_Abort.
WORKER = ("-m", "mpi4py", "-m", "spbench_workers")
# This worker starts no MPI, because a user's program runs as the rank.
PROGRAM_WORKER = ("-m", "spbench_workers.program")


def find_interpreter(settings: LaunchSettings) -> str:
    """Return the Python interpreter of the ranks.

    Links are not resolved, because a virtual environment is identified by its own path. In an image
    it is the ``python3`` of the image.
    """
    default = "python3" if isinstance(settings.container, Container) else sys.executable
    return settings.python or default


def build_worker_argv(settings: LaunchSettings, worker: Sequence[str] = WORKER) -> tuple[str, ...]:
    """Return the argv of a rank.

    Raises:
        UsageError: ``container`` cannot be split into words.
    """
    return wrap_argv(settings, (find_interpreter(settings), *worker))


def wrap_argv(settings: LaunchSettings, argv: Sequence[str]) -> tuple[str, ...]:
    """Return argv with the setup lines and the container's prefix before it.

    Raises:
        UsageError: ``container`` cannot be split into words.
    """
    container_argv = (*build_container_prefix(settings.container), *argv)
    if not settings.setup:
        return container_argv
    setup_lines = "\n".join(map(_add_status_check, settings.setup))
    return ("bash", "-l", "-c", f'{setup_lines}\nexec "$@"', "spbench-setup", *container_argv)


def _add_status_check(line: str) -> str:
    # the check is on a separate line, so that a comment at the end of `line` does not hide it
    message = shlex.quote(f"spbench: setup line failed: {line}")
    return f"{line}\n[ $? = 0 ] || {{ echo {message} >&2; exit 1; }}"


def build_program_argv(case: Case) -> tuple[str, ...] | None:
    """Return the argv that starts a case's program without spbench, or None.

    It is None if the ranks' commands differ, or depend on a rank's number or host.
    """
    # imported here, because few runs have programs, and the module loads many presets
    from spbench_core.programs.placeholders import (
        fill_placeholders,
        find_placeholders,
        list_texts_with_placeholders,
    )

    params = case.params
    same_in_ranks = params["per"] == "rank" and not params["by_rank"] and not params["wait_for"]
    texts = [text for _, text in list_texts_with_placeholders(dict(params))]
    placeholders_equal_in_ranks = {"size", "count", "word"}
    if (
        not same_in_ranks
        or params["cwd"]
        or any(set(find_placeholders(text)) - placeholders_equal_in_ranks for text in texts)
    ):
        return None
    assignments = (f"{name}={value}" for name, value in (params["env"] or {}).items())
    env_command = ("env", *assignments) if params["env"] else ()
    argv = (*env_command, *params["argv"])
    return tuple(fill_placeholders(arg, lambda name: str(params[name])) for arg in argv)


def build_standalone_args(case: Case) -> tuple[str, ...]:
    """Return the worker's arguments that run the case without the console.

    They contain only parameters that differ from the benchmark's defaults.
    """
    needed_params = _find_needed_params(case)
    param_by_name = {param.name: param for param in case.entry.params}
    flags_and_arguments = (
        (param_by_name[name].flag, param_by_name[name].format_argument(value))
        for name, value in needed_params.items()
    )
    inject_options = ("--inject", case.inject) if case.inject else ()
    return (
        case.benchmark,
        *(arg for flag_and_argument in flags_and_arguments for arg in flag_and_argument),
        *inject_options,
    )


def _find_needed_params(case: Case) -> dict[str, Any]:
    params = case.entry.params
    needed = {
        param.name: case.params[param.name]
        for param in params
        if case.params.get(param.name) not in (None, param.default)
    }
    # A derived parameter has no default. Leave it out if the others lead to the same value.
    for name in [param.name for param in reversed(params) if param.default is None]:
        fewer = {key: value for key, value in needed.items() if key != name}
        if _completes_to(case, fewer):
            needed = fewer
    return needed


def _completes_to(case: Case, params: Mapping[str, Any]) -> bool:
    try:
        return case.entry.complete(params) == dict(case.params)
    except ExceptionGroup:
        return False
