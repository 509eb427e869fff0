"""Files of a run's folder, which may be anyone's: a pipe in it would never end."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def open_file(path: Path) -> int:
    """Open a file for reading, and return its descriptor.

    Raises:
        OSError: It cannot be opened, or is a folder, a pipe, a socket or a device.
    """
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(file).st_mode
    if stat.S_ISREG(mode):
        return file
    os.close(file)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "it is a pipe or a device, and no file", str(path))


def read_file(path: Path) -> bytes:
    """Return what is in a file.

    Raises:
        OSError: It cannot be read, or is a folder, a pipe, a socket or a device.
    """
    with open(open_file(path), "rb") as file:
        return file.read()
