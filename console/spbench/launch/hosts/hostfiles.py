"""Hostfiles to choose from, those of options and settings, and a launcher's."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from spbench.errors import FailedRunError, UsageError
from spbench.launch.hosts.hosts import Hosts, parse_hosts, read_hostfile
from spbench.safe_files import make_folders, replace_file
from spbench.suites.settings import LaunchSettings

FOLDER = "hostfiles"
"""A folder of this name in which all files count as hostfiles."""
PATTERNS = ("*.hosts", "*.hostfile", "hostfile*")

HostsFinder = Callable[[LaunchSettings], Hosts | None]
"""Returns the hosts of a job with these settings; None means this machine."""


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
        path
        for path in _list_files(folder)
        if any(fnmatch(path.name, pattern) for pattern in PATTERNS)
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


def make_hosts_finder(
    option: Hosts | None, folder: Path, exclude: str | None = None
) -> HostsFinder:
    """Return a function that finds the hosts of a job.

    Args:
        option: The hosts of --hostfile or --hosts, which override those of the settings.
        folder: The suite's folder, to which ``hostfile`` of the settings is relative.
        exclude: Hosts to remove, from either source.
    """
    hosts_by_hostfile: dict[str, Hosts] = {}

    def find_hosts(settings: LaunchSettings) -> Hosts | None:
        hosts = option
        hostfile_name = settings.hostfile
        if hosts is None and hostfile_name is not None:
            if hostfile_name not in hosts_by_hostfile:
                hosts_by_hostfile[hostfile_name] = read_hostfile(folder / hostfile_name)
            hosts = hosts_by_hostfile[hostfile_name]
        if hosts is None and exclude is not None:
            raise UsageError("--exclude-hosts: there are no hosts; give --hostfile or --hosts")
        return hosts.exclude(exclude) if hosts and exclude is not None else hosts

    return find_hosts


def write_hostfile(home: Path, text: str) -> Path:
    """Write a launcher's hostfile under the folder of the runs, and return its path.

    Equal texts have the same path.

    Raises:
        FailedRunError: The file cannot be written.
    """
    encoded_text = text.encode()
    path = home.absolute() / "hostfiles" / hashlib.sha256(encoded_text).hexdigest()[:12]
    with suppress(OSError):  # that of another user may be unreadable: it is replaced
        same_size = path.stat().st_size == len(encoded_text)
        if (
            not path.is_symlink()
            and path.is_file()
            and same_size
            and path.read_bytes() == encoded_text
        ):
            return path
    try:
        make_folders(path.parent)
        replace_file(path, (text,), 0o644, root=path.parent)
    except OSError as error:
        raise FailedRunError(
            f"cannot write the hostfile {path}: {error.strerror}; choose another --home"
        ) from None
    return path
