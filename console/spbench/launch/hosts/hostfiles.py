"""Hostfiles to choose from, and the hosts that were chosen."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from spbench.errors import UsageError
from spbench.launch.hosts.hosts import Hosts, parse_hosts, read_hostfile

FOLDER = "hostfiles"
"""All files of a folder of this name count as hostfiles."""
PATTERNS = ("*.hosts", "*.hostfile", "hostfile*")


@dataclass(frozen=True, slots=True)
class Hostfile:
    """A file that looks like a hostfile: its hosts, or else why it is none."""

    path: Path
    hosts: Hosts | None = None
    error: str = ""


def hostfiles_near(folder: Path) -> list[Path]:
    """Return what looks like a hostfile in a folder, then what lies in its folder ``hostfiles``.

    Hidden files, backups and folders are left out; a link to nowhere is not.
    """
    named = [path for path in _files(folder) if any(fnmatch(path.name, p) for p in PATTERNS)]
    return [*named, *_files(folder / FOLDER)]


def _files(folder: Path) -> Iterator[Path]:
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    for name in names:
        path = folder / name
        wanted = not name.startswith(".") and not name.endswith("~")
        if wanted and (os.path.isfile(path) or not os.path.exists(path)):
            yield path


def read_near(folder: Path) -> list[Hostfile]:
    """Return the hostfiles near a folder, each read; the wrong ones with their errors."""
    return [_read(path) for path in hostfiles_near(folder)]


def _read(path: Path) -> Hostfile:
    try:
        return Hostfile(path, read_hostfile(path))
    except UsageError as error:
        return Hostfile(path, error=str(error))


def given_hosts(hostfile: Path | None, hosts: str | None) -> Hosts | None:
    """Return the hosts of ``--hostfile`` or ``--hosts``; None where neither is given.

    Raises:
        UsageError: Both are given, or the one that is names no hosts.
    """
    if hostfile is not None and hosts is not None:
        raise UsageError("--hostfile and --hosts both name hosts; give one of them")
    if hostfile is not None:
        return read_hostfile(hostfile)
    return parse_hosts(hosts) if hosts is not None else None
