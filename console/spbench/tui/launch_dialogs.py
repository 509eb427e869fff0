"""Dialogs for the launcher, hosts and environment of runs started in the console."""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spbench.errors import MissingError, UsageError
from spbench.launch.choice import LaunchChoice
from spbench.launch.hosts.hosts import parse_hosts, read_hostfile
from spbench.suites.launcher_names import AUTO, LAUNCHERS, load_plugin_launchers
from spbench.suites.pipe_files import expand_user_path
from spbench.suites.settings import LaunchSettings
from spbench.tui.advice import name_keys
from spbench.tui.chooser import Choice, Chooser
from spbench.tui.context import ConsoleContext
from spbench.tui.dialogs import AskLine

if TYPE_CHECKING:
    from textual.app import App

ASSUME = "another library"
TYPE_LIBRARY = "type another"
_AUTO = Choice(AUTO, "the suite's own, else that of the MPI library that is here")
_ASSUMED = Choice(ASSUME, "show the lines for an MPI library that is not here")
_TYPED = Choice(TYPE_LIBRARY, "another version of a library")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HOSTFILE_SUFFIXES = (".hosts", ".txt")
"""Endings of hostfiles that no host name has."""


async def choose_launcher(app: App[Any], context: ConsoleContext) -> None:
    """Ask for the launcher of runs.

    If it is not installed, ask for the MPI library to show its launch lines for.
    """
    from spbench.launch.detect import load_traits

    plugins = await asyncio.to_thread(load_plugin_launchers)
    built_in = (Choice(name, load_traits(name).title) for name in LAUNCHERS)
    added = (
        Choice(name, f"of the plug-in {launcher.plugin}") for name, launcher in plugins.items()
    )
    choices = (_AUTO, *built_in, *added, _ASSUMED)
    name = await app.push_screen_wait(Chooser("Launcher of runs from here", choices))
    if name is None:
        return
    launcher = None if name in (AUTO, ASSUME) else name
    assumed = None
    if name == ASSUME or not await asyncio.to_thread(_is_installed, name, context.options.environ):
        assumed = await _choose_library(app, launcher, context.launch_choice.assume or "")
        if assumed is None:
            return
    context.launch_choice = replace(context.launch_choice, launcher=launcher, assume=assumed)


def _is_installed(launcher: str, environ: Mapping[str, str]) -> bool:
    """Return whether a launcher is installed here; ``auto`` counts as installed."""
    from spbench.launch.detect import find_launcher

    if launcher == AUTO:
        return True
    try:
        find_launcher(LaunchSettings(launcher=launcher), None, environ)
    except MissingError:
        return False
    return True


async def _choose_library(app: App[Any], launcher: str | None, text: str) -> str | None:
    """Ask for an MPI library that works with the launcher; None: with any."""
    title = "MPI library to show launch lines for"
    if launcher is not None:
        title = f"{launcher} is not installed here: its lines for"
    name = await app.push_screen_wait(Chooser(title, [*_list_libraries(launcher), _TYPED]))
    if name != TYPE_LIBRARY:
        return name

    def parse(line: str) -> str:
        return _parse_library(line, launcher)

    question = "MPI library and version to show launch lines for:"
    library: str | None = await app.push_screen_wait(
        AskLine(question, parse, text, required="a library, such as mvapich2-2.3.7")
    )
    return library


def _list_libraries(launcher: str | None) -> list[Choice]:
    """Return the known MPI libraries that work with the launcher; None: with any."""
    from spbench.launch.detect import (
        add_default_version,
        find_assumed_launcher,
        parse_assumed_library,
    )
    from spbench.launch.mpi_probe import LIBRARIES

    settings = LaunchSettings(launcher=launcher or AUTO)
    choices = []
    for name in map(add_default_version, LIBRARIES):
        library = parse_assumed_library(name)
        with suppress(UsageError):  # the launcher does not come with this library
            program = find_assumed_launcher(settings, library).executable
            choices.append(Choice(name, f"{library.version_text}, started by {program}"))
    return choices


def _parse_library(line: str, launcher: str | None) -> str:
    """Return a library with a version; without one it gets the default one.

    Raises:
        UsageError: It is unknown, or the launcher does not start its ranks.
    """
    from spbench.launch.detect import (
        add_default_version,
        find_assumed_launcher,
        parse_assumed_library,
    )

    try:
        library = parse_assumed_library(line)
        find_assumed_launcher(LaunchSettings(launcher=launcher or AUTO), library)
    except UsageError as error:
        raise UsageError(name_keys(str(error))) from None
    return add_default_version(line)


async def choose_hosts(app: App[Any], context: ConsoleContext) -> None:
    """Ask for the hosts of runs: a hostfile or a list; empty for those of the suite."""
    choice = context.launch_choice
    current = str(choice.hostfile) if choice.hostfile else choice.hosts or ""
    question = "Run on a hostfile, or node[01-08]:4,other; empty: the suite's own hosts"
    folder = context.options.folder

    def parse(line: str) -> LaunchChoice:
        return parse_host_choice(choice, folder, line)

    dialog = AskLine(question, parse, current)
    chosen = await app.push_screen_wait(dialog)
    if chosen is not None:
        context.launch_choice = chosen


def parse_host_choice(choice: LaunchChoice, folder: Path, line: str) -> LaunchChoice:
    """Return a choice with the hosts of a line: a file, a list, or none.

    Raises:
        UsageError: The hostfile cannot be read, or the line is not a valid list of hosts.
    """
    if not line:
        return replace(choice, hostfile=None, hosts=None)
    path = expand_user_path(folder, line)
    if _is_path_like(line) or _is_file(path):
        read_hostfile(path)
        return replace(choice, hostfile=path, hosts=None)
    hosts = re.sub(r"\s*,\s*|\s+", ",", line.strip())
    parse_hosts(hosts, "hosts")
    return replace(choice, hostfile=None, hosts=hosts)


def _is_path_like(line: str) -> bool:
    """Return whether a line can only be a hostfile, so that it must exist."""
    return "/" in line or line.startswith(("~", ".")) or line.endswith(_HOSTFILE_SUFFIXES)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a long list of hosts is not a valid file name
        return False


async def choose_environment(app: App[Any], context: ConsoleContext) -> None:
    """Ask for additional environment variables of the ranks."""
    current = shlex.join(context.environment)
    question = "Environment of the ranks of runs from here: NAME=VALUE NAME=VALUE; empty: none"
    dialog = AskLine(question, parse_environment, current)
    environment = await app.push_screen_wait(dialog)
    if environment is not None:
        context.environment = environment


def parse_environment(line: str) -> tuple[str, ...]:
    """Return the ``NAME=VALUE`` parts of a line with shell quoting.

    Raises:
        UsageError: A part has another form, or a variable is set twice.
    """
    try:
        assignments = shlex.split(line)
    except ValueError as error:
        raise UsageError(f"{line}: {str(error).lower()}") from None
    names: set[str] = set()
    for assignment in assignments:
        name, equals, _ = assignment.partition("=")
        if not equals or _NAME.fullmatch(name) is None:
            raise UsageError(f"{assignment!r} is not NAME=VALUE")
        if name in names:
            raise UsageError(f"{name} is set twice")
        names.add(name)
    return tuple(assignments)


DIALOGS = {
    "launcher": choose_launcher,
    "hosts": choose_hosts,
    "environment": choose_environment,
}
"""The dialogs by the setting that they ask for."""
