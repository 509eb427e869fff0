"""Configuration files that are found by a search path: who may have written them is checked.

A line of such a file can end up in a job script, which the user runs. A file that the user names
on the command line or in a variable is the user's own choice, and is not checked.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from spbench.safe_files import require_regular

_WORLD_WRITABLE = stat.S_IWOTH
"""The bit that makes a file or folder untrusted.

The bit of the group does not: with a umask of 002, which sites set where each user has a group of
their own, every file is group-writable.
"""
_FALLBACK_OVERFLOW = 65534


class UntrustedFileError(Exception):
    """A configuration file that somebody else may have written: why it is skipped, and a remedy."""


def open_trusted(path: Path) -> BinaryIO:
    """Open a configuration file for reading, after a check of the opened file and its folder.

    Both must belong to the user or to root, and must not be world-writable. Root trusts only files
    of root. The folder is checked because its owner can choose, with a link, which of the user's
    files is read. Folders above are not checked: whoever replaces the folder owns the new one.

    A link is followed, because users keep configuration elsewhere. The file that it leads to is
    checked.

    Raises:
        OSError: It cannot be opened, or is no regular file.
        UntrustedFileError: The check failed.
    """
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # A pipe would never end.
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
        opened = os.open(path.name, flags, dir_fd=folder)
        file = os.fdopen(require_regular(opened, path), "rb")
        try:
            _check(path, os.fstat(file.fileno()))
            _check(path.parent, os.fstat(folder), path)
        except BaseException:
            file.close()
            raise
        return file
    finally:
        os.close(folder)


def check_folder(file: Path) -> None:
    """Check the folder of a configuration file that is to be written; it may be missing.

    Raises:
        OSError: It cannot be examined.
        UntrustedFileError: It belongs to somebody else, or is world-writable.
    """
    try:
        status = os.stat(file.parent)
    except FileNotFoundError:
        return
    _check(file.parent, status, file)


def _check(path: Path, status: os.stat_result, file: Path | None = None) -> None:
    """Raise UntrustedFileError unless only the user, root or the group may write there."""
    what = f"{file} was skipped: its folder {path}" if file else f"{path} was skipped: it"
    if not _is_trusted(status.st_uid):
        trusted = "root" if os.geteuid() == 0 else f"you (user {os.geteuid()}) or root"
        raise UntrustedFileError(f"{what} belongs to user {status.st_uid} (expected {trusted})")
    if status.st_mode & _WORLD_WRITABLE:
        raise UntrustedFileError(f"{what} is world-writable; run chmod o-w {path}")


def _is_trusted(owner: int) -> bool:
    """Whether a user's files are read: those of this user and of root.

    In a user namespace, such as a container without root, and on file systems that squash root, the
    files of all unknown users seem to belong to `nobody`. So files of `nobody` are trusted by
    nobody, not even by a process of that user.
    """
    return owner in (0, os.geteuid()) and owner != _overflow_user()


def _overflow_user() -> int:
    try:
        return int(Path("/proc/sys/kernel/overflowuid").read_text())
    except (OSError, ValueError):
        return _FALLBACK_OVERFLOW
