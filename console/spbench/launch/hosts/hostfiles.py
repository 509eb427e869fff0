"""Hostfiles to choose from, and the hosts of the options."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from spbench.errors import UsageError
from spbench.launch.hosts.hosts import Hosts, parse_hosts, read_hostfile

FOLDER = "hostfiles"
"""A folder of this name in which all files count as hostfiles."""
PATTERNS = ("*.hosts", "*.hostfile", "hostfile*")


@dataclass(frozen=True, slots=True)
class Hostfile:
    """A file that looks like a hostfile: its hosts, or a parse error."""

    path: Path
    hosts: Hosts | None = None
    error: str = ""


def find_hostfiles(folder: Path) -> list[Path]:
    """Return the hostfiles in a folder, then those in its folder ``hostfiles``.

    Hidden files, backups and folders are left out. A broken link is not, so that it is reported.
    """
    matching = [
        path for path in _list_files(folder) if any(fnmatch(path.name, p) for p in PATTERNS)
    ]
    return [*matching, *_list_files(folder / FOLDER)]


def _list_files(folder: Path) -> Iterator[Path]:
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    for name in names:
        path = folder / name
        is_visible = not name.startswith(".") and not name.endswith("~")
        if is_visible and (os.path.isfile(path) or not os.path.exists(path)):
            yield path


def read_hostfiles(folder: Path) -> list[Hostfile]:
    """Return the hostfiles near a folder with their hosts or errors."""
    return [_read_hostfile(path) for path in find_hostfiles(folder)]


def _read_hostfile(path: Path) -> Hostfile:
    try:
        return Hostfile(path, read_hostfile(path))
    except UsageError as error:
        return Hostfile(path, error=str(error))


def read_host_options(hostfile: Path | None, hosts: str | None) -> Hosts | None:
    """Return the hosts of ``--hostfile`` or ``--hosts``; None if neither is given.

    Raises:
        UsageError: Both are given, or the given one names no hosts.
    """
    if hostfile is not None and hosts is not None:
        raise UsageError("--hostfile and --hosts both name hosts; give one of them")
    if hostfile is not None:
        return read_hostfile(hostfile)
    return parse_hosts(hosts) if hosts is not None else None
