"""Safe writing of files in folders that other users may write.

A folder's owner can plant a symbolic link, a hard link or a pipe under the next file's name. So
files get a random name first, or must be regular files with one name, and folders below a root
are opened one by one. The root and the folders above it may be links, such as `.spbench` on another
disk.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

FOLDER_MODE = 0o775
"""Mode of a new folder, less the umask: never world-writable, even if the umask is 0.

The group keeps its bit, because teams share a home with a umask of 002.
"""
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def make_folders(path: Path, mode: int = FOLDER_MODE) -> None:
    """Create a folder with this mode, and its missing parents with `FOLDER_MODE`.

    The umask applies to both modes.

    Raises:
        OSError: A folder cannot be created, or the path exists and is not a folder.
    """
    for folder in (*reversed(path.parents), path):
        if folder.is_dir():
            continue
        try:
            folder.mkdir(mode if folder == path else FOLDER_MODE)
        except FileExistsError:  # another process may have created it
            if not folder.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, f"{folder} is not a folder") from None


@contextmanager
def open_folder(path: Path, root: Path | None = None, make: int | None = None) -> Iterator[int]:
    """Open a folder, and yield a descriptor for names relative to it.

    Args:
        path: The folder.
        root: The folder below which no link is followed; None: `path` itself.
        make: The mode with which missing folders below the root are created; None: they are not.

    Raises:
        OSError: A folder is missing, or is not a folder.
    """
    folder = os.open(root or path, _FOLDER)
    try:
        for name in path.relative_to(root or path).parts:
            if make is not None:
                with suppress(FileExistsError):
                    os.mkdir(name, make, dir_fd=folder)
            try:
                inner = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
            except NotADirectoryError:
                raise _not_a_folder(name, folder) from None
            os.close(folder)
            folder = inner
        yield folder
    finally:
        os.close(folder)


def _not_a_folder(name: str, folder: int) -> OSError:
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if stat.S_ISLNK(status.st_mode):
        return OSError(errno.ELOOP, f"{name} is a link, which spbench does not follow here")
    return NotADirectoryError(errno.ENOTDIR, f"{name} is not a folder")


@contextmanager
def open_replacement(path: Path, mode: int, *, root: Path | None = None) -> Iterator[BinaryIO]:
    """Yield a new file that replaces `path` at the end, unless an exception is raised.

    A link, a pipe or a device at `path` is replaced, not followed. The file is not flushed to the
    disk: a run writes several per launch, and flushing would block its console for as long as a
    busy disk takes. All of them can be recreated from the event log, which is not flushed either.

    Args:
        path: The file.
        mode: Its mode, less the umask.
        root: See `open_folder`. None: the path is the user's own choice, and a replaced file keeps
            its permissions.

    Raises:
        OSError: The file could not be written; the old file is unchanged.
    """
    with open_folder(path.parent, root) as folder:
        permissions = _permissions(path.name, folder) if root is None else None
        # Not derived from the file's name, which may be as long as the file system allows.
        draft = f".spbench-{secrets.token_hex(8)}"
        if permissions is not None:
            mode &= permissions
        descriptor = os.open(draft, _NEW_FILE, mode, dir_fd=folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                if permissions is not None:
                    with suppress(OSError):  # a file system without permissions
                        os.fchmod(descriptor, permissions)
                yield file
            os.rename(draft, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(draft, dir_fd=folder)
            raise


def _permissions(name: str, folder: int) -> int | None:
    """Return the permissions of a regular file; None if there is no such file."""
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    # Another user could make a file world-writable to change its next content.
    allowed = 0o777 if status.st_uid == os.geteuid() else 0o775
    return status.st_mode & allowed


def replace_file(path: Path, chunks: Iterable[str], mode: int, *, root: Path | None = None) -> None:
    """Write text to a new file, and replace `path` with it; see `open_replacement`.

    Raises:
        OSError: The file could not be written; the old file is unchanged.
    """
    with open_replacement(path, mode, root=root) as file:
        for chunk in chunks:
            file.write(chunk.encode())


def create_file(path: Path, mode: int, *, root: Path) -> BinaryIO:
    """Open a new file for writing; an existing file or link is removed first.

    Args:
        path: The file.
        mode: Its mode, less the umask.
        root: See `open_folder`.

    Raises:
        OSError: The file cannot be created, or `path` is a folder.
    """
    with open_folder(path.parent, root) as folder:
        with suppress(FileNotFoundError):
            os.unlink(path.name, dir_fd=folder)
        return os.fdopen(os.open(path.name, _NEW_FILE, mode, dir_fd=folder), "wb")


def open_regular(path: Path, flags: int, mode: int = 0) -> int:
    """Open a file without blocking, and return its descriptor.

    Raises:
        OSError: The file cannot be opened, or is a link, a pipe, a socket or a device.
    """
    try:
        file = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        message = "it is a link, which spbench does not follow here"
        raise OSError(errno.ELOOP, message, str(path)) from None
    return require_regular(file, path)


def require_regular(file: int, path: Path) -> int:
    """Return the descriptor of a regular open file, and close any other.

    Raises:
        OSError: The file is a folder, a pipe, a socket or a device; the message names `path`.
    """
    mode = os.fstat(file).st_mode
    if stat.S_ISREG(mode):
        return file
    os.close(file)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "it is a pipe or a device, and no file", str(path))


def open_to_append(path: Path, mode: int) -> int:
    """Open a file to read and append, and return its descriptor.

    A missing file is created.

    Raises:
        OSError: The file cannot be opened, is not regular, or has a second name (a hard link),
            under which the appended data would appear, too.
    """
    file = open_regular(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, mode)
    if os.fstat(file).st_nlink <= 1:
        return file
    os.close(file)
    raise OSError(errno.EMLINK, "it has another name (a hard link); replace it by a copy")
