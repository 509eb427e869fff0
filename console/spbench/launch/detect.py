"""Detection of the MPI library of the ranks, and of the launcher that starts them."""

from __future__ import annotations

import importlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from math import inf
from pathlib import Path
from typing import Any, cast

from spbench.errors import (
    LauncherMissingError,
    MissingError,
    SpbenchError,
    UsageError,
    did_you_mean,
)
from spbench.launch.launcher import Launcher, LauncherTraits, get_traits
from spbench.launch.mpi_probe import (
    LIBRARIES,
    PROBE,
    VERSION_BY_LIBRARY,
    MpiLibrary,
    parse_probe,
    read_library,
)
from spbench.launch.program import find_interpreter, wrap_argv
from spbench.suites.launcher_names import (
    AUTO,
    LAUNCHERS,
    find_attribute,
    list_launcher_names,
    load_plugin_launchers,
)
from spbench.suites.settings import LaunchSettings
from spbench_core.plugins import PluginObject, guard_function

_EXTRAS = {"openmpi": "openmpi", "mpich": "mpich", "intelmpi": "intelmpi"}
PROBE_TIMEOUT = 30.0
_running_probes: set[subprocess.Popen[str]] = set()

_ASSUMED = re.compile(r"([a-z]+2?)-(\d[\w.+~-]*)")


@dataclass(frozen=True, slots=True)
class InstalledLauncher:
    """An installed launcher."""

    launcher: Launcher
    executable: Path
    version: str


def load_launcher(name: str) -> Launcher:
    """Return a launcher by its name; it may come from a plug-in.

    Raises:
        MissingError: The name is unknown.
    """
    if name not in LAUNCHERS:
        return _load_plugin_launcher(name)
    module = importlib.import_module(f"spbench.launch.launchers.{name}")
    return cast(Launcher, module.LAUNCHER)


def _load_plugin_launcher(name: str) -> Launcher:
    plugin_object = load_plugin_launchers().get(name)
    if plugin_object is None:
        raise MissingError(f"launcher {name} is of a plug-in that is not installed here")
    return cast(Launcher, _PluginLauncher(plugin_object))


class _PluginLauncher:
    """A launcher of a plug-in. Each error of its functions becomes a MissingError."""

    def __init__(self, plugin_object: PluginObject) -> None:
        self._plugin_object = plugin_object

    def __getattr__(self, name: str) -> Any:
        name = find_attribute(self._plugin_object.object, name)
        attribute = getattr(self._plugin_object.object, name)
        if not callable(attribute):
            return attribute
        title = f"{name} of launcher {self._plugin_object.name}"
        return guard_function(
            attribute, self._plugin_object.plugin, title, MissingError, (SpbenchError,)
        )


def load_traits(name: str) -> LauncherTraits:
    """Return the traits of a launcher by its name; ``auto`` has none.

    Raises:
        MissingError: The name is unknown.
    """
    return LauncherTraits() if name == AUTO else get_traits(load_launcher(name))


@lru_cache
def list_launchers(library: str) -> tuple[str, ...]:
    """Return the names of the launchers that come with an MPI library, the best first."""
    preferences: dict[str, int] = {}
    for name in LAUNCHERS:
        preference = load_traits(name).preference.get(library)
        if preference is not None:
            preferences[name] = preference
    return tuple(sorted(preferences, key=preferences.__getitem__))


def detect_mpi_library(
    python: str,
    settings: LaunchSettings | None = None,
    *,
    timeout_seconds: float = PROBE_TIMEOUT,
) -> MpiLibrary:
    """Return the MPI library that mpi4py loads in an interpreter.

    With settings, the interpreter runs like in a job: after setup lines, in the container, and
    with the environment of the settings.

    Raises:
        MissingError: The interpreter does not run, or mpi4py or its MPI library is missing.
    """
    settings = settings or LaunchSettings.model_validate({})
    argv = wrap_argv(settings, (python, "-c", PROBE))
    return _probe_library(python, argv, tuple(settings.env.items()), timeout_seconds)


@lru_cache
def _probe_library(
    python: str,
    argv: tuple[str, ...],
    env: tuple[tuple[str, str], ...],
    timeout_seconds: float,
) -> MpiLibrary:
    answer = _run_probe(python, argv, {**os.environ, **dict(env)}, timeout_seconds)
    return read_library(python, answer)


def _run_probe(
    python: str, argv: tuple[str, ...], env: Mapping[str, str], timeout_seconds: float
) -> dict[str, Any]:
    try:
        status, stdout, stderr = _read_probe_output(argv, env, timeout_seconds)
    except OSError as error:
        raise MissingError(
            f"{argv[0]} cannot run: {error.strerror}; set launch.python to an interpreter that has "
            f"spbench[workers,mpi]"
        ) from None
    except subprocess.TimeoutExpired:
        raise MissingError(
            f"{python} did not tell its MPI library within {timeout_seconds:g} s; check "
            f"launch.python, launch.setup and launch.container"
        ) from None
    answer = parse_probe(stdout)
    if answer is not None:
        return answer
    last_line = (stderr.strip().splitlines() or ["it printed nothing"])[-1]
    raise MissingError(
        f"{python} cannot be asked for its MPI library, exit status {status}: {last_line}; "
        f"check launch.python, launch.setup and launch.container"
    )


def _read_probe_output(
    argv: tuple[str, ...], env: Mapping[str, str], timeout_seconds: float
) -> tuple[int, str, str]:
    # the probe has its own session, so that all that setup lines have started ends with it
    with subprocess.Popen(
        argv,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        _running_probes.add(process)
        try:
            stdout, stderr = process.communicate(timeout=timeout_seconds)
        finally:
            _running_probes.discard(process)
            _kill_probe_session(process)
    return process.returncode, stdout, stderr


def abandon_probes() -> None:
    """End the probes that other threads wait for, which raise MissingError there."""
    for process in tuple(_running_probes):
        _kill_probe_session(process)


def _kill_probe_session(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def find_launcher(
    settings: LaunchSettings, library: MpiLibrary | None, env: Mapping[str, str]
) -> InstalledLauncher:
    """Return the launcher of the settings; for ``auto``, the first installed one.

    ``auto`` takes the launcher of a batch system only inside its allocation, if there is nothing
    better, and a plug-in's launcher only if there is no other.

    Raises:
        MissingError: No launcher is installed. The message lists the searched folders.
    """
    interpreter_folder = _find_interpreter_folder(settings)
    if settings.launcher != "auto":
        return _find_named(settings.launcher, env, interpreter_folder)

    names = list_launchers(library.name) if library else LAUNCHERS
    names = (*names, *_list_batch_launchers(env))
    candidates = chain(names, _list_plugin_launchers(library))
    installed_launcher = next(
        filter(None, (_find_installed(name, env, interpreter_folder) for name in candidates)), None
    )
    if installed_launcher is None:
        raise MissingError(_format_none_installed(names, library, env, interpreter_folder))
    return installed_launcher


def _find_named(name: str, env: Mapping[str, str], folder: Path) -> InstalledLauncher:
    installed_launcher = _find_installed(name, env, folder)
    if installed_launcher is None:
        other_names = [
            other for other in list_launcher_names() if _find_installed(other, env, folder)
        ]
        raise LauncherMissingError(
            f"launcher {name} is not installed: looked {_describe_search(env, folder)}"
            f"{_describe_rejected(name, env, folder)}; "
            f"installed: {', '.join(other_names) or 'none'}"
        )
    return installed_launcher


def _list_batch_launchers(env: Mapping[str, str]) -> Iterator[str]:
    """Yield the launchers of batch systems that have given this process an allocation."""
    for name in LAUNCHERS:
        variable = load_traits(name).allocation_variable
        if variable is not None and variable in env:
            yield name


def _list_plugin_launchers(library: MpiLibrary | None) -> Iterator[str]:
    # a generator, since plug-ins are searched only if no other launcher is installed
    for name in load_plugin_launchers():
        if library is None or library.name in load_launcher(name).libraries:
            yield name


def find_mismatch(installed: InstalledLauncher, library: MpiLibrary) -> str | None:
    """Return a message if the launcher cannot start ranks of this library."""
    launcher = installed.launcher
    if library.name in launcher.libraries:
        return None
    better = " or ".join(list_launchers(library.name))
    return (
        f"launcher {launcher.name} ({installed.version}) does not start ranks of "
        f"{library.version_text}: set launch.launcher to {better}, or use the MPI library that "
        f"belongs to {launcher.name}"
    )


def _find_installed(name: str, env: Mapping[str, str], folder: Path) -> InstalledLauncher | None:
    launcher = load_launcher(name)
    for executable in launcher.candidates(env, folder):
        version = launcher.version(executable)
        if version:
            return InstalledLauncher(launcher, executable, version)
    return None


def _describe_rejected(name: str, env: Mapping[str, str], folder: Path) -> str:
    """Describe programs with the launcher's name that did not print its version."""
    paths = load_launcher(name).candidates(env, folder)
    if not paths:
        return ""
    return (
        f" ({', '.join(map(str, paths))} did not answer as {name} does when asked for the version)"
    )


def _find_interpreter_folder(settings: LaunchSettings) -> Path:
    python = Path(find_interpreter(settings))
    # a bare name such as python3 has no folder: use that of this interpreter
    return (python if python.is_absolute() else Path(sys.executable)).parent


def _describe_search(env: Mapping[str, str], folder: Path) -> str:
    home_text = f"in {env['MV2_HOME']}/bin, " if env.get("MV2_HOME") else ""
    return f"{home_text}in {folder} and in PATH"


def _format_none_installed(
    names: tuple[str, ...], library: MpiLibrary | None, env: Mapping[str, str], folder: Path
) -> str:
    library_text = f" for {library.title}" if library else ""
    extra = _EXTRAS.get(library.name) if library else "mpi"
    remedy = f"pip install 'spbench[{extra}]'" if extra else "load the cluster's MPI module"
    return (
        f"no launcher{library_text} ({' or '.join(names)}) is installed: "
        f"looked {_describe_search(env, folder)}"
        f"{''.join(_describe_rejected(name, env, folder) for name in names)}; {remedy}"
    )


def add_default_version(text: str) -> str:
    """Return ``mvapich2-2.3.7`` for ``mvapich2``; other texts are unchanged."""
    return f"{text}-{VERSION_BY_LIBRARY[text]}" if text in LIBRARIES else text


def parse_assumed_library(text: str) -> MpiLibrary:
    """Return the library that text like ``mvapich2-2.3.7`` names.

    Without a version it is the one of `VERSION_BY_LIBRARY`.
    An assumed library need not be installed: launch lines can be printed for another cluster.

    Raises:
        UsageError: The text is not a known library and a version.
    """
    match = _ASSUMED.fullmatch(add_default_version(text))
    if match is None or match[1] not in LIBRARIES:
        name = text.partition("-")[0]
        suggestion = "" if name in LIBRARIES else did_you_mean(name, LIBRARIES)
        names = ", ".join(LIBRARIES)
        raise UsageError(
            f"--assume {text}: write LIBRARY-VERSION or LIBRARY{suggestion}; libraries are {names}"
        )
    library = MpiLibrary(match[1], "")
    return MpiLibrary(match[1], f"{library.title} {match[2]}")


def find_assumed_launcher(settings: LaunchSettings, library: MpiLibrary) -> InstalledLauncher:
    """Return the launcher of the settings; for ``auto``, the library's own.

    Raises:
        UsageError: It does not start ranks of that library.
    """
    bundled = _list_launchers_of_version(library)
    name = bundled[0] if settings.launcher == "auto" else settings.launcher
    if name in list_launchers(library.name) and name not in bundled:
        raise UsageError(
            f"--assume: {library.version_text} has no {name}; it comes with {' and '.join(bundled)}"
        )
    version = f"{name} of {library.version_text} (assumed, not run)"
    program = Path(load_traits(name).program or name)
    installed = InstalledLauncher(load_launcher(name), program, version)
    if mismatch := find_mismatch(installed, library):
        raise UsageError(f"--assume: {mismatch}")
    return installed


def _list_launchers_of_version(library: MpiLibrary) -> tuple[str, ...]:
    major = int(re.sub(r"\D.*", "", library.version_text.rpartition(" ")[2]))
    names = list_launchers(library.name)
    dropping_version_by_name = {
        name: load_traits(name).dropped_in.get(library.name, inf) for name in names
    }
    included_names = [name for name in names if major < dropping_version_by_name[name]]
    # a launcher that a later version dropped was the library's preferred one until then
    return tuple(sorted(included_names, key=dropping_version_by_name.__getitem__))
