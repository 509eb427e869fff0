"""The launcher, hosts and environment of runs that are started here."""

from __future__ import annotations

import asyncio
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spbench.errors import SpbenchError, UsageError
from spbench.suites.launcher_names import AUTO, LAUNCHERS, plugin_launchers
from spbench.tui.chooser import Choice, Chooser
from spbench.tui.context import ConsoleContext
from spbench.tui.dialogs import AskLine

if TYPE_CHECKING:
    from textual.app import App

ASSUME = "another library"
_AUTO = Choice(AUTO, "the suite's own, else that of the MPI library that is here")
_ASSUMED = Choice(ASSUME, "show the lines for an MPI library that is not here")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


async def choose_launcher(app: App[Any], context: ConsoleContext) -> None:
    """Ask which launcher starts the ranks of runs from here, or whose lines are shown."""
    from spbench.launch.detect import traits_named

    plugins = await asyncio.to_thread(plugin_launchers)
    own = (Choice(name, traits_named(name).title) for name in LAUNCHERS)
    more = (Choice(offer.name, f"of the plug-in {offer.plugin}") for offer in plugins.values())
    choices = (_AUTO, *own, *more, _ASSUMED)
    name = await app.push_screen_wait(Chooser("Launcher of runs from here", choices))
    if name is None:
        return
    assumed = None
    if name == ASSUME:
        question = "MPI library whose launch lines are shown, as mvapich2-2.3.7:"
        assumed = await app.push_screen_wait(AskLine(question, context.launch_choice.assume or ""))
        if assumed is None:
            return
    launcher = None if name in (AUTO, ASSUME) else name
    context.launch_choice = replace(context.launch_choice, launcher=launcher, assume=assumed)


async def choose_hosts(app: App[Any], context: ConsoleContext) -> None:
    """Ask for the hosts of runs from here: a hostfile, or a list; empty: as the suite says."""
    chosen = context.launch_choice
    now = str(chosen.hostfile) if chosen.hostfile else chosen.hosts or ""
    question = "Hosts of runs from here: a hostfile, or node[01-08]:4,other; empty: the suite's own"
    line = await app.push_screen_wait(AskLine(question, now, empty=True))
    if line is None:
        return
    file = context.options.folder / Path(line).expanduser()
    there: bool = await asyncio.to_thread(_is_file, file)
    if line and there:
        context.launch_choice = replace(chosen, hostfile=file, hosts=None)
    else:
        context.launch_choice = replace(chosen, hostfile=None, hosts=line or None)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name too long for one, as a pasted list of hosts may be
        return False


async def choose_environment(app: App[Any], context: ConsoleContext) -> None:
    """Ask for variables of the ranks' environment, beside those of the suite."""
    now = shlex.join(context.environment)
    question = "Environment of the ranks of runs from here: NAME=VALUE NAME=VALUE; empty: none"
    line = await app.push_screen_wait(AskLine(question, now, empty=True))
    if line is None:
        return
    try:
        context.environment = parse_environment(line)
    except SpbenchError as error:
        app.notify(str(error), severity="error", markup=False)


def parse_environment(line: str) -> tuple[str, ...]:
    """Return the ``NAME=VALUE`` of a line, in which a shell's quotes hold spaces.

    Raises:
        UsageError: Something in it is not of that form, or a variable is set twice.
    """
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise UsageError(f"{line}: {str(error).lower()}") from None
    names: set[str] = set()
    for word in words:
        name, equals, _ = word.partition("=")
        if not equals or _NAME.fullmatch(name) is None:
            raise UsageError(f"{word!r} is not NAME=VALUE")
        if name in names:
            raise UsageError(f"{name} is set twice")
        names.add(name)
    return tuple(words)
