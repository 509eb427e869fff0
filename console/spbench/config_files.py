"""Trusted configuration files: checks of the owner and permissions.

A line of such a file can end up in a job script, which the user runs. So files on a search path
are checked. A file that the user names on the command line or in a variable is the user's own
choice, and is not checked.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from spbench.safe_files import require_regular

_WORLD_WRITABLE = stat.S_IWOTH
"""The bit that makes a file or folder untrusted.

Group-writable files are trusted: sites where each user has a private group set a umask of 002.
"""
_FALLBACK_OVERFLOW = 65534
"""The usual user id of ``nobody``, if the kernel's setting cannot be read."""


class UntrustedFileError(Exception):
    """A configuration file that another user may have written."""


def open_trusted(path: Path) -> BinaryIO:
    """Open a configuration file for reading, and check the opened file and its folder.

    Both must belong to the user or to root, and must not be world-writable. Root trusts only files
    of root. The folder is checked because its owner can choose, with a link, which of the user's
    files is read. Folders above need no check: a user who replaces the folder owns the new one.

    Links are followed, because users keep configuration elsewhere. The target is checked.

    Raises:
        OSError: The file cannot be opened, or is not a regular file.
        UntrustedFileError: The file or its folder failed the check.
    """
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # Without O_NONBLOCK, opening a pipe would block forever.
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
    """Check the folder of a configuration file before the file is written.

    A missing folder passes the check.

    Raises:
        OSError: The folder cannot be examined.
        UntrustedFileError: The folder belongs to another user, or is world-writable.
    """
    try:
        status = os.stat(file.parent)
    except FileNotFoundError:
        return
    _check(file.parent, status, file)


def _check(path: Path, status: os.stat_result, file: Path | None = None) -> None:
    subject = f"{file} was skipped: its folder {path}" if file else f"{path} was skipped: it"
    if not _is_trusted(status.st_uid):
        trusted = "root" if os.geteuid() == 0 else f"you (user {os.geteuid()}) or root"
        raise UntrustedFileError(f"{subject} belongs to user {status.st_uid} (expected {trusted})")
    if status.st_mode & _WORLD_WRITABLE:
        raise UntrustedFileError(f"{subject} is world-writable; run chmod o-w {path}")


def _is_trusted(owner: int) -> bool:
    """Return whether an owner's files are trusted: those of this user and of root.

    In a user namespace, such as a rootless container, and on file systems that squash root, files
    of all unknown users seem to belong to ``nobody``. So files of ``nobody`` are never trusted, not
    even by a process of that user.
    """
    return owner in (0, os.geteuid()) and owner != _overflow_user()


def _overflow_user() -> int:
    try:
        return int(Path("/proc/sys/kernel/overflowuid").read_text())
    except (OSError, ValueError):
        return _FALLBACK_OVERFLOW
