"""Sources of hosts: typed ones, this machine, command line and hostfiles."""

from __future__ import annotations

import socket
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from textual.binding import BindingType
from textual.containers import Vertical

from spbench.errors import UsageError
from spbench.launch.choice import LaunchChoice
from spbench.launch.hosts.hostfiles import read_host_options, read_hostfiles
from spbench.launch.hosts.hosts import Host, Hosts
from spbench.launch.placement import count_cores
from spbench.tui.context import ConsoleOptions
from spbench.tui.widgets.keys import make_binding
from spbench.tui.widgets.line_table import LineTable
from spbench.tui.widgets.table_columns import Column, TableCell

THIS_MACHINE = "this machine"

COLUMNS = (
    Column("used", "", 1),
    Column("name", "source", 12, flexible=True),
    Column("hosts", "hosts", 5, "right"),
    Column("slots", "slots", 5, "right", drop_priority=1),
)


@dataclass(frozen=True, slots=True)
class HostSource:
    """Hosts of one origin.

    Attributes:
        name: A unique name.
        title: A short name.
        choice: The launch choice that uses these hosts.
        hosts: The hosts; None if there is an error.
        error: An error message; empty if the hosts are valid.
    """

    name: str
    title: str
    choice: LaunchChoice
    hosts: Hosts | None = None
    error: str = ""


def read_sources(
    options: ConsoleOptions, typed_choice: LaunchChoice | None = None
) -> list[HostSource]:
    """Return all sources; call it in a thread, since it reads files.

    Args:
        options: The options of the console.
        typed_choice: The last hosts that were typed in the console. They are first, unless they are
            a source anyway.
    """
    machine = Hosts((Host(socket.gethostname(), count_cores()),), THIS_MACHINE)
    sources = [
        HostSource(
            THIS_MACHINE,
            THIS_MACHINE,
            LaunchChoice(launcher=options.launch_choice.launcher),
            machine,
        )
    ]
    choice = options.launch_choice
    if choice.hostfile is not None or choice.hosts is not None:
        sources.append(_read_options(choice))
    for nearby in read_hostfiles(options.folder):
        file_choice = LaunchChoice(nearby.path, launcher=choice.launcher)
        if nearby.path != choice.hostfile:
            path = nearby.path
            error = nearby.error.replace(f"{options.folder}/", "")
            sources.append(HostSource(str(path), path.name, file_choice, nearby.hosts, error))
    if typed_choice is not None:
        typed = _read_options(typed_choice)
        if all(source.name != typed.name for source in sources):
            sources.insert(0, typed)
    return sources


def _read_options(choice: LaunchChoice) -> HostSource:
    """Return the hosts of the command line or the console, without the excluded ones."""
    name = str(choice.hostfile or choice.hosts)
    title = choice.hostfile.name if choice.hostfile else name
    try:
        hosts = read_host_options(choice.hostfile, choice.hosts)
        if hosts is not None and choice.exclude_hosts:
            hosts = hosts.exclude(choice.exclude_hosts)
    except UsageError as error:
        return HostSource(name, title, choice, error=str(error))
    return HostSource(name, title, choice, hosts)


class SourcesPane(Vertical):
    """Sources of hosts: this machine, the command line, and hostfiles."""

    HELP = """\
The sources of hosts: those typed with H, this machine, the command line, and the hostfiles in the
folder where the console was opened. u or enter makes runs that are started here use the hosts under
the cursor; ● marks those in use. With this machine, a suite that names a hostfile uses that."""


class SourceTable(LineTable):
    """The table of sources; enter uses one for runs from here."""

    BINDINGS: ClassVar[list[BindingType]] = [
        make_binding(
            "hosts.run-on",
            "enter",
            "choose",
            "Run on",
            "Use these hosts in runs from here",
            show=True,
        )
    ]


class SourceRows:
    """Rows of the sources."""

    def __init__(self) -> None:
        self.sources: dict[Hashable, HostSource] = {}
        self.launch_choice: LaunchChoice | None = None

    def keys(self) -> Sequence[Hashable]:
        """Return the names."""
        return list(self.sources)

    def version(self, key: Hashable) -> Hashable:
        """Return values that change with the cells of a source."""
        source = self.sources[key]
        return self._is_used(source), source.error, source.hosts

    def _is_used(self, source: HostSource) -> bool:
        return (
            self.launch_choice is not None
            and self.launch_choice.replace_hosts(source.choice) == self.launch_choice
        )

    def cells(self, key: Hashable) -> Sequence[TableCell | str]:
        """Return the mark of the hosts in use, title, and numbers of hosts and slots."""
        source = self.sources[key]
        mark = TableCell("●" if self._is_used(source) else "", "accent")
        if source.hosts is None:
            return (
                mark,
                TableCell(source.title, "muted"),
                TableCell("✗", "failed"),
                TableCell("wrong", "failed"),
            )
        return mark, source.title, str(len(source.hosts.names)), str(source.hosts.slots)

    def sort_value(self, key: Hashable, column: str) -> Any:
        """Return the sort key of a source."""
        source = self.sources[key]
        value_by_column = {
            "used": self._is_used(source),
            "name": source.title,
            "hosts": len(source.hosts.names) if source.hosts else None,
            "slots": source.hosts.slots if source.hosts else None,
        }
        return value_by_column[column]

    def search_text(self, key: Hashable) -> str:
        """Return the name."""
        return str(key).lower()
